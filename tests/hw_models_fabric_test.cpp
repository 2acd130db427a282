// SPDX-License-Identifier: Apache-2.0
// NCCL's model, measured curves of collectives, and the fit of curves.
#include <catch2/catch.hpp>

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
    p.curves.push_back({Exchange::AllReduce,
                        "nccl",
                        ranks,
                        1,
                        {{Bytes{0}, 10.0_us, 10.0_GBps, 0.02}, {1.0_MB, 50.0_us, 100.0_GBps, 0.02}}});
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
  // Each of the two is in two parts, which differ in how sure they are: at 64 KiB, and behind the last size.
  REQUIRE(curves[0].segments.size() == 4);
  for (const std::size_t i : {0u, 1u}) CHECK(us(curves[0].segments[i].latency) == Approx(10.0));
  CHECK(curves[0].segments[1].from.base() == 65536);
  for (const std::size_t i : {2u, 3u}) CHECK(curves[0].segments[i].bandwidth.base() == Approx(100e9));
  CHECK(curves[0].segments[3].from.base() == Approx(1.4 * 0x1p29));
  CHECK(us(curves[0].time(3.0_MB)) == Approx(80.0));
}

TEST_CASE("a curve that scatters is less sure than another of its op, and less beyond its sizes", "[calibrate]") {
  // Both 20 us + S / 50 GB/s; over 8 ranks every other size takes 10 % longer, over 4 the largest sizes half as long
  // again.
  std::vector<ExchangeSample> samples;
  for (double size = 1024; size < 1e9; size *= 2) {
    const double up = int(std::log2(size)) % 2 == 0 ? 1.1 : 1;
    const Seconds t = 20.0_us + Bytes{size} / 50.0_GBps;
    samples.push_back({.ranks = 8, .bytes = Bytes{size}, .measured = t * up});
    samples.push_back({.ranks = 4, .bytes = Bytes{size}, .measured = t * (size > 3e7 ? 1.5 : 1)});
  }
  const std::vector<CollectiveCurve> curves = fit_exchanges(samples, 50.0_GBps);
  REQUIRE(curves.size() == 2);
  const CollectiveCurve &four = curves[0], &eight = curves[1];
  REQUIRE(eight.ranks == 8);
  CHECK(eight.segment(4.0_KB).deviation > 2 * four.segment(4.0_KB).deviation);
  CHECK(eight.segment(4.0_KB).deviation == Approx(0.1 / 1.645).epsilon(0.5));
  CHECK(four.segment(10.0_GB).deviation > 2 * four.segment(1.0_MB).deviation);
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
  CHECK_THAT(user_error([] { find_fabric("nvlink_99", {fabrics_folder()}); }), Catch::Contains("unknown fabric"));
  CHECK_THAT(user_error([] { read_fabric(parse_yaml("gpu: {}", "f.yaml")); }), Catch::Contains("one key, `fabric`"));
}
