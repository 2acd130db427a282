// SPDX-License-Identifier: Apache-2.0
// Command lines as a user types them: help, exit codes, messages, JSON fields.
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "hw_models/scales.hpp"
#include "sim/base/table.hpp"
#include "sim/timeline/trace_file.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

const std::vector<std::string> kTiny{"--model", "gpt2-tiny", "--set",
                                     "workload={train: {batch: 1, sequence: 16, steps: 3}}"};

CommandResult tiny(const std::string& command, std::vector<std::string> more = {}) {
  std::vector<std::string> all{command};
  all.insert(all.end(), kTiny.begin(), kTiny.end());
  all.insert(all.end(), more.begin(), more.end());
  return orrery::testing::orrery(all);
}

std::vector<double> doubles_of(const std::string& npy) {
  constexpr std::size_t kHeader = 128;
  const std::string bytes = read_file(npy);
  REQUIRE(bytes.size() > kHeader);
  std::vector<double> out((bytes.size() - kHeader) / sizeof(double));
  std::memcpy(out.data(), bytes.data() + kHeader, out.size() * sizeof(double));
  return out;
}

json parsed(const CommandResult& r) {
  INFO(r.err);
  REQUIRE(r.code == 0);
  return json::parse(r.out);
}

}  // namespace

TEST_CASE("every command explains itself") {
  Commands commands;
  add_commands(commands);
  for (const auto& c : commands) {
    std::vector<std::string> words;
    const std::string name{c->name()};
    if (const auto space = name.find(' '); space != std::string::npos)
      words = {name.substr(0, space), name.substr(space + 1)};
    else
      words = {name};
    words.emplace_back("--help");
    const CommandResult r = orrery::testing::orrery(words);
    INFO(name);
    CHECK(r.code == 0);
    CHECK_THAT(r.out, Catch::StartsWith("orrery " + name + ": "));
    for (const Flag& f : c->flags()) CHECK_THAT(r.out, Catch::Contains(f.name));
    CHECK(r.out.ends_with('\n'));
    std::istringstream lines{r.out};
    for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 120);
  }
}

TEST_CASE("exit codes tell wrong input from what is missing") {
  using orrery::testing::orrery;
  CHECK(orrery({}).code == 2);
  CHECK(orrery({"--help"}).code == 0);
  CHECK(orrery({"simulat"}).code == 2);
  for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"}) unsetenv(name);
  CHECK(orrery({"gui"}).code == 4);  // no viewer, or no display
  CHECK(orrery({"run", "llama3_8b_h100"}).code == 4);
  CHECK(tiny("run", {"--device", "cuda"}).code == 4);
  CHECK(tiny("run", {"--device", "cuda", "--activities", "--tf32"}).code == 4);
  CHECK(tiny("run", {"--tf32"}).err == "orrery: option --tf32 is for the device cuda\n  hint: add --device cuda\n");
  CHECK(tiny("run", {"--activities"}).code == 2);
  CHECK(tiny("run", {"--device", "gpu"}).code == 2);
  CHECK(tiny("simulate", {"--trace", "/dev/null/x.orrery", "--no-out"}).code == 3);
  CHECK(tiny("simulate", {"--trace", "x.txt", "--no-out"}).code == 2);
}

