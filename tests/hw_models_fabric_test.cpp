// SPDX-License-Identifier: Apache-2.0
// NCCL's model, measured curves of collectives, and the fit of curves.
#include <catch2/catch.hpp>

#include <cmath>

#include "calibrate/fit_exchanges.hpp"
#include "hw_models/fabric_model.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

double us(Seconds t) { return t.base() * 1e6; }

FabricParameters two_curves() {
  FabricParameters p;
  p.link = 300.0_GBps, p.bus = 200.0_GBps;
  for (const std::int64_t ranks : {2, 8})
    p.curves.push_back({.ranks = ranks,
                        .sizes = {1.0_KB, 100.0_KB, 10.0_MB},
                        .segments = {{Bytes{0}, 10.0_us, 10.0_GBps}, {1.0_MB, 50.0_us, 100.0_GBps}}});
  return p;
}

}  // namespace

TEST_CASE("NCCL's model of a ring counts a base and a hop for each step", "[hw_models][nccl]") {
  // 8 ranks, one node, NVLink: LL 6.6 + 14·0.6 = 15 us, half of the bus; Simple 8.4 + 14·3.4 = 56 us, all of it.
  const NcclSystem s{8, 1, NcclGeneration::Ampere, true, false, 16, 200.0_GBps, {}};
  const auto ll = nccl_candidate(CollectiveKind::AllReduce, 1.0_KB, s, NcclAlgorithm::Ring, NcclProtocol::LL);
  CHECK(us(ll->latency) == Approx(15.0));
  CHECK(ll->bandwidth.base() == Approx(87.7e9 * 8 / 14));  // the limit of LL on Ampere is below half of the bus
  const auto simple = nccl_candidate(CollectiveKind::AllReduce, 1.0_GB, s, NcclAlgorithm::Ring, NcclProtocol::Simple);
  CHECK(us(simple->latency) == Approx(56.0));
  CHECK(simple->bandwidth.base() == Approx(200e9 * 8 / 14));
}

TEST_CASE("NCCL takes LL for small and Simple rings for large messages", "[hw_models][nccl]") {
  const NcclSystem s{8, 1, NcclGeneration::Ampere, true, false, 16, 200.0_GBps, {}};
  CHECK(nccl_choice(CollectiveKind::AllGather, 1.0_KB, s).protocol == NcclProtocol::LL);
  CHECK(nccl_choice(CollectiveKind::AllGather, 1.0_GB, s).protocol == NcclProtocol::Simple);
  CHECK(nccl_choice(CollectiveKind::AllReduce, 1.0_GB, s).algorithm == NcclAlgorithm::Ring);
}

TEST_CASE("NCCL takes trees between many nodes and the switch where it adds up", "[hw_models][nccl]") {
  NcclSystem s{256, 32, NcclGeneration::Hopper, true, false, 16, 350.0_GBps, 350.0_GBps};
  CHECK(nccl_choice(CollectiveKind::AllReduce, 1.0_KB, s).algorithm == NcclAlgorithm::Tree);
  s.ranks = 8, s.nodes = 1, s.has_nvls = true;
  CHECK(nccl_choice(CollectiveKind::AllReduce, 1.0_GB, s).algorithm == NcclAlgorithm::Nvls);
}

TEST_CASE("an all-to-all between nodes is as slow as what leaves a node", "[hw_models][nccl]") {
  // 16 ranks on 2 nodes, 1 GB each: 8 · 0.5 GB leave over 100 GB/s, 40 ms; 7/16 GB stay over 300 GB/s, 1.5 ms.
  const NcclSystem s{16, 2, NcclGeneration::Hopper, true, false, 16, 300.0_GBps, 100.0_GBps};
  const NcclChoice c = nccl_choice(CollectiveKind::AllToAll, 1.0_GB, s);
  CHECK((1.0_GB / c.bandwidth).base() == Approx(0.04));
}

TEST_CASE("a broadcast fills a chain of all ranks before its first piece is at the end", "[hw_models][nccl]") {
  // 2 nodes of 8, 8 channels: NCCL counts 8.4 + 16·14 us for Simple and 14 + 16·4 us for LL128, whose bus is 0.92 of
  // 50 GB/s. 1 GB: 20.2 ms and 21.8 ms; 10 MB: 432 us and 295 us.
  NcclSystem s{16, 2, NcclGeneration::Ampere, true, false, 8, 200.0_GBps, 50.0_GBps};
  const NcclChoice large = nccl_choice(CollectiveKind::Broadcast, 1.0_GB, s);
  CHECK(large.protocol == NcclProtocol::Simple);
  CHECK(us(large.latency) == Approx(8.4 + 14 * 3.4 + 1 * 14));
  // Pieces of 8 · 512 KiB on 14 hops of 200 GB/s; the only hop between nodes is that of the stream.
  CHECK(us(large.fill) == Approx(14 * 8 * 524288 / 200e3));
  CHECK(us(1.0_GB / large.bandwidth) == Approx(20000));
  const NcclChoice small = nccl_choice(CollectiveKind::Broadcast, 10.0_MB, s);
  CHECK(small.protocol == NcclProtocol::LL128);
  CHECK(us(small.latency) == Approx(14 + 14 * 1.9 + 1 * 4));
  CHECK(us(small.fill) == 0);
  // 16 nodes: LL128 passes on lines in a node, pieces of 8 · 576,000 B over 14 hops between nodes but the slowest.
  s.ranks = 128, s.nodes = 16;
  const NcclChoice many = nccl_choice(CollectiveKind::Broadcast, 100.0_MB, s);
  CHECK(many.protocol == NcclProtocol::LL128);
  CHECK(us(many.fill) == Approx(14 * 8 * 576000 / 50e3));
  CHECK(nccl_choice(CollectiveKind::Reduce, 100.0_MB, s).time(100.0_MB) == many.time(100.0_MB));
}

