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
#include "tests/sweep_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

/// What simulate says of one point, by the same values.
json simulated(const std::string& scenario, const std::vector<std::string>& sets) {
  std::vector<std::string> words{"simulate", scenario, "--no-out", "--json"};
  for (const std::string& s : sets) words.insert(words.end(), {"--set", s});
  return parsed(orrery::testing::orrery(words));
}

}  // namespace

TEST_CASE("each point of a sweep is what simulate says of it") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
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
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
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

TEST_CASE("what is set below a named cluster or model changes a copy of it") {
  const TemporaryFolder folder;
  const auto simulate = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"simulate", "--no-out", "--json", "--model", "gpt2-tiny"});
    return parsed(orrery::testing::orrery(words));
  };
  const json one = simulate({"--cluster", "dgx_h100", "--set", "model.n_layer=1"});
  const json two = simulate({"--set", "cluster.nodes=2", "--cluster", "dgx_h100", "--set", "model.n_layer=2"});
  CHECK(one["ops"] < two["ops"]);
  CHECK(two["machine"] != one["machine"]);
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
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
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

namespace {

std::vector<std::string> hundred_points(const std::string& scenario, const std::string& jobs, const std::string& out) {
  return {"sweep", scenario, "--sweep", "workload.train.batch=lin(4,400,100)", "--jobs", jobs, "--out", out};
}

}  // namespace

TEST_CASE("a sweep that was killed goes on with what is missing") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario), out = folder / "out";
  const std::vector<std::string> words = hundred_points(scenario, "1", out);
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

TEST_CASE("the first Ctrl-C finishes what is in work, and the rest is done later") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario), out = folder / "out";
  const std::vector<std::string> words = hundred_points(scenario, "2", out);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(orrery::testing::orrery(words).code);
  const auto has_begun = [&] {
    const std::vector<std::string> shards = shards_in(out + "/shards");
    return !shards.empty() && parse_shard(read_file(shards.front())).records.size() > 3;
  };
  while (!has_begun()) std::this_thread::sleep_for(std::chrono::milliseconds{1});
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  const std::size_t before = ids_in(out).size();
  CHECK(before < 100);
  CHECK(read_csv(out + "/results.csv").num_rows() == 100);
  std::vector<std::string> again = words;
  again.insert(again.end(), {"--resume", "--json"});
  CHECK(parsed(orrery::testing::orrery(again))["done"] == 100);
  CHECK(ids_in(out).size() == 100);
}

TEST_CASE("workers elsewhere find a sweep by its folder and compute the same") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
  const std::vector<std::string> axis{scenario, "--sweep", "workload.train.batch=lin(4,80,20)", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), axis.begin(), axis.end());
    return swept(more);
  };
  const std::vector<std::string> ends = in_processes(3, [&](int process) {
    if (process > 0) {
      const CommandResult r = orrery::testing::orrery({"sweep-worker", folder / "far", "--jobs", "1"});
      return r.code == 0 ? r.out : r.err;
    }
    const CommandResult r = with({"--out", folder / "far", "--listen", "127.0.0.1:0", "--jobs", "0"});
    write_file_atomically(folder / "far.json", r.out);
    return std::to_string(r.code);
  });
  CHECK(ends[0] == "0");
  int done = 0;
  for (const int worker : {1, 2}) {
    CHECK_THAT(ends[static_cast<std::size_t>(worker)], Catch::Contains(" done\n"));
    done += std::stoi(ends[static_cast<std::size_t>(worker)]);
  }
  CHECK(done >= 20);  // the last ones may be computed twice
  const json far = json::parse(read_file(folder / "far.json")), here = parsed(with({"--out", folder / "here"}));
  REQUIRE(far["points"].size() == 20);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(far["points"][i]["id"] == here["points"][i]["id"]);
    CHECK(far["points"][i]["result"] == here["points"][i]["result"]);
  }
}

TEST_CASE("a worker whose parameters are other ones leaves, and the sweep goes on") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
  const std::string known = read_file(std::string{ORRERY_SOURCE_DIR} + "/hw_models/params/h100_sxm.yaml");
  std::filesystem::create_directories(folder / "home/params");
  write_file_atomically(folder / "home/params/h100_sxm.yaml", known + "# of another day\n");
  const std::vector<std::string> ends = in_processes(2, [&](int process) {
    const CommandResult r = process == 0 ? swept({scenario, "--sweep", "workload.train.batch=lin(4,1600,400)", "--out",
                                                  folder / "out", "--listen", "127.0.0.1:0", "--jobs", "1"})
                                         : orrery::testing::orrery({"sweep-worker", folder / "out", "--jobs", "1"},
                                                                   {{"ORRERY_HOME", folder / "home"}});
    return std::to_string(r.code) + r.err;
  });
  CHECK_THAT(ends[0],
             Catch::StartsWith("0") && Catch::Contains(" cannot take part: files or parameters here are other"));
  CHECK_THAT(ends[1], Catch::StartsWith("3") && Catch::Contains("files or parameters here are other ones"));
}