TEST_CASE("wrong words are answered with the nearest right ones") {
  using orrery::testing::orrery;
  CHECK_THAT(orrery({"simulatee"}).err,
             Catch::StartsWith("orrery: unknown command 'simulatee'; did you mean 'simulate'?"));
  CHECK_THAT(
      orrery({"simulate", "--tracee", "x"}).err,
      Catch::StartsWith("orrery: unknown option '--tracee' of 'orrery simulate'\n  hint: did you mean '--trace'?"));
  CHECK_THAT(orrery({"list", "modls"}).err, Catch::StartsWith("orrery: unknown kind 'modls'; did you mean 'models'?"));
  CHECK_THAT(orrery({"model", "shw"}).err, Catch::StartsWith("orrery: unknown command 'model shw'"));
  CHECK_THAT(orrery({"simulate", "gpt2_tiny_trai"}).err, Catch::Contains("did you mean 'gpt2_tiny_train'?"));
  CHECK(orrery({"compare", "a"}).err ==
        "orrery: 'orrery compare' needs REFERENCE CANDIDATE, given is only 'a'\n"
        "  hint: usage: orrery compare REFERENCE CANDIDATE\n");
  CHECK_THAT(orrery({"list"}).err,
             Catch::StartsWith("orrery: 'orrery list' needs KIND\n  hint: KIND is one of strategies, models, "));
  CHECK(orrery({"list", "models", "x"}).err == "orrery: unexpected argument 'x'\n  hint: usage: orrery list KIND\n");
  CHECK(orrery({"simulate", "--trace"}).err == "orrery: option --trace needs a value: FILE\n");
  CHECK(orrery({"simulate", "--fail=1"}).err == "orrery: option --fail takes no value\n");
  CHECK(orrery({"--json", "list", "models"}).err ==
        "orrery: '--json' stands before the command\n"
        "  hint: options come behind it: orrery COMMAND [options] [arguments]\n");
}

TEST_CASE("simulate has the fields that others read") {
  const json r = parsed(tiny("simulate", {"--json", "--no-out"}));
  for (const char* field :
       {"schema_version", "step_time", "tokens_per_second", "mfu", "peak_memory", "by_class", "exposed_communication",
        "bubble", "ops", "ranks", "rank_classes", "wall_seconds", "calibrated", "extrapolated"})
    CHECK(r.contains(field));
  for (const char* field : {"seconds", "low", "high"}) CHECK(r["step_time"].contains(field));
  for (const char* field : {"bytes", "capacity", "fits", "rank", "op"}) CHECK(r["peak_memory"].contains(field));
  CHECK(r["step_time"]["low"] < r["step_time"]["seconds"]);
  CHECK(r["step_time"]["seconds"] < r["step_time"]["high"]);
  double sum = 0;
  for (const auto& [name, seconds] : r["by_class"].items()) sum += seconds.get<double>();
  CHECK(sum == Approx(r["step_time"]["seconds"].get<double>()).epsilon(1e-9));
}

TEST_CASE("run has the same fields, measured, and the losses") {
  const json r = parsed(tiny("run", {"--json", "--no-out"}));
  CHECK(r["source"] == "measured");
  CHECK(r["device"] == "host");
  CHECK(r["loss"].size() == 3);
  CHECK(r["peak_memory"]["bytes"] == parsed(tiny("simulate", {"--json", "--no-out"}))["peak_memory"]["bytes"]);
}

TEST_CASE("a run on the null device keeps the order and computes nothing") {
  const json r = parsed(tiny("run", {"--json", "--no-out", "--device", "null"}));
  CHECK(r["device"] == "null");
  CHECK(r["ops"] == parsed(tiny("simulate", {"--json", "--no-out"}))["ops"]);
}

TEST_CASE("what does not fit is an answer, and a failure when asked for") {
  const std::vector<std::string> large{
      "simulate", "--model",  "gpt3-175b", "--cluster",
      "dgx_h100", "--no-out", "--set",     "workload={generate: {prompt: 8, tokens: 2, dtype: bf16}}"};
  const CommandResult r = orrery::testing::orrery(large);
  CHECK(r.code == 0);
  CHECK_THAT(r.out, Catch::Contains("does not fit"));
  std::vector<std::string> failing = large;
  failing.emplace_back("--fail");
  CHECK(orrery::testing::orrery(failing).code == 1);
}

