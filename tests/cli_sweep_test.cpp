// SPDX-License-Identifier: Apache-2.0
// `orrery sweep`: the same points as `orrery simulate`, exit codes, going on, and parts put together.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "sim/app/sweep/sweep_record.hpp"
#include "sim/base/csv.hpp"
#include "tests/app_testing.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

/// A small step on a cluster of two nodes; some of its meshes and batches do not go together.
constexpr const char* kScenario =
    "model: gpt2-tiny\ncluster: dgx_h100\nstrategy: [{ddp: {mesh: dp4}}]\n"
    "workload: {train: {batch: 8, sequence: 64}}\n";

CommandResult swept(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "sweep");
  return orrery::testing::orrery(arguments);
}

json parsed(const CommandResult& r) {
  INFO(r.err);
  REQUIRE_FALSE(r.out.empty());
  return json::parse(r.out);
}

/// What simulate says of one point, by the same values.
json simulated(const std::string& scenario, const std::vector<std::string>& sets) {
  std::vector<std::string> words{"simulate", scenario, "--no-out", "--json"};
  for (const std::string& s : sets) words.insert(words.end(), {"--set", s});
  return parsed(orrery::testing::orrery(words));
}

std::set<std::string> ids_in(const std::string& folder) {
  std::set<std::string> ids;
  for (const std::string& path : shards_in(folder + "/shards"))
    for (const SweepRecord& r : parse_shard(read_file(path)).records) CHECK(ids.insert(r.id).second);
  return ids;
}

}  // namespace

TEST_CASE("each point of a sweep is what simulate says of it") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kScenario);
  const CommandResult r = swept({scenario, "--sweep", "workload.train.batch=4,8", "--sweep",
                                 "cluster.device_link.bandwidth=log2(100 GB/s,400 GB/s)", "--jobs", "2", "--out",
                                 folder / "out", "--json"});
  CHECK(r.code == 0);
  const json all = parsed(r);
  REQUIRE(all["points"].size() == 6);
  CHECK(all["done"] == 6);
  double best = 0;
  for (const json& point : all["points"]) {
    const std::string batch = point["values"]["workload.train.batch"],
                      rate = point["values"]["cluster.device_link.bandwidth"];
    const json alone = simulated(scenario, {"workload.train.batch=" + batch, "cluster.device_link.bandwidth=" + rate});
    for (const char* field :
         {"step_time", "tokens_per_second", "mfu", "by_class", "bubble", "ops", "ranks", "scenario_id"})
      CHECK(point["result"][field] == alone[field]);
    CHECK(point["result"]["peak_memory"]["bytes"] == alone["peak_memory"]["bytes"]);
    best = std::max(best, alone["tokens_per_second"].get<double>());
  }
  CHECK(all["points"][all["best"].get<std::size_t>()]["result"]["tokens_per_second"] == best);
  // The table has the same rows.
  const CsvTable csv = read_csv(folder / "out/results.csv");
  REQUIRE(csv.num_rows() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(csv.row(i)["workload.train.batch"] == all["points"][i]["values"]["workload.train.batch"]);
    CHECK(csv.row(i).number("step_time.seconds") == all["points"][i]["result"]["step_time"]["seconds"].get<double>());
  }
}

TEST_CASE("nodes of a named cluster, layers of a named model and factors of hardware can be swept") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kScenario);
  const json nodes =
      parsed(swept({scenario, "--sweep", "cluster.nodes,strategy[0].ddp.mesh,workload.train.batch=1:dp8:8,2:dp16:16",
                    "--out", folder / "nodes", "--json"}));
  CHECK(nodes["points"][0]["result"]["ranks"] == 8);
  CHECK(nodes["points"][1]["result"]["ranks"] == 16);
  const json layers = parsed(swept({scenario, "--sweep", "model.n_layer=1,2", "--out", folder / "layers", "--json"}));
  CHECK(layers["points"][0]["result"]["ops"] < layers["points"][1]["result"]["ops"]);
  const json rates =
      parsed(swept({scenario, "--sweep", "link.bandwidth=x0.5,x1", "--out", folder / "rates", "--json"}));
  const json changed =
      parsed(orrery::testing::orrery({"simulate", scenario, "--no-out", "--json", "--what-if", "link.bandwidth=x0.5"}));
  CHECK(rates["points"][0]["result"]["step_time"]["seconds"] == changed["what_if"][0]["step_time"]);
  CHECK(rates["points"][1]["result"]["step_time"] == changed["step_time"]);
}

TEST_CASE("served scenarios are swept as serve predicts them") {
  const TemporaryFolder folder;
  const std::vector<std::string> few{"--set", "workload.serve.traffic.requests=30", "--no-interval", "--json"};
  std::vector<std::string> words{"serve_llama3_8b", "--sweep", "workload.serve.traffic.seed=1,2", "--out",
                                 folder / "out"};
  words.insert(words.end(), few.begin(), few.end());
  const json all = parsed(swept(words));
  std::vector<std::string> alone{"serve", "serve_llama3_8b", "--set", "workload.serve.traffic.seed=2"};
  alone.insert(alone.end(), few.begin(), few.end());
  const json one = parsed(orrery::testing::orrery(alone));
  for (const char* field : {"ttft", "tpot", "e2e", "output_tokens_per_second"})
    CHECK(all["points"][1]["result"][field] == one[field]);
}

