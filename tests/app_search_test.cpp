// SPDX-License-Identifier: Apache-2.0
// `orrery search`: meshes, the fastest split, and the scenario that it writes.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sstream>

#include "sim/app/split_search.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

json search_of(std::vector<std::string> arguments, int code = 0) {
  arguments.insert(arguments.begin(), "search");
  arguments.emplace_back("--json");
  const CommandResult r = testing::orrery(arguments);
  INFO(r.err);
  REQUIRE(r.code == code);
  return json::parse(r.out);
}

json report_of(const std::string& scenario) {
  const CommandResult r = testing::orrery({"simulate", scenario, "--no-out", "--json"});
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

double step_of(const std::string& scenario) { return report_of(scenario)["step_time"]["seconds"]; }

std::string scenario_of(const json& all, const std::string& strategy, std::int64_t microbatches,
                        const std::string& recompute) {
  return fmt::format(
      "model: {}\ncluster: {}\nstrategy: [{}]\n"
      "workload: {{train: {{batch: {}, sequence: {}, dtype: {}, recompute: {}, microbatches: {}}}}}\n",
      all["model"].get<std::string>(), all["cluster"].get<std::string>(), strategy, all["batch"].get<int>(),
      all["sequence"].get<int>(), all["dtype"].get<std::string>(), recompute, microbatches);
}

/// Eight H100 of so much memory.
std::string cluster_with(const std::string& memory) {
  return fmt::format(
      "devices_per_node: 8\ndevice: h100_sxm\ndevice_memory: {}\nhost: {{memory: 64 GiB, cores: 8}}\n"
      "device_link: {{name: NVLink 4, bandwidth: 450 GB/s, latency: 1.5 us, fabric: nvlink_4}}\n"
      "host_link: {{bandwidth: 63 GB/s, latency: 2 us}}\n",
      memory);
}

}  // namespace

TEST_CASE("meshes have all ranks, and are those that the model, the batch and a node have room for") {
  const SplitBounds bounds{.devices_per_node = 4, .layers = 6, .experts = 4};
  const std::vector<SplitMesh> meshes = split_meshes(24, 24, 8192, bounds);
  std::set<std::string> names;
  for (const SplitMesh& m : meshes) {
    CAPTURE(m.text());
    CHECK(names.insert(m.text()).second);
    CHECK(m.pp * m.dp * m.ep * m.cp * m.tp == 24);
    CHECK(m.tp <= 4);
    CHECK(m.pp <= 6);
    CHECK(4 % m.ep == 0);
    CHECK(8192 / m.cp >= 4096);
    CHECK(24 % m.replicas() == 0);
  }
  for (const char* text : {"dp24", "pp6 dp4", "pp6 ep4", "dp6 ep4", "pp3 dp4 cp2", "pp2 dp3 ep2 tp2", "dp8 tp3"})
    CHECK(names.count(text) == 1);
  CHECK(names.count("pp12 dp2") == 0);
  CHECK(split_meshes(8, 3, 1024, {.devices_per_node = 1, .layers = 1, .experts = 1}).empty());
  CHECK(split_meshes(1, 3, 1024, {}).front().text().empty());
}

TEST_CASE("rows of a search are what simulate predicts of them, fastest first") {
  const TemporaryFolder folder;
  const json all = search_of({"gpt2", "--cluster", "dgx_h100", "--batch", "64", "--sequence", "512"});
  REQUIRE(all["splits"].size() > 5);
  double before = 0;
  for (const json& s : all["splits"]) {
    INFO(s["strategy"]);
    CHECK(s["fits"] == true);
    const double step = s["step_time"]["seconds"];
    CHECK(step >= before);
    before = step;
    const std::string text = scenario_of(all, s["strategy"], s["microbatches"], s["recompute"]);
    CHECK(step_of(folder.file("row.yaml", text)) == Approx(step).epsilon(1e-12));
    CHECK(s["microbatches"].get<int>() * s["samples"].get<int>() <= 64);
  }
}