TEST_CASE("a disk that is too small is no fit either") {
  // Weights, gradients and moments of 6.3 M parameters, 12 to 16 bytes each, are 76 to 101 MB.
  const auto on_disk = [](const std::string& size) {
    return orrery::testing::orrery({"simulate", "zero-infinity", "--no-out", "--fail", "--set",
                                    "cluster={device: host, device_memory: 256 MiB, host: {memory: 2 GiB}, host_link: "
                                    "{bandwidth: 2 GB/s, latency: "
                                    "20 us}, disk: {size: " +
                                        size + ", bandwidth: 800 MB/s, latency: 100 us}}"});
  };
  CHECK(on_disk("4 GB").code == 0);
  const CommandResult small = on_disk("20 MB");
  CHECK(small.code == 1);
  CHECK_THAT(small.out, Catch::Contains("peak on disk") && Catch::Contains("does not fit"));
}

TEST_CASE("twice the memory bandwidth makes decoding faster, and sensitivity agrees") {
  const std::vector<std::string> decode{"--model",   "llama-3-8b",
                                        "--cluster", "dgx_h100",
                                        "--set",     "workload={generate: {prompt: 8, tokens: 2, dtype: bf16}}",
                                        "--json"};
  std::vector<std::string> what_if{"simulate", "--what-if", "memory.bandwidth=x2", "--no-out"},
      sensitivity{"sensitivity"};
  what_if.insert(what_if.end(), decode.begin(), decode.end());
  sensitivity.insert(sensitivity.end(), decode.begin(), decode.end());
  CHECK(parsed(orrery::testing::orrery(what_if))["what_if"][0]["speed_up"] > 1.5);
  const json rows = parsed(orrery::testing::orrery(sensitivity))["parameters"];
  CHECK(rows.size() == knobs().size());
  CHECK(rows[0]["name"] == "memory.bandwidth");
  CHECK(rows[0]["elasticity"] < -0.5);
}

TEST_CASE("a run directory holds scenario, command, report and timeline") {
  const TemporaryFolder folder;
  const CommandResult r = tiny("simulate", {"--out", folder / "run"});
  REQUIRE(r.code == 0);
  const std::string canonical = read_file(folder / "run/resolved.json");
  CHECK(json::parse(canonical)["workload"]["train"]["batch"] == 1);
  CHECK_THAT(read_file(folder / "run/command.txt"),
             Catch::StartsWith("orrery simulate --model gpt2-tiny --set 'workload={train:"));
  CHECK(json::parse(read_file(folder / "run/report.json"))["source"] == "predicted");
  CHECK(read_trace(folder / "run/timeline.orrery").timeline.spans.size() > 100);
  const CommandResult again = orrery::testing::orrery({"simulate", folder / "run/resolved.yaml", "--json", "--no-out"});
  CHECK(parsed(again)["step_time"] == json::parse(read_file(folder / "run/report.json"))["step_time"]);
}

TEST_CASE("a timeline is converted, shown and compared") {
  const TemporaryFolder folder;
  REQUIRE(tiny("simulate", {"--no-out", "--trace", folder / "p.orrery"}).code == 0);
  REQUIRE(tiny("run", {"--no-out", "--trace", folder / "m.orrery"}).code == 0);
  using orrery::testing::orrery;
  CHECK(orrery({"trace", "convert", folder / "p.orrery", folder / "p.pftrace"}).code == 0);
  CHECK(std::filesystem::file_size(folder / "p.pftrace") > 1000);
  CHECK(parsed(orrery({"trace", "info", folder / "p.orrery", "--json"}))["instances"] == 3);
  const json c = parsed(orrery({"compare", folder / "m.orrery", folder / "p.orrery", "--json"}));
  CHECK(c["joined"] == true);
  CHECK(c["only_reference"]["spans"] == 0);
  CHECK(orrery({"trace", "info", folder.file("bad.orrery", "no trace")}).code == 2);
}