TEST_CASE("points that make no sense are told, the others computed, and the exit code is 5") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kScenario);
  const std::vector<std::string> words{scenario, "--sweep", "workload.train.batch=4,6,8", "--out", folder / "out"};
  const CommandResult r = swept(words);
  CHECK(r.code == 5);
  CHECK_THAT(r.out, Catch::Contains("refused") && Catch::Contains("point 1 refused: ") &&
                        Catch::Contains("batch 6 is not a multiple of 4"));
  CHECK_THAT(r.out, Catch::Contains("best"));
  const CommandResult late = swept(
      {scenario, "--sweep", "workload.train.batch=4,8", "--point-timeout", "1 ns", "--out", folder / "late", "--json"});
  CHECK(late.code == 5);
  CHECK(parsed(late)["quarantined"] == 2);
  CHECK(parsed(late)["points"][0]["error"] == "not done after 1 ns");
  // What was given up is tried again when asked for.
  CHECK(swept({scenario, "--sweep", "workload.train.batch=4,8", "--resume", "--out", folder / "late"}).code == 5);
  CHECK(
      swept({scenario, "--sweep", "workload.train.batch=4,8", "--resume", "--retry", "--out", folder / "late"}).code ==
      0);
}

TEST_CASE("a sweep that was killed goes on with what is missing") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kScenario), out = folder / "out";
  const std::vector<std::string> words{"sweep",  scenario, "--sweep", "workload.train.batch=lin(4,400,100)",
                                       "--jobs", "1",      "--out",   out};
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    (void)orrery::testing::orrery(words);
    _exit(0);
  }
  const auto records = [&] {
    std::size_t n = 0;
    for (const std::string& path : shards_in(out + "/shards")) n += parse_shard(read_file(path)).records.size();
    return n;
  };
  while (records() < 5) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const std::size_t before = records();
  REQUIRE(before < 100);
  // A record that was being written.
  std::ofstream{shards_in(out + "/shards").at(0), std::ios::app} << "ORSW\x10";
  CHECK(orrery::testing::orrery(words).err ==
        "orrery: '" + out + "' holds results of a sweep\n  hint: give --resume, or another --out\n");
  std::vector<std::string> again = words;
  again.insert(again.end(), {"--resume", "--json"});
  const CommandResult r = orrery::testing::orrery(again);
  CHECK(r.code == 0);
  CHECK_THAT(r.err, Catch::Contains("the last 5 bytes of ") &&
                        Catch::Contains(std::to_string(before) + " of 100 points are done"));
  CHECK(parsed(r)["done"] == 100);
  CHECK(ids_in(out).size() == 100);  // none twice
  const std::size_t shards = shards_in(out + "/shards").size();
  CHECK(orrery::testing::orrery(again).code == 0);
  CHECK(ids_in(out).size() == 100);
  CHECK(shards_in(out + "/shards").size() == shards + 1);  // an empty one: nothing was left to do
}

TEST_CASE("a dry run lists points, and lines come as points end") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kScenario);
  const CommandResult dry = swept({scenario, "--sweep", "workload.train.batch=4,8", "--dry-run"});
  CHECK(dry.code == 0);
  CHECK_THAT(dry.out, Catch::Contains("workload.train.batch"));
  const CommandResult lines =
      swept({scenario, "--sweep", "workload.train.batch=4,8", "--jsonl", "--out", folder / "out"});
  std::istringstream in{lines.out};
  std::set<int> points;
  for (std::string line; std::getline(in, line);) points.insert(json::parse(line)["point"].get<int>());
  CHECK(points == std::set<int>{0, 1});
}

TEST_CASE("a sweep says what is wrong with what it is asked for") {
  const auto refusal = [](std::vector<std::string> words) {
    const CommandResult r = swept(std::move(words));
    CHECK(r.code == 2);
    return r.err;
  };
  CHECK(refusal({"ddp"}) == "orrery: there is nothing to sweep\n  hint: give --sweep KEY=VALUES\n");
  CHECK(refusal({"ddp", "--sweep", "a=1", "--resume"}) ==
        "orrery: --resume needs the folder to go on in\n  hint: give --out DIR\n");
  CHECK(refusal({"ddp", "--sweep", "a=1", "--sweep", "a=2"}) == "orrery: 'a' is swept twice\n");
  CHECK(refusal({"ddp", "ddp", "--sweep", "a=1"}) == "orrery: 'ddp' is named twice\n");
  CHECK(refusal({"ddp", "--sweep", "a=1", "--retry"}) == "orrery: --retry is for --resume\n");
}