TEST_CASE("a measured collective takes the time of its segment", "[hw_models][fabric]") {
  const FabricModel f{two_curves()};
  // 100 KB: 10 us + 10 us; 10 MB: 50 us + 100 us.
  CHECK(us(f.time({Exchange::AllReduce, 100.0_KB, 8, 1}).total()) == Approx(20.0));
  CHECK(us(f.time({Exchange::AllReduce, 10.0_MB, 8, 1}).total()) == Approx(150.0));
  CHECK(f.time({Exchange::AllReduce, 10.0_MB, 8, 1}).is_measured);
  // Links twice as fast halve what flows, and nothing else.
  CHECK(us(f.time({Exchange::AllReduce, 10.0_MB, 8, 1}, {2, 1}).total()) == Approx(100.0));
}

TEST_CASE("between two measured numbers of ranks lies a time between theirs, scaled by NCCL's model",
          "[hw_models][fabric]") {
  const FabricModel f{two_curves()};
  const auto at = [&](std::int64_t ranks) { return f.time({Exchange::AllReduce, 64.0_MB, ranks, 1}); };
  CHECK_FALSE(at(4).is_measured);
  CHECK(at(4).deviation > at(8).deviation);
  // Large rings: 2(n − 1)/n of the bytes. From 8 ranks to 16: (30/16)/(14/8) = 1.0714, and latencies of 64 MB are few.
  CHECK(at(16).total() / at(8).total() == Approx(1.07).margin(0.15));
  CHECK(at(16).total() > at(8).total());
}

TEST_CASE("what no table has is NCCL's model with the fabric's latencies", "[hw_models][fabric]") {
  FabricParameters p = two_curves();
  p.latency_factor = 3;
  const FabricModel f{p};
  const NcclChoice c = nccl_choice(CollectiveKind::AllGather, 1.0_KB, f.system(8, 1, {}));
  const ExchangeTime t = f.time({Exchange::AllGather, 1.0_KB, 8, 1});
  CHECK(t.latency == c.latency * 3.0);
  CHECK_FALSE(t.is_measured);
}

TEST_CASE("a fit finds the segments that the measurements were made of", "[calibrate]") {
  // 10 us + S / 10 GB/s below 1 MB, 50 us + S / 100 GB/s above: sizes in powers of two, exact.
  std::vector<ExchangeSample> samples;
  for (double size = 1024; size < 1e9; size *= 2)
    samples.push_back(
        {.bytes = Bytes{size},
         .measured = size < 1e6 ? 10.0_us + Bytes{size} / 10.0_GBps : 50.0_us + Bytes{size} / 100.0_GBps});
  const std::vector<CollectiveCurve> curves = fit_exchanges(samples, 100.0_GBps);
  REQUIRE(curves.size() == 1);
  REQUIRE(curves[0].segments.size() == 2);
  CHECK(us(curves[0].segments[0].latency) == Approx(10.0));
  CHECK(curves[0].segments[1].bandwidth.base() == Approx(100e9));
  CHECK(us(curves[0].time(3.0_MB)) == Approx(80.0));
}

TEST_CASE("a curve is as unsure between its sizes as their times leave it, and beyond them by the octave",
          "[hw_models][fabric]") {
  const CollectiveCurve c{.sizes = {1.0_KB, 4.0_KB, 16.0_KB, 64.0_KB},
                          .spread = {.at = 0.01, .between = 0.2, .beyond = 0.1, .below = 0.3},
                          .segments = {{Bytes{0}, 10.0_us, BytesPerSecond{1e30}}, {8.0_KB, 0.0_us, 0.8_GBps}}};
  CHECK(c.deviation(4.1_KB) == Approx(0.01));
  // 1 to 4 KB: latency alone, and 16 to 64 KB bytes alone: the ends meet, but for what is left always.
  CHECK(c.deviation(2.0_KB) == Approx(0.2 * std::sqrt(0.05)));
  CHECK(c.deviation(32.0_KB) == Approx(0.2 * std::sqrt(0.05)));
  // 4 to 16 KB: 10 and 20 us. At 8 KB no less than 10 us (half of 20), and no more than 20 (twice 10).
  CHECK(c.deviation(8.0_KB) == Approx(0.2 * std::sqrt(std::hypot(std::log(2.0), 0.05))));
  CHECK(c.deviation(1024.0_KB) == Approx(0.1 * 2));  // four octaves
  CHECK(c.deviation(Bytes{500}) == Approx(0.3));
}