TEST_CASE("a timeline is compared with a trace of another program, and with --strict only with one without repairs") {
  const TemporaryFolder folder;
  REQUIRE(tiny("simulate", {"--no-out", "--trace", folder / "p.orrery"}).code == 0);
  using orrery::testing::orrery;
  const std::string kernel = R"({"ph": "X", "cat": "kernel", "name": "sgemm", "pid": 0, "tid": 7, "ts": 1)";
  const std::string whole = folder.file("whole.json", R"({"traceEvents": [)" + kernel + R"(, "dur": 5}]})");
  const std::string odd = folder.file("odd.json", R"({"traceEvents": [)" + kernel + R"(}]})");
  const json c = parsed(orrery({"compare", folder / "p.orrery", whole, "--json", "--strict"}));
  std::int64_t pairs = 0;
  for (const auto& [tier, count] : c["matching"]["pairs"].items()) pairs += count.get<std::int64_t>();
  CHECK(c["matching"]["pairs"].size() == 4);
  // The kernel of 5 us has a partner or has none.
  CHECK(double(pairs) * 5e-6 + c["matching"]["unmatched_candidate"].get<double>() == Approx(5e-6));
  CHECK(c["repairs_of_candidate"].empty());
  CHECK(parsed(orrery({"compare", folder / "p.orrery", odd, "--json"}))["repairs_of_candidate"] ==
        json{{"have no duration and are drawn empty", 1}});
  const CommandResult refused = orrery({"compare", folder / "p.orrery", odd, "--strict"});
  CHECK(refused.code == 2);
  CHECK(refused.err == "orrery: " + odd +
                           ": 1 events have no duration and are drawn empty\n"
                           "  hint: without --strict such traces are compared too\n");
}

TEST_CASE("logits and loss of given tokens agree with each other") {
  const TemporaryFolder folder;
  const auto evaluate = [&](const std::string& dtype) {
    return parsed(orrery::testing::orrery({"run", "--model", "gpt2-tiny", "--tokens", "5,6,7,8", "--logits",
                                           folder / "out.npy", "--loss", "--json", "--no-out", "--set",
                                           "workload={infer: {steps: 1, dtype: " + dtype + "}}"}));
  };
  const double wide = evaluate("f64")["loss"][0];
  CHECK(std::filesystem::file_size(folder / "out.npy") == 128 + 4 * 4096 * 8);
  CHECK(evaluate("f32")["loss"][0].get<double>() == Approx(wide).epsilon(1e-4));
  CHECK(std::filesystem::file_size(folder / "out.npy") == 128 + 4 * 4096 * 4);
  CHECK(orrery::testing::orrery({"run", "--model", "gpt2-tiny", "--tokens", "5,9999"}).code == 2);
}

// golden/logits.npy: by PyTorch 1.13 in float64, see golden_logits.py beside it. NumPy's header has 128 bytes here.
TEST_CASE("logits are those of PyTorch") {
  const TemporaryFolder folder;
  const std::string scenario = ORRERY_SOURCE_DIR "/scenarios/llama_tiny_generate";
  const json of_text = parsed(
      orrery::testing::orrery({"run", scenario, "--text", "Alice was not", "--logits", folder / "out.npy", "--loss",
                               "--json", "--no-out", "--set", "workload={infer: {steps: 1, dtype: f64}}"}));
  CHECK(of_text["loss"][0].get<double>() == Approx(0.2785544113180118).epsilon(1e-12));
  const std::vector<double> theirs = doubles_of(scenario + "/golden/logits.npy"), ours = doubles_of(folder / "out.npy");
  REQUIRE(theirs.size() == 13 * 256);
  REQUIRE(ours.size() == theirs.size());
  const double largest = std::abs(
      *std::max_element(theirs.begin(), theirs.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
  for (std::size_t i = 0; i < ours.size(); ++i) REQUIRE(std::abs(ours[i] - theirs[i]) <= 1e-12 * largest);
}

TEST_CASE("saved weights are read back") {
  const TemporaryFolder folder;
  REQUIRE(tiny("run", {"--save", folder / "w.safetensors", "--no-out"}).code == 0);
  const auto first_loss = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--json", "--no-out", "--steps", "1"});
    return parsed(tiny("run", more))["loss"][0].get<double>();
  };
  CHECK(first_loss({"--weights", folder / "w.safetensors"}) != first_loss({}));
  CHECK(orrery::testing::orrery({"run", "--model", "llama-tiny", "--weights", folder / "w.safetensors"}).code == 2);
}

TEST_CASE("lists have a name and a summary for each entry") {
  for (const char* kind : {"strategies", "models", "clusters", "devices", "scenarios", "benchmarks"}) {
    const json rows = parsed(orrery::testing::orrery({"list", kind, "--json"}));
    INFO(kind);
    CHECK(rows.size() > 0);
    for (const json& row : rows) CHECK((row.contains("name") && !row["summary"].get<std::string>().empty()));
  }
  std::istringstream lines{orrery::testing::orrery({"list", "scenarios"}).out};
  for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 120);
}