TEST_CASE("no split that is tried by hand is faster, with many microbatches and where memory is short") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("1200 MB"));
  const json all = search_of({"gpt2", "--cluster", cluster, "--batch", "128", "--sequence", "512"});
  const double best = all["splits"].front()["step_time"]["seconds"];
  int fitting = 0;
  for (const char* mesh : {"dp8", "dp4 tp2", "pp2 dp4", "pp4 dp2", "pp2 dp2 tp2"})
    for (const char* recompute : {"none", "full"})
      for (const int microbatches : {4, 8, 16, 32}) {
        const std::string strategy = fmt::format(
            "{{parallel: {{mesh: {}, sequence_parallel: true, tp_comm_overlap: true, data: {{kind: zero1}}}}}}", mesh);
        const std::string scenario = folder.file("one.yaml", scenario_of(all, strategy, microbatches, recompute));
        const CommandResult r = testing::orrery({"simulate", scenario, "--no-out", "--json"});
        if (r.code != 0) continue;  // microbatches that are none of the replica's
        const json report = json::parse(r.out);
        if (!report["peak_memory"]["fits"]) continue;
        ++fitting;
        INFO(strategy << ' ' << recompute << ' ' << microbatches);
        CHECK(report["step_time"]["seconds"].get<double>() > 0.999 * best);
      }
  CHECK(fitting > 10);
}

TEST_CASE("blocks get ways of their own where memory is short, and no number of blocks that run again is faster") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("1100 MB"));
  const json all = search_of({"gpt2", "--cluster", cluster, "--batch", "128", "--sequence", "512", "--reserve", "0"});
  int layered = 0;
  for (const json& s : all["splits"])
    layered += s["strategy"].get<std::string>().find("layers: [{") != std::string::npos;
  CHECK(layered >= 2);
  const double best = all["splits"].front()["step_time"]["seconds"];
  int fitting = 0;
  for (const char* kind : {"zero1", "zero3"})
    for (const int microbatches : {1, 2, 4, 8})
      for (int again = 1; again < 12; ++again) {
        const std::string strategy = fmt::format(
            "{{parallel: {{mesh: dp8, data: {{kind: {}}}, layers: [{{blocks: \"0-{}\", recompute: full}}]}}}}", kind,
            again - 1);
        const json report = report_of(folder.file("one.yaml", scenario_of(all, strategy, microbatches, "none")));
        if (!report["peak_memory"]["fits"]) continue;
        ++fitting;
        INFO(strategy << ' ' << microbatches);
        CHECK(report["step_time"]["seconds"].get<double>() > 0.995 * best);
      }
  CHECK(fitting > 20);
}

TEST_CASE("on one device some blocks run again, as many as have to") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("3 GB"));
  const json all =
      search_of({"gpt2", "--cluster", cluster, "--devices", "1", "--batch", "16", "--sequence", "512", "--no-offload"});
  REQUIRE(all["splits"].size() == 1);
  const json& best = all["splits"][0];
  INFO(best["strategy"]);
  CHECK(best["strategy"].get<std::string>().find("layers: [{") != std::string::npos);
  const auto scenario = [&](const std::string& strategy, std::int64_t microbatches, const std::string& recompute) {
    json one = all;
    one["cluster"] = folder.file("one.yaml",
                                 "devices_per_node: 1\ndevice: h100_sxm\ndevice_memory: 3 GB\n"
                                 "host_link: {bandwidth: 63 GB/s, latency: 2 us}\n");
    return folder.file("scenario.yaml", scenario_of(one, strategy, microbatches, recompute));
  };
  const double step = best["step_time"]["seconds"];
  CHECK(step_of(scenario(best["strategy"], best["microbatches"], best["recompute"])) == Approx(step).epsilon(1e-9));
  for (const int microbatches : {1, 2, 4, 8, 16})
    for (const char* recompute : {"none", "selective", "full"}) {
      const json report = report_of(scenario("{single: {}}", microbatches, recompute));
      if (report["peak_memory"]["bytes"].get<double>() > 0.975 * 3e9) continue;
      INFO(microbatches << ' ' << recompute);
      CHECK(report["step_time"]["seconds"].get<double>() > 0.999 * step);
    }
}

