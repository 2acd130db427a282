// SPDX-License-Identifier: Apache-2.0
// Tables of collectives from the command line: predicted, fitted; and pictures of clusters.
#include <fmt/format.h>

#include <cmath>

#include <nlohmann/json.hpp>

#include "calibrate/published/exchanges.hpp"
#include "calibrate/published/expert_exchanges.hpp"
#include "tests/app_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;
using namespace orrery::testing;

namespace {

constexpr const char* kHead =
    "row_id,op,gpu,n_gpus,n_nodes,interconnect,method,message_bytes,latency_us,busbw_GBps,notes\n";

/// All-reduces of 20 us + S / 100 GB/s on 8 H100, in powers of two.
std::string measured_table() {
  std::string text = kHead;
  for (int i = 10; i < 30; ++i)
    text += fmt::format("r{},all_reduce,H100-80GB-SXM,8,1,NVSwitch,nccl-tests,{},{:.4f},,\n", i, 1 << i,
                        20 + double(1 << i) / 100e3);
  return text;
}

ExchangeRow row_of(const std::string& line) {
  const CsvTable table{kHead + line + "\n", "t.csv"};
  return read_exchange_row(table.row(0));
}

}  // namespace

TEST_CASE("a row of a table of collectives names its fabric") {
  const auto fabric = [](const std::string& line) { return std::get<PublishedExchange>(row_of(line)).fabric; };
  CHECK(fabric("a,alltoall,B300,8,1,NVSwitch,nccl-tests,1024,9,,") == "nvlink_5");
  CHECK(fabric("a,all_reduce,A100-80GB,2,1,pairwise NVLink bridge + PCIe,torch.distributed,1024,9,,") ==
        "nvlink_3_pairs");
  CHECK(fabric("a,all_reduce,A100-80GB-SXM4,16,2,NVSwitch; 4 x 100 Gb/s EFA per node,x,1024,9,,") == "efa_400g");
  CHECK(fabric("a,all_reduce,H100,16,2,InfiniBand,x,1024,9,,") == "infiniband_ndr");
}

TEST_CASE("a time that is missing comes from the bus bandwidth, as nccl-tests defines it") {
  // 8 ranks, 1 GB at 350 GB/s of bus: 2·7/8 GB / 350 GB/s = 5 ms.
  const auto x = std::get<PublishedExchange>(row_of("a,all_reduce,H100,8,1,NVSwitch,x,1000000000,,350,"));
  CHECK(x.sample.measured.base() == Approx(5e-3));
  CHECK(std::get<Skip>(row_of("a,all_reduce,H100,8,1,NVSwitch,x,1000000000,,,")).reason == SkipReason::NoMeasurement);
  CHECK(std::get<Skip>(row_of("a,gather,H100,8,1,NVSwitch,x,1000,9,,")).reason == SkipReason::UnsupportedOp);
  CHECK(std::get<Skip>(row_of("a,all_reduce,H100,8,1,NVSwitch,x,,9,,")).reason == SkipReason::Incomplete);
}