TEST_CASE("the origin of each value is shown") {
  const CommandResult r =
      orrery::testing::orrery({"config", "show", "gpt2_tiny_train", "--origin", "--set", "workload.train.batch=4"},
                              {{"ORRERY_WORKLOAD__TRAIN__SEED", "9"}});
  // What the line of a path says after the path, its columns one space apart.
  const auto line_of = [&](const std::string& path) {
    std::istringstream lines{r.out};
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words{line};
      std::string first, found;
      words >> first;
      if (first != path) continue;
      for (std::string word; words >> word;) found += found.empty() ? word : " " + word;
      return found;
    }
    return std::string{"no such line"};
  };
  CHECK(line_of("workload.train.batch") == "4 --set");
  CHECK(line_of("workload.train.seed") == "9 ORRERY_WORKLOAD__TRAIN__SEED");
  CHECK(line_of("workload.train.microbatches") == "1 default");
}

TEST_CASE("the schema, explanations and completion come from the declarations") {
  using orrery::testing::orrery;
  const json schema = parsed(orrery({"config", "schema"}));
  CHECK(schema["properties"]["workload"]["properties"]["train"]["properties"]["batch"]["type"] == "integer");
  CHECK_THAT(orrery({"config", "explain", "workload.train.batch"}).out,
             Catch::Contains("samples per step over all ranks"));
  CHECK_THAT(
      orrery({"config", "explain", "workload.train.bacth"}).err,
      Catch::StartsWith("orrery: unknown key 'workload.train.bacth'; did you mean 'workload.train.batch'? known keys: "
                        "workload.train.batch, workload.train.microbatches, ") &&
          !Catch::Contains("workload.serve"));
  CHECK_THAT(
      orrery({"config", "explain", "strategy.zero1.bucket"}).out,
      Catch::Contains("strategy[].zero1.bucket") && Catch::Contains("bytes of gradients that are summed together"));
  CHECK(orrery({"config", "explain", "strategy[].zero1.bucket"}).out ==
        orrery({"config", "explain", "strategy.zero1.bucket"}).out);
  CHECK_THAT(orrery({"config", "explain", "cluster.nic"}).out, Catch::Contains("cluster.nic.bandwidth"));
  // A name alone: where it is, and not where it is in what others hold.
  CHECK_THAT(orrery({"config", "explain", "mesh"}).out,
             Catch::Contains("strategy[].parallel.mesh") && !Catch::Contains("parallel.layers"));
  for (const char* key : {"workload", "strategy", "cluster"}) {
    std::istringstream lines{orrery({"config", "explain", key}).out};
    for (std::string line; std::getline(lines, line);) CHECK(display_width(line) <= 120);
  }
  CHECK_THAT(orrery({"completion", "bash"}).out, Catch::Contains("--what-if"));
  CHECK(orrery({"completion", "zsh"}).code == 2);
  CHECK(orrery({"completion"}).err == "orrery: 'orrery completion' needs SHELL\n  hint: SHELL is one of bash\n");
  const std::string script = orrery({"completion", "bash"}).out;
  CHECK_THAT(script, Catch::Contains("choices='show import'") && Catch::Contains("choices='info convert render'"));
  CHECK_THAT(script, Catch::Contains("choices='strategies models clusters devices profiles scenarios "));
  CHECK_THAT(orrery({"version"}).out, Catch::StartsWith("orrery 0.") && Catch::Contains("\n  scenarios   /"));
}