TEST_CASE("parts of a sweep put together are the sweep") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
  const auto part = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {scenario, "--sweep", "workload.train.batch=4,6,8,12,16,20,24,28", "--json"});
    return swept(more);
  };
  const json whole = parsed(part({"--out", folder / "whole"}));
  std::size_t points = 0;
  for (const char* i : {"0/3", "1/3", "2/3"}) {
    points += parsed(part({"--shard", i, "--out", folder / "shared"}))["points"].size();
    (void)part({"--shard", i, "--out", folder / ("own" + std::string{i[0]})});
  }
  CHECK(points == 8);
  const CommandResult shared = swept({"--merge", folder / "shared", "--json"});
  const CommandResult own =
      swept({"--merge", folder / "own0", folder / "own1", folder / "own2", "--json", "--out", folder / "all"});
  CHECK(shared.code == 5);  // a batch of 6 makes no sense
  CHECK(own.code == 5);
  for (const json& merged : {parsed(shared), parsed(own), parsed(swept({"--merge", folder / "all", "--json"}))}) {
    REQUIRE(merged["points"].size() == 8);
    CHECK(merged["done"] == 7);
    CHECK(merged["best"] == whole["best"]);
    for (std::size_t i = 0; i < 8; ++i)
      CHECK(merged["points"][i].value("result", json{}) == whole["points"][i].value("result", json{}));
  }
  const CommandResult one = swept({"--merge", folder / "own0", "--json"});
  CHECK(one.code == 5);
  CHECK(parsed(one)["missing"].get<int>() > 0);
}

TEST_CASE("results that differ for one point are told when parts are put together") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
  CHECK(swept({scenario, "--sweep", "workload.train.batch=4", "--out", folder / "a"}).code == 0);
  SweepRecord r = parse_shard(read_file(shards_in(folder / "a/shards").at(0))).records.at(0);
  ShardFile{folder / "a/shards"}.append(r);  // the same again does no harm
  CHECK(swept({"--merge", folder / "a"}).code == 0);
  r.result["tokens_per_second"] = 1;
  ShardFile{folder / "a/shards"}.append(r);
  const CommandResult merged = swept({"--merge", folder / "a"});
  CHECK(merged.code == 5);
  CHECK_THAT(merged.err, Catch::Contains("there are several results for point " + r.id.substr(0, 8)));
}

TEST_CASE("a script for Slurm runs the sweep in one allocation or in an array") {
  const TemporaryFolder folder;
  const auto script = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"ddp", "--sweep", "workload.train.batch=log2(4, 64)", "--launcher", "slurm", "--dry-run",
                               "--out", folder / "out"});
    const CommandResult r = swept(more);
    CHECK(r.code == 0);
    return r.out;
  };
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string here = std::filesystem::current_path().string(), out = folder / "out";
  const std::string sweep = program + " sweep ddp --sweep 'workload.train.batch=log2(4, 64)' --resume --out " + out;
  CHECK(script({"--nodes", "4", "--time", "2:00:00"}) ==
        "#!/bin/bash\n#SBATCH --job-name=orrery-sweep\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n"
        "#SBATCH --exclusive\n#SBATCH --time=2:00:00\n#SBATCH --requeue\n#SBATCH --open-mode=append\ncd " +
            here + " || exit 3\n# The sweep gives points to a worker on each node; all find it by its folder.\nrm -f " +
            out + "/address\n" + sweep +
            " --jobs 0 --listen \"$(hostname):0\" &\nsweep=$!\nsrun --kill-on-bad-exit=0 " + program +
            " sweep-worker " + out + "\nwait \"$sweep\"\n");
  CHECK_THAT(script({"--array", "32"}),
             Catch::Contains("#SBATCH --array=0-31\n") &&
                 Catch::EndsWith("exec " + sweep + " --shard \"$SLURM_ARRAY_TASK_ID/32\"\n"));
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("a dry run lists points, and lines come as points end") {
  const TemporaryFolder folder;
  const std::string scenario = folder.file("s.yaml", kSweptScenario);
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
  CHECK(refusal({"ddp", "--sweep", "a=1", "--shard", "3/3"}) ==
        "orrery: option --shard is '3/3'\n  hint: give I/N with I from 0 to N-1\n");
  CHECK(refusal({"ddp", "--sweep", "a=1", "--jobs", "0"}) ==
        "orrery: nobody computes points\n  hint: give --listen, or at least one of --jobs\n");
  CHECK(refusal({"--merge"}) == "orrery: there is nothing to merge\n  hint: name folders of sweeps\n");
  CHECK(orrery::testing::orrery({"sweep-worker", "127.0.0.1:1"}).err ==
        "orrery: the address alone does not let a worker in\n  hint: give --token FILE\n");
  CHECK(refusal({"ddp", "--sweep", "a=1", "--retry"}) == "orrery: --retry is for --resume\n");
}