TEST_CASE("stages on slower devices get fewer blocks") {
  // Twelve V100, then four T4; the last stage has the head, too.
  const TemporaryFolder folder;
  const std::string model = folder.file(
      "model.json",
      R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 24, "n_head": 16, "n_positions": 1024, "vocab_size": 52256})");
  const json all = search_of({model, "--cluster", "p3_g4dn", "--batch", "32", "--sequence", "1024"});
  const std::string best = all["splits"].front()["strategy"];
  const auto at = best.find("stage_layers: [");
  INFO(best);
  REQUIRE(at != std::string::npos);
  std::vector<int> blocks;
  std::stringstream list{best.substr(at + 15, best.find(']', at) - at - 15)};
  for (std::string n; std::getline(list, n, ',');) blocks.push_back(std::stoi(n));
  CHECK(std::accumulate(blocks.begin(), blocks.end(), 0) == 24);
  CHECK(blocks.back() == *std::min_element(blocks.begin(), blocks.end()));
  CHECK(blocks.back() < 24 / int(blocks.size()));
}

// An H100 is so much faster than a T4 that no few blocks make up for it: all sizes of two stages are tried.
TEST_CASE("between two devices of very different speed, no other block is the first of the second stage") {
  const TemporaryFolder folder;
  const auto node = [](const std::string& device) {
    return fmt::format(
        "{{nodes: 1, devices_per_node: 1, device: {}, host: {{memory: 64 GB, cores: 8}}, host_link: {{bandwidth: 12 "
        "GB/s, latency: 2 us}}, nic: {{per: node, bandwidth: 25 Gb/s, latency: 20 us}}",
        device);
  };
  const std::string cluster = folder.file("two.yaml", node("t4") + ", more_nodes: [" + node("h100_pcie") + "}]}\n");
  const std::string model = folder.file(
      "model.json",
      R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 36, "n_head": 16, "n_positions": 512, "vocab_size": 1024})");
  const json all = search_of({model, "--cluster", cluster, "--batch", "16", "--sequence", "512"});
  int compared = 0;
  for (const json& best : all["splits"]) {
    const std::string strategy = best["strategy"];
    INFO(strategy);
    const auto at = strategy.find("stage_layers: [");
    if (at == std::string::npos) continue;
    const auto end = strategy.find(']', at);
    for (int first = 1; first < 36; ++first) {
      const std::string other =
          strategy.substr(0, at) + fmt::format("stage_layers: [{}, {}", first, 36 - first) + strategy.substr(end);
      const json report =
          report_of(folder.file("other.yaml", scenario_of(all, other, best["microbatches"], best["recompute"])));
      if (!report["peak_memory"]["fits"]) continue;
      INFO(first);
      CHECK(report["step_time"]["seconds"].get<double>() > 0.999 * best["step_time"]["seconds"].get<double>());
      ++compared;
    }
    CHECK(best["balance"]["time"].get<double>() > 0);
    CHECK(best["stages"].size() == 2);
    CHECK(best["stages"][0]["blocks"].get<int>() + best["stages"][1]["blocks"].get<int>() == 36);
  }
  CHECK(compared > 30);
}