TEST_CASE("a curve that scatters is less sure than another of its fabric", "[calibrate]") {
  // Both 20 us + S / 50 GB/s; over 8 ranks every other size takes 10 % longer.
  std::vector<ExchangeSample> samples;
  for (double size = 1024; size < 1e9; size *= 2) {
    const double up = int(std::log2(size)) % 2 == 0 ? 1.1 : 1;
    const Seconds t = 20.0_us + Bytes{size} / 50.0_GBps;
    samples.push_back({.ranks = 8, .bytes = Bytes{size}, .measured = t * up});
    samples.push_back({.ranks = 4, .bytes = Bytes{size}, .measured = t});
  }
  const std::vector<CollectiveCurve> curves = fit_exchanges(samples, 50.0_GBps);
  REQUIRE(curves.size() == 2);
  const CollectiveCurve &four = curves[0], &eight = curves[1];
  REQUIRE(eight.ranks == 8);
  CHECK(eight.sizes.size() == 20);
  CHECK(eight.spread.between > 2 * four.spread.between);
  CHECK(eight.deviation(3.0_KB) == Approx(0.1 / 1.645).epsilon(0.5));
}

TEST_CASE("a curve whose largest sizes are others' than the smaller ones foretell is less sure beyond", "[calibrate]") {
  // 8 ranks send 14/8 of the message over links of 87.5 GB/s: 50 GB/s.
  const auto beyond = [](double jump) {  // of the largest fifth
    std::vector<ExchangeSample> samples;
    for (double size = 1024; size < 1e9; size *= 2)
      samples.push_back({.ranks = 8,
                         .bytes = Bytes{size},
                         .measured = (20.0_us + Bytes{size} / 50.0_GBps) * (size > 4e7 ? jump : 1)});
    return fit_exchanges(samples, 87.5_GBps).at(0).spread.beyond;
  };
  CHECK(beyond(1.5) > 4 * beyond(1));
}

TEST_CASE("a size that was measured more than once tells how such times differ", "[calibrate]") {
  // Two runs of each size, 6 % apart: |ln| 0.058 each from the other, over 1.645 a deviation of 0.035.
  std::vector<ExchangeSample> samples;
  for (double size = 1024; size < 1e9; size *= 2)
    for (const double run : {1.0, 1.06})
      samples.push_back({.bytes = Bytes{size}, .measured = (20.0_us + Bytes{size} / 50.0_GBps) * run});
  CHECK(fit_exchanges(samples, 50.0_GBps).at(0).spread.at == Approx(0.058 / 1.645).epsilon(0.02));
  // One run of each leaves nothing but what the curve is off by.
  std::erase_if(samples, [n = 0](const ExchangeSample&) mutable { return n++ % 2 == 1; });
  CHECK(fit_exchanges(samples, 50.0_GBps).at(0).spread.at < 0.01);
}

TEST_CASE("a fit of curves is not moved by one wrong measurement", "[calibrate]") {
  std::vector<ExchangeSample> samples;
  for (double size = 1024; size < 1e9; size *= 2)
    samples.push_back({.bytes = Bytes{size}, .measured = 20.0_us + Bytes{size} / 50.0_GBps});
  samples[3].measured = 300.0_us;
  const CollectiveCurve curve = fit_exchanges(samples, 50.0_GBps).at(0);
  CHECK(us(curve.time(Bytes{512.0})) == Approx(20.0).epsilon(0.05));
  CHECK(us(curve.time(64.0_MB)) == Approx(1300.0).epsilon(0.05));
}

TEST_CASE("a file of a fabric reads back as it was written, and says what is wrong", "[hw_models][fabric]") {
  FabricParameters p = two_curves();
  p.provenance = {FitStatus::Fitted, "m", "2026-11-21", "t", "s"};
  CHECK(fabric_file(read_fabric(parse_yaml(fabric_file(p), "f.yaml"))) == fabric_file(p));
  p.curves[0].segments[1].from = Bytes{0};
  CHECK_THAT(user_error([&] { read_fabric(parse_yaml(fabric_file(p), "f.yaml")); }),
             Catch::Contains("the curve of 2 ranks has no segments in order of size"));
  p.curves[0].sizes[1] = Bytes{1};
  CHECK_THAT(user_error([&] { read_fabric(parse_yaml(fabric_file(p), "f.yaml")); }),
             Catch::Contains("the curve of 2 ranks has `sizes` out of order"));
  CHECK_THAT(user_error([] { find_fabric("nvlink_99", {fabrics_folder()}); }), Catch::Contains("unknown fabric"));
  CHECK_THAT(user_error([] { read_fabric(parse_yaml("gpu: {}", "f.yaml")); }), Catch::Contains("one key, `fabric`"));
}
