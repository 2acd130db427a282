// SPDX-License-Identifier: Apache-2.0
// `orrery search --planner colossal-auto`: costs that are those of plans, plans that are as fast as any uniform one,
// and scenarios that are simulated and executed.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/app/sharding_search.hpp"
#include "sim/app/training_request.hpp"
#include "sim/model/load.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

constexpr const char* kModel =
    R"({"model_type": "gpt2", "n_embd": 1024, "n_layer": 6, "n_head": 16, "n_positions": 512, "vocab_size": 8192})";

/// Two nodes of two A100.
std::string pairs(const std::string& memory) {
  return fmt::format(
      "nodes: 2\ndevices_per_node: 2\ndevice: a100_80g\ndevice_memory: {}\nhost: {{memory: 64 GiB, cores: 8}}\n"
      "device_link: {{bandwidth: 211 GB/s, latency: 1.5 us}}\nhost_link: {{bandwidth: 14 GB/s, latency: 2 us}}\n"
      "nic: {{bandwidth: 14 GB/s, latency: 5 us}}\n",
      memory);
}

json json_of(std::vector<std::string> arguments, int code = 0) {
  arguments.emplace_back("--json");
  const CommandResult r = testing::orrery(arguments);
  INFO(r.err);
  REQUIRE(r.code == code);
  return json::parse(r.out);
}

json planned(const std::string& model, const std::string& cluster, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"search", model,     "--planner", "colossal-auto", "--cluster",
                                     cluster,  "--batch", "16",        "--sequence",    "512"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return json_of(std::move(arguments));
}

json simulated(const TemporaryFolder& folder, const json& plan, const std::string& model, const std::string& cluster,
               const std::string& strategy, const std::string& recompute) {
  const std::string text = fmt::format(
      "model: {}\ncluster: {}\nstrategy: [{}]\n"
      "workload: {{train: {{batch: 16, sequence: 512, dtype: {}, recompute: {}}}}}\n",
      model, cluster, strategy, plan["dtype"].get<std::string>(), recompute);
  return json_of({"simulate", folder.file("one.yaml", text), "--no-out"});
}

}  // namespace

TEST_CASE("a sharded plan is at least as fast as replicas, stripes, squares and both, with room and without") {
  const TemporaryFolder folder;
  const std::string model = folder.file("model.json", kModel);
  for (const char* memory : {"40 GB", "2300 MB", "1100 MB"}) {
    const std::string cluster = folder.file("pairs.yaml", pairs(memory));
    const json all = planned(model, cluster, {"--reserve", "0"});
    INFO(memory << " " << all["plans"][0]["strategy"]);
    CHECK(all["mesh"]["rows"] == 2);
    CHECK(all["mesh"]["columns"] == 2);
    CHECK(all["mesh"]["axes"][0]["beta"].get<double>() > 3 * all["mesh"]["axes"][1]["beta"].get<double>());
    const json& best = all["plans"][0];
    REQUIRE(best["fits"] == true);
    const double step = best["step_time"]["seconds"];
    CHECK(best["over_timed_schedule"].get<double>() < 1.001);
    if (std::string{memory} == "1100 MB") CHECK(best["recompute"].get<std::string>().starts_with("rotor"));
    const json again = simulated(folder, all, model, cluster, best["strategy"], best["recompute"]);
    CHECK(again["step_time"]["seconds"].get<double>() == Approx(step).epsilon(1e-12));
    int fitting = 0;
    for (const char* mesh : {"dp4", "tp4", "dp2 tp2", "tp2 dp2", "row2 col2", "tp4, sequence_parallel: true",
                             "dp2 tp2, sequence_parallel: true"})
      for (const char* recompute : {"none", "selective", "full"}) {
        const json r =
            simulated(folder, all, model, cluster, fmt::format("{{parallel: {{mesh: {}}}}}", mesh), recompute);
        if (!r["peak_memory"]["fits"]) continue;
        ++fitting;
        INFO(mesh << ' ' << recompute);
        CHECK(r["step_time"]["seconds"].get<double>() > 0.9999 * step);
      }
    CHECK(fitting > 0);
  }
}

TEST_CASE("sums of costs of ops are the steps of uniform plans, where nothing overlaps") {
  const TemporaryFolder folder;
  const std::string model = folder.file("model.json", kModel), cluster = folder.file("pairs.yaml", pairs("40 GB"));
  const Environment environment{{"ORRERY_HOME", "/dev/null/none"}};
  const Wiring wiring{environment};
  const Machine machine = wiring.machine(read_cluster(read_yaml(cluster), cluster));
  TrainOptions o;
  o.batch = 16, o.sequence = 512, o.dtype = Precision::BF16;
  const Model network = load_model(model);
  const LoweredBlock block = lowered_block({network, o, *machine.cost, {2, 2}});
  REQUIRE(block.ways.size() == 6);
  for (std::size_t k = 0; k < block.ways.size(); ++k) {
    const LoweredWay& w = block.ways[k];
    const std::string options = sharded_options({w, w, w}, {2, 2}, 6);
    const json plan{{"dtype", "bf16"}};
    const json r = simulated(folder, plan, model, cluster, "{parallel: {" + options + "}}", "none");
    const double sum = sum_of(block.stack.graph, std::vector<std::size_t>(block.stack.graph.nodes.size(), k)).seconds;
    INFO(options << ": " << sum << " s of " << r["step_time"]["seconds"]);
    CHECK(sum == Approx(r["step_time"]["seconds"].get<double>()).epsilon(w.rows == kWhole ? 0.05 : 0.3));
  }
}

TEST_CASE("a plan that is saved is simulated and executed as one device would") {
  const TemporaryFolder folder;
  const std::string saved = folder / "plan.yaml";
  const json all = json_of({"search", "gpt2-tiny", "--planner", "colossal-auto", "--cluster", "host", "--devices", "4",
                            "--batch", "8", "--sequence", "32", "--dtype", "f32", "--save", saved});
  REQUIRE(all["plans"][0]["fits"] == true);
  const json run = json_of({"run", saved, "--no-out"});
  CHECK(run["ranks"] == 4);
  const json one = json_of({"run", saved, "--no-out", "--set", "strategy=[{single: {}}]"});
  CHECK(run["loss"][0].get<double>() == Approx(one["loss"][0].get<double>()).epsilon(1e-5));
}

TEST_CASE("what cannot be sharded is refused") {
  CommandResult r = testing::orrery({"search", "gpt2-tiny", "--planner", "colossal-auto", "--cluster", "host"});
  CHECK(r.code == 2);
  CHECK_THAT(r.err, Catch::Contains("one device shards nothing"));
  r = testing::orrery({"search", "t5-tiny", "--planner", "colossal-auto", "--cluster", "dgx_h100"});
  CHECK(r.code == 2);
  CHECK_THAT(r.err, Catch::Contains("t5-tiny is no stack of equal blocks, which share their way"));
  r = testing::orrery({"search", "gpt2-tiny", "--planner", "alpa"});
  CHECK(r.code == 2);
}