// Each rank holds what was predicted for it, or one message more that the other rank has not taken yet: 8 samples of 64
// tokens, 128 wide. Equal stages run out of memory where it was predicted.
TEST_CASE("stages in balance train where equal ones have no room, and hold what was predicted") {
  constexpr std::int64_t kMessage = 8 * 64 * 128 * 4;
  const json predicted = report_of("balanced-stages");
  REQUIRE(predicted["peak_memory"]["fits"] == true);
  const CommandResult run = testing::orrery({"run", "balanced-stages", "--steps", "2", "--no-out", "--json"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const json measured = json::parse(run.out);
  REQUIRE(measured["stages"].size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    INFO(i);
    const std::int64_t more = measured["stages"][i]["peak_bytes"].get<std::int64_t>() -
                              predicted["stages"][i]["peak_bytes"].get<std::int64_t>();
    CHECK((more == 0 || more == kMessage));
  }
  const std::vector<std::string> equal{"--set", "strategy=[{1f1b: {mesh: pp2}}]", "--no-out", "--json"};
  std::vector<std::string> simulate{"simulate", "balanced-stages"}, execute{"run", "balanced-stages"};
  for (auto* arguments : {&simulate, &execute}) arguments->insert(arguments->end(), equal.begin(), equal.end());
  CHECK(json::parse(testing::orrery(simulate).out)["peak_memory"]["fits"] == false);
  const CommandResult failed = testing::orrery(execute);
  CHECK(failed.code == 3);
  CHECK_THAT(failed.err, Catch::Contains("out of memory on rank 0"));
}

TEST_CASE("models of all families are searched, those without a stack of blocks among them") {
  for (const char* model : {"swin-tiny-test", "dlrm-tiny", "t5-tiny", "vit-tiny", "deepseek-tiny", "gemma3-tiny"}) {
    INFO(model);
    const json all = search_of({model, "--cluster", "dgx_h100", "--batch", "16", "--rows", "2"});
    CHECK(!all["splits"].empty());
  }
}

TEST_CASE("what is reserved of a device stays free") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("1200 MB"));
  for (const char* percent : {"0", "2.5", "20%"}) {
    const json all =
        search_of({"gpt2", "--cluster", cluster, "--sequence", "512", "--reserve", percent, "--no-offload"});
    const double room = 1200e6 * (1 - std::stod(percent) / 100);
    for (const json& s : all["splits"]) CHECK(s["peak"]["device"]["bytes"].get<double>() <= room);
    CHECK(all["reserved"].get<double>() == Approx(std::stod(percent) / 100));
  }
  CHECK(testing::orrery({"search", "gpt2", "--cluster", cluster, "--reserve", "100"}).code == 2);
}

TEST_CASE("what no split leaves room for goes to host and disk, and no way to do so that is tried by hand is faster") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("500 MB"));
  const json all = search_of({"gpt2", "--cluster", cluster, "--batch", "64", "--sequence", "512", "--reserve", "0"});
  const json& best = all["splits"].front();
  CHECK(best["fits"] == true);
  CHECK(!best["tiers"].get<std::string>().empty());
  const double step = best["step_time"]["seconds"];
  const json report =
      report_of(folder.file("best.yaml", scenario_of(all, best["strategy"], best["microbatches"], best["recompute"])));
  CHECK(report["step_time"]["seconds"].get<double>() == Approx(step).epsilon(1e-12));
  CHECK(report["peak_memory"]["fits"] == true);
  int fitting = 0;
  for (const char* way : {"parallel: {", "zero-offload: {parallel: {", "activation-offload: {parallel: {",
                          "zero-infinity: {weights: host, states: host, parallel: {", "gemini: {parallel: {"})
    for (const char* mesh : {"dp8", "dp4 tp2", "pp2 dp4", "pp4 dp2", "pp2 dp2 tp2"})
      for (const char* recompute : {"none", "full"})
        for (const int microbatches : {4, 8}) {
          const std::string strategy =
              fmt::format("{{{}mesh: {}, sequence_parallel: true, tp_comm_overlap: true, data: {{kind: zero3}}}}{}}}",
                          way, mesh, std::string_view{way} == "parallel: {" ? "" : "}");
          const CommandResult r =
              testing::orrery({"simulate", folder.file("one.yaml", scenario_of(all, strategy, microbatches, recompute)),
                               "--no-out", "--json"});
          if (r.code != 0) continue;  // microbatches that are none of the replica's
          const json one = json::parse(r.out);
          if (!one["peak_memory"]["fits"]) continue;
          ++fitting;
          INFO(strategy << ' ' << recompute << ' ' << microbatches);
          CHECK(one["step_time"]["seconds"].get<double>() > 0.999 * step);
        }
  CHECK(fitting > 10);
}