TEST_CASE("a step is drawn: a pipeline by its schedule, any other by its streams") {
  using orrery::testing::orrery;
  // Two stages, four microbatches, F = B = W: one of 13 forward passes is idle on each stage (zb-h1).
  const auto picture = orrery({"plan", "zb-h1", "--show", "schedule", "--costs", "1,1,1", "--width", "80"});
  CHECK_THAT(picture.out, Catch::StartsWith("zb-h1: 2 stages, 4 microbatches; makespan 13, bubble 7.7 %, peak 2\n"));
  const auto priced = orrery({"plan", "1f1b", "--show", "schedule"});
  CHECK_THAT(priced.out, Catch::Contains("a chunk: forward ") && Catch::Contains("stage 1  "));
  CHECK_THAT(orrery({"plan", "ddp", "--show", "schedule"}).out, Catch::Contains("rank 0 compute"));
  CHECK(orrery({"plan", "ddp", "--show"}).out == orrery({"plan", "ddp", "--show", "schedule"}).out);
  CHECK(orrery({"plan", "zb-h1", "--show", "--costs", "1,1,1", "--width", "80"}).out == picture.out);
  CHECK_THAT(orrery({"plan", "ddp", "--show", "schedule", "--costs", "1,1,1"}).err,
             Catch::Contains("the scenario has no pipeline"));
  CHECK_THAT(orrery({"plan", "1f1b", "--show", "schedule", "--costs", "1,x"}).err,
             Catch::Contains("option --costs is '1,x'") && Catch::Contains("such as 1,1,1,0.1"));
  CHECK(orrery({"plan", "1f1b", "--costs", "1,1,1"}).code == 2);
}

TEST_CASE("published results stand beside ours") {
  using orrery::testing::orrery;
  const json all = parsed(orrery({"reproduce", "baichuan-seed", "--json"}));  // the shortest one
  REQUIRE(!all["claims"].empty());
  for (const char* field : {"name", "source", "paper", "ours", "unit", "within", "holds", "calibrated", "note"})
    CHECK(all["claims"][0].contains(field));
  CHECK_THAT(orrery({"reproduce"}).err,
             Catch::Contains("give ring-self-attention, optimus, amp, galvatron, galvatron-bmw, ") &&
                 Catch::Contains("or --all"));
  CHECK(orrery({"reproduce", "optimos"}).code == 2);
}

TEST_CASE("colour is for terminals, unless it is asked for") {
  CHECK(tiny("simulate", {"--no-out"}).out.find('\x1b') == std::string::npos);
  CHECK(tiny("simulate", {"--no-out", "--color", "always"}).out.find('\x1b') != std::string::npos);
  CHECK(tiny("simulate", {"--no-out", "--color=sometimes"}).code == 2);
}

TEST_CASE("validate refuses too few rounds, and devices that this computer has not") {
  using orrery::testing::orrery;
  CHECK(orrery({"validate", "gpt2_tiny_train", "--repeats", "4"}).err ==
        "orrery: option --repeats is '4'\n  hint: give an integer of at least 5\n");
  CHECK(orrery({"validate", "llama3_8b_h100"}).code == 4);
  CHECK(orrery({"validate", "--max-error", "x"}).code == 2);
  CHECK_THAT(orrery({"validate", "--grid", "none.yaml"}).err, Catch::Contains("there is no grid 'none.yaml'"));
  CHECK(orrery({"validate", "--grid", "parallel", "gpt2_tiny_train"}).code == 2);
}