TEST_CASE("a table of collectives is predicted from the command line") {
  const TemporaryFolder folder;
  const std::string table = folder.file("t.csv", measured_table());
  const CommandResult r = testing::orrery({"accuracy", table, "--json", "--per-row"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  const auto t = nlohmann::json::parse(r.out)["tables"][0];
  CHECK(t["kind"] == "collectives");
  CHECK(t["predicted"] == 20);
  CHECK(t["per_row"][0]["low"] < t["per_row"][0]["high"]);
}

TEST_CASE("a fit of a table writes the fabric, whose curve is what was measured") {
  const TemporaryFolder folder;
  const std::string table = folder.file("t.csv", measured_table());
  const CommandResult r = testing::orrery({"calibrate", "--from", table, "-o", folder / "out"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(r.out.find("nvlink_4") != std::string::npos);
  const FabricParameters p = find_fabric("nvlink_4", {folder / "out/fabrics"});
  CHECK(p.provenance.status == FitStatus::Fitted);
  REQUIRE(p.curves.size() == 1);
  CHECK(p.curves[0].time(8.0_MB).base() == Approx(100e-6).epsilon(0.01));
}

TEST_CASE("a fit of a table is one JSON document where that is asked for") {
  const TemporaryFolder folder;
  const std::string table = folder.file("t.csv", measured_table());
  const CommandResult r = testing::orrery({"calibrate", "--from", table, "-o", folder / "out", "--json"});
  REQUIRE(r.code == 0);
  const auto fits = nlohmann::json::parse(r.out)["fits"];
  REQUIRE(fits.size() == 1);
  CHECK(fits[0]["kind"] == "collectives");
  CHECK(fits[0]["laws"][0]["name"] == "nvlink_4");
  CHECK(fits[0]["laws"][0]["curves"] == 1);
  CHECK(fits[0]["files"] == nlohmann::json::array({folder / "out/fabrics/nvlink_4.yaml"}));
}

TEST_CASE("tables that no fit reads are refused") {
  const TemporaryFolder folder;
  const std::string gemm = folder.file("g.csv", "gpu,dtype,m,n,k,latency_us\nH100,bf16,1,1,1,1\n");
  const CommandResult r = testing::orrery({"calibrate", "--from", gemm});
  CHECK(r.code == 2);
  CHECK(r.err.find("kind 'gemm'") != std::string::npos);
}

TEST_CASE("laws of MoE exchanges find what rows were made of") {
  // Low latency: 10 us + 1 us per MB; 1 B per element to the experts.
  std::vector<PublishedExpertExchange> rows;
  for (const std::int64_t tokens : {1, 8, 64, 256, 1024})
    for (const std::int64_t hidden : {2048, 4096, 7168})
      for (const std::int64_t k : {2, 6, 8})
        for (const auto direction : {ExpertDirection::Dispatch, ExpertDirection::Combine})
          for (const auto mode : {ExpertMode::LowLatency, ExpertMode::Normal}) {
            PublishedExpertExchange x{{mode, direction, 8, tokens, hidden, k, 128, 24}, {}};
            x.measured = Seconds{10e-6 + x.shape.bytes().base() * 1e-12};
            rows.push_back(x);
          }
  const ExpertExchangeModel m = fit_expert_exchange(rows);
  REQUIRE(m.laws.size() == 4);
  for (const PublishedExpertExchange& x : rows)
    CHECK(m.law(x.shape).time(x.shape).base() == Approx(x.measured.base()).epsilon(0.03));
}

TEST_CASE("queues of random rows, and rows that are added up, are features of MoE exchanges") {
  // 400 tokens of one expert each over 4 SMs: 100 a queue in the mean, of which the fullest has z·√100 more.
  const ExpertExchangeShape s{
      .direction = ExpertDirection::Combine, .tokens = 400, .hidden = 1000, .top_k = 1, .sms = 4};
  const std::vector<double> f = features_of(s, 20);
  const double share = std::pow(std::pow(4.0, -4) + std::pow(20.0, -4), 0.25);
  REQUIRE(f.size() == num_features(ExpertMode::Normal));
  CHECK(f[1] == Approx(400 * 1000 * 2 * share));
  CHECK(f[6] == Approx(400 * 1000 * 2 * share));
  CHECK(f[7] == Approx(f[1] / 10));
}

TEST_CASE("low-latency kernels give each SM an expert, or several") {
  ExpertExchangeShape s{.mode = ExpertMode::LowLatency, .tokens = 1024, .hidden = 4096, .top_k = 1, .experts = 16};
  CHECK(features_of(s, 132).back() == Approx(1024.0 / 16));
  s.experts = 160;  // two on each of 80
  CHECK(features_of(s, 132).back() == Approx(1024.0 / 80));
  s.experts = 384;  // three on each of 128
  CHECK(features_of(s, 132).back() == Approx(8));
}

TEST_CASE("a law of MoE exchanges is as sure as it was of exchanges like the one at hand") {
  // Times of a law, off by 8 % where a token has one expert and by 1 % where it has eight, to either side.
  std::vector<PublishedExpertExchange> rows;
  for (std::int64_t tokens = 16; tokens <= 4096; tokens *= 2)
    for (const std::int64_t hidden : {2048, 4096, 7168})
      for (const std::int64_t top_k : {1, 8})
        for (const std::int64_t sms : {4, 12, 20}) {
          const ExpertExchangeShape s{.tokens = tokens, .hidden = hidden, .top_k = top_k, .sms = sms};
          const double side = rows.size() / 2 % 2 == 0 ? 1 : -1, off = 1 + side * (top_k == 1 ? 0.08 : 0.01);
          rows.push_back({s, Seconds{(2e-5 + s.bytes().base() * 3e-11 / double(sms)) * off}});
        }
  const ExpertExchangeLaw law = fit_expert_exchange(rows).laws.at(0);
  REQUIRE(law.spread.size() == 4);
  const double one = law.deviation_at({.tokens = 256, .hidden = 4096, .top_k = 1}),
               eight = law.deviation_at({.tokens = 256, .hidden = 4096, .top_k = 8});
  CHECK(one > 3 * eight);
  CHECK(one > 0.03);
  // More tokens than any that was fitted are no surer and no less sure for their number.
  CHECK(law.most_tokens == 4096);
  ExpertExchangeLaw same = law;
  same.reach = Bytes{1e30};
  CHECK(same.deviation_at({.tokens = 1 << 20, .top_k = 4}) == same.deviation_at({.tokens = 4096, .top_k = 4}));
}

TEST_CASE("beyond what was fitted a law of MoE exchanges is less sure, by what it missed of larger ones") {
  ExpertExchangeLaw law{.coefficients = {}, .deviation = 0.03, .reach = 1.0_MB, .growth = 0.04};
  ExpertExchangeShape s{.direction = ExpertDirection::Dispatch, .tokens = 1000, .hidden = 1000, .top_k = 1};
  CHECK(law.deviation_at(s) == Approx(0.03));  // 1 MB: one byte for each of 1000 numbers of 1000 tokens
  s.tokens = 1001;
  CHECK(law.deviation_at(s) == Approx(0.05));  // hypot(0.03, 0.04): the first e-fold at once
  s.tokens = 7389;
  CHECK(law.deviation_at(s) == Approx(std::hypot(0.03, 2 * 0.04)).epsilon(1e-3));

  std::vector<PublishedExpertExchange> rows;
  for (std::int64_t tokens = 16; tokens <= 16384; tokens *= 2)
    for (const std::int64_t hidden : {2048, 4096, 7168}) {
      PublishedExpertExchange x{{ExpertMode::Normal, ExpertDirection::Dispatch, 8, tokens, hidden, 8, 128, 24}, {}};
      const double slow = tokens > 2048 ? 1.3 : 1;
      x.measured = Seconds{slow * (10e-6 + x.shape.bytes().base() * 1e-12)};
      rows.push_back(x);
    }
  const ExpertExchangeLaw fitted = fit_expert_exchange(rows).laws[0];
  CHECK(fitted.reach.base() == Approx(rows.back().shape.bytes().base()));
  CHECK(1.645 * fitted.growth > 0.15);  // a third slower than small ones foretold
  for (PublishedExpertExchange& x : rows) x.measured = Seconds{10e-6 + x.shape.bytes().base() * 1e-12};
  CHECK(fit_expert_exchange(rows).laws[0].growth < 0.01);
}

TEST_CASE("a token of few experts reaches few ranks") {
  // One expert: one of 8 ranks. 8 of 8 experts: all ranks.
  ExpertExchangeShape s{.tokens = 1, .hidden = 1000, .top_k = 1, .experts = 64};
  CHECK(s.ranks_reached() == Approx(1));
  CHECK(s.bytes().base() == Approx(1000));
  s.experts = 8, s.top_k = 8;
  CHECK(s.ranks_reached() == Approx(8));
}

TEST_CASE("every shipped cluster is drawn, with its devices and network") {
  const CommandResult list = testing::orrery({"list", "clusters", "--json"});
  for (const auto& c : nlohmann::json::parse(list.out)) {
    const CommandResult r = testing::orrery({"topo", "show", c["name"]});
    INFO(c["name"] << r.err);
    CHECK(r.code == 0);
    CHECK(r.out.find(" g0 ") != std::string::npos);
    for (std::size_t start = 0, end; (end = r.out.find('\n', start)) != std::string::npos; start = end + 1)
      CHECK(end - start < 400);
  }
}

TEST_CASE("links of a cluster have names that faults take") {
  const CommandResult r = testing::orrery({"topo", "show", "hgx_a100_roce", "--links"});
  CHECK(r.out.find("leaf 1 up 63") != std::string::npos);  // 16 · 8 cards down, half of them up
  CHECK(r.out.find("leaf 1 up 64") == std::string::npos);
}

TEST_CASE("an imported machine is a cluster file, a broken one an error") {
  const TemporaryFolder folder;
  const std::string xml = folder.file("m.xml",
                                      "<platform version=\"4.1\"><cluster id=\"c\" radical=\"0-3\" speed=\"1Gf\" "
                                      "bw=\"10GBps\" lat=\"2us\"/></platform>");
  const CommandResult r = testing::orrery({"topo", "import", xml, "--device", "v100", "-o", folder / "c.yaml"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  CHECK(testing::orrery({"topo", "show", folder / "c.yaml"}).out.find("4 devices on 4 nodes") != std::string::npos);
  const CommandResult broken = testing::orrery({"topo", "import", folder.file("b.xml", "<platform")});
  CHECK(broken.code == 2);
  CHECK(broken.err.find("b.xml:1:") != std::string::npos);
}