TEST_CASE("what no split leaves room for is told, closest first") {
  const TemporaryFolder folder;
  const std::string cluster = folder.file("small.yaml", cluster_with("100 MB"));
  const json all = search_of({"gpt2", "--cluster", cluster}, 1);
  REQUIRE(!all["splits"].empty());
  double before = 0;
  for (const json& s : all["splits"]) {
    CHECK(s["fits"] == false);
    CHECK_THAT(s["limit"].get<std::string>(), Catch::StartsWith("device memory: "));
    CHECK(s["peak"]["device"]["bytes"].get<double>() >= before);
    before = s["peak"]["device"]["bytes"];
  }
  const CommandResult odd = testing::orrery({"search", "gpt2", "--cluster", cluster, "--batch", "1"});
  CHECK(odd.code <= 1);  // stages and stripes need no replicas
  CHECK(testing::orrery({"search", "gpt2", "--cluster", "dgx_h100", "--rows", "0"}).code == 2);
}

TEST_CASE("the fastest split of this computer is saved and runs") {
  const TemporaryFolder folder;
  const std::string saved = folder / "best.yaml";
  const json all = search_of({"gpt2-tiny", "--devices", "2", "--batch", "4", "--sequence", "32", "--dtype", "f32",
                              "--rows", "1", "--save", saved});
  CHECK(all["splits"].size() == 1);
  CHECK(step_of(saved) == Approx(all["splits"][0]["step_time"]["seconds"].get<double>()).epsilon(1e-12));
  const CommandResult run = testing::orrery({"run", saved, "--steps", "2", "--no-out", "--json"});
  INFO(run.err);
  REQUIRE(run.code == 0);
  const json report = json::parse(run.out);
  CHECK(report["ranks"] == 2);
  CHECK(report["loss"].size() == 2);
}

TEST_CASE("blocks with ways of their own train as on one device") {
  const TemporaryFolder folder;
  const json all = search_of({"gpt2-tiny", "--cluster", "host_pcie", "--devices", "2", "--batch", "16", "--sequence",
                              "256", "--dtype", "f32", "--reserve", "90", "--no-offload"});
  const auto loss_of = [&](const std::string& strategy, std::int64_t microbatches, const std::string& recompute) {
    const std::string scenario = folder.file("run.yaml", scenario_of(all, strategy, microbatches, recompute));
    const CommandResult run = testing::orrery({"run", scenario, "--steps", "3", "--no-out", "--json"});
    INFO(run.err);
    REQUIRE(run.code == 0);
    return json::parse(run.out)["loss"].get<std::vector<double>>();
  };
  int layered = 0;
  for (const json& s : all["splits"]) {
    if (s["strategy"].get<std::string>().find("layers: [{") == std::string::npos) continue;
    ++layered;
    INFO(s["strategy"]);
    const std::vector<double> split = loss_of(s["strategy"], s["microbatches"], s["recompute"]);
    const std::vector<double> single = loss_of("{single: {}}", s["microbatches"], "none");
    REQUIRE(split.size() == 3);
    for (std::size_t i = 0; i < split.size(); ++i) CHECK(split[i] == Approx(single[i]).epsilon(1e-5));
  }
  CHECK(layered > 0);
}

TEST_CASE("reports tell how busy each stage is, and what it holds") {
  for (const auto& [scenario, count] : {std::pair{"1f1b", 0}, {"zb-v", 0}, {"single", 1}, {"layerwise", 2}}) {
    INFO(scenario);
    const json report = report_of(scenario);
    if (count > 0) CHECK(report["stages"].size() == std::size_t(count));
    CHECK((count == 1) == (report["stages"].size() == 1));
    double most = 0;
    for (const json& s : report["stages"]) {
      CHECK(s["busy_seconds"].get<double>() > 0);
      CHECK(s["busy_seconds"].get<double>() <= report["step_time"]["seconds"].get<double>() * (1 + 1e-9));
      most = std::max(most, s["peak_bytes"].get<double>());
    }
    CHECK(most == report["peak_memory"]["bytes"].get<double>());
  }
}
