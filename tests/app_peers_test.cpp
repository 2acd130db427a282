// SPDX-License-Identifier: Apache-2.0
// `orrery run --device cuda --peers`: a plan whose ranks are executed by several processes. Processes of this computer,
// whose GPUs are emulated.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "sim/timeline/trace_file.hpp"
#include "tests/app_testing.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

constexpr const char* kGpt2 = "{model_type: gpt2, n_embd: 16, n_layer: 2, n_head: 2, n_positions: 16, vocab_size: 61}";
constexpr const char* kMixtral =
    "{model_type: mixtral, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2, num_attention_heads: 4, "
    "num_key_value_heads: 2, vocab_size: 61, max_position_embeddings: 16, num_local_experts: 4, num_experts_per_tok: "
    "2, "
    "rms_norm_eps: 1e-5, tie_word_embeddings: false}";

std::vector<std::string> training(const std::string& mesh, const std::vector<std::string>& more = {}) {
  const bool experts = mesh.find("ep") != std::string::npos;
  std::vector<std::string> all{
      "run",
      "--no-out",
      "--json",
      "--device",
      "cuda",
      "--set",
      fmt::format("model={}", experts ? kMixtral : kGpt2),
      "--set",
      fmt::format("strategy=[{{parallel: {{mesh: {}}}}}]", mesh),
      "--set",
      fmt::format("workload={{train: {{batch: {}, microbatches: 2, sequence: 8, steps: 3}}}}", experts ? 8 : 4)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The document that a command prints, or its error.
std::string run_on(const EmulationOptions& options, const std::vector<std::string>& arguments) {
  const auto gpu = std::make_shared<EmulatedGpu>(options);
  const CommandResult r = orrery::testing::orrery(arguments, {}, [&] { return gpu; });
  std::int64_t left = std::int64_t(gpu->streams()) + std::int64_t(gpu->events());
  for (int d = 0; d < gpu->num_devices(); ++d) left += gpu->bytes_in_use(d);
  if (left != 0) return "something was not given back";
  return r.code == 0 ? r.out : fmt::format("exit code {}: {}", r.code, r.err);
}

std::vector<double> losses(const std::string& document) {
  INFO(document);
  return json::parse(document).at("loss").get<std::vector<double>>();
}

}  // namespace

TEST_CASE("ranks in several processes learn what they learn in one", "[cuda][peers]") {
  const auto [mesh, processes] = GENERATE(table<std::string, int>(
      {{"dp2", 2}, {"tp2", 2}, {"pp2", 2}, {"dp2 tp2", 2}, {"pp2 tp2", 4}, {"ep2", 2}, {"ep4", 2}, {"dp2 ep2", 4}}));
  INFO(mesh << " in " << processes << " processes");
  const TemporaryFolder folder;
  const auto weights = [&](const char* name) { return std::vector<std::string>{"--save", folder / name}; };
  const std::vector<double> want = losses(run_on({.devices = 4}, training(mesh, weights("one.safetensors"))));
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(processes, [&](int p) {
    std::vector<std::string> more = weights("many.safetensors");
    more.insert(more.end(), {"--peers", fmt::format("{}/{}", p, processes), "--meet", folder / "meet"});
    if (p == 0) more.insert(more.end(), {"--trace", folder / "all.orrery"});
    return run_on({.devices = 1, .seed = std::uint64_t(p), .mailbox = mailbox}, training(mesh, more));
  });
  const std::vector<double> got = losses(ends[0]);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-5));
  for (int p = 1; p < processes; ++p) CHECK(ends[p].empty());  // process 0 reports for all
  CHECK(std::filesystem::file_size(folder / "one.safetensors") ==
        std::filesystem::file_size(folder / "many.safetensors"));

  // The timeline has each rank once per op.
  const Timeline t = read_trace(folder / "all.orrery").timeline;
  std::map<std::size_t, std::size_t> spans;
  for (const Span& s : t.spans) ++spans[s.rank.index()];
  CHECK(spans.size() == std::size_t(t.num_ranks));
  CHECK(t.num_ranks >= processes);
  CHECK(t.peaks.size() >= spans.size());
}

TEST_CASE("several processes replay their steps by graphs", "[cuda][peers]") {
  const std::string mesh = GENERATE("dp2", "pp2");
  const std::vector<double> want = losses(run_on({.devices = 2}, training(mesh)));
  const TemporaryFolder folder;
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    const std::vector<std::string> more{"--graphs", "--peers", fmt::format("{}/2", p), "--meet", folder / "meet"};
    return run_on({.seed = std::uint64_t(p), .mailbox = mailbox}, training(mesh, more));
  });
  const std::vector<double> got = losses(ends[0]);
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).epsilon(1e-5));
}

TEST_CASE("several processes validate plans of their ranks together", "[cuda][peers]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", fmt::format(R"(plans:
  - name: train
    model: {0}
    cluster: dgx_h100
    strategy: [{{parallel: {{mesh: dp2}}}}]
    workload: {{train: {{batch: 2, sequence: 8}}}}
  - name: decode
    model: {0}
    cluster: dgx_h100
    strategy: [{{parallel: {{mesh: tp2}}}}]
    workload: {{generate: {{batch: 1, prompt: 4, tokens: 4}}}}
)",
                                                                kGpt2));
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    return run_on({.seed = std::uint64_t(p), .mailbox = mailbox},
                  {"validate", "--grid", grid, "--json", "--no-out", "--peers", fmt::format("{}/2", p), "--meet",
                   folder / "meet"});
  });
  INFO(ends[0]);
  const json v = json::parse(ends[0]);
  REQUIRE(v.at("plans").size() == 2);
  for (const json& p : v.at("plans")) {
    CHECK(p.at("measured") > 0);
    CHECK(p.at("peak_measured") == p.at("peak_predicted"));
  }
  CHECK(ends[1].empty());
  const CommandResult host = orrery::testing::orrery({"validate", "gpt2_tiny_train", "--peers", "0/1"});
  CHECK(host.code == exit_code::kWrongInput);
}

TEST_CASE("several processes calibrate: one rank's kernels by the first, collectives by all", "[cuda][peers]") {
  const TemporaryFolder folder;
  const auto mailbox = std::make_shared<SharedMailbox>();
  // What was measured before stands in the file of the first, so that little but collectives is left.
  const auto calibrate = [&](const EmulationOptions& options, const std::vector<std::string>& more) {
    std::vector<std::string> all{"calibrate", "--device", "cuda", "--quick",
                                 "--budget",  "600 s",    "-o",   folder / "gpu.yaml"};
    all.insert(all.end(), more.begin(), more.end());
    return run_on(options, all);
  };
  const EmulationOptions small{.memory_bytes = 256 << 20, .told_bytes = 1 << 20, .mailbox = mailbox};
  CHECK_THAT(calibrate(small, {}), !Catch::StartsWith("exit code"));
  std::filesystem::rename(folder / "gpu.measurements.tsv", folder / "gpu.measurements.tsv.part");
  const auto ends = in_processes(2, [&](int p) {
    return calibrate(small, {"--peers", fmt::format("{}/2", p), "--meet", folder / "meet"});
  });
  INFO(ends[0]);
  CHECK_THAT(ends[0], Catch::Contains("collectives") && !Catch::StartsWith("exit code"));
  CHECK(ends[1].empty());
  std::ifstream in{folder / "gpu.measurements.tsv"};
  const std::string lines{std::istreambuf_iterator<char>{in}, {}};
  CHECK_THAT(lines, Catch::Contains("over 2 ranks of as many processes"));
  const CommandResult host = orrery::testing::orrery({"calibrate", "--peers", "0/1"});
  CHECK(host.code == exit_code::kWrongInput);
}

TEST_CASE("a process that is lost during a step ends the others with one line", "[cuda][peers]") {
  const TemporaryFolder folder;
  const auto mailbox = std::make_shared<SharedMailbox>();
  const auto ends = in_processes(2, [&](int p) {
    EmulationOptions options{.mailbox = mailbox};
    if (p == 1) options.fails_at = "collective", options.fails_after = 5;
    return run_on(options, training("tp2", {"--peers", fmt::format("{}/2", p), "--meet", folder / "meet"}));
  });
  CHECK(ends[0] == "exit code 3: orrery: process 1 of 2 is gone: all of them end\n");
  CHECK(ends[1] == "exit code 3: orrery: collective: an error that the test asked for\n");
}

TEST_CASE("what several processes cannot do is refused before anything runs", "[cuda][peers]") {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& mesh, const std::vector<std::string>& more) {
    const auto mailbox = std::make_shared<SharedMailbox>();
    return in_processes(2, [&](int p) {
      std::vector<std::string> all{"--peers", fmt::format("{}/2", p), "--meet", folder / "meet"};
      all.insert(all.end(), more.begin(), more.end());
      return run_on({.mailbox = mailbox}, training(mesh, all));
    });
  };
  for (const std::string& end : refusal("ep2", {"--graphs"}))
    CHECK_THAT(end, Catch::StartsWith("exit code 2: orrery: op '") &&
                        Catch::Contains("exchanges rows whose number the host has to read"));
  CHECK_THAT(refusal("dp3", {"--set", "workload.train.batch=6"})[0],
             Catch::StartsWith("exit code 2: orrery: 2 processes cannot share 3 ranks"));
  const CommandResult alone = orrery::testing::orrery(training("dp2", {"--meet", "x"}));
  CHECK(alone.code == exit_code::kWrongInput);
  CHECK_THAT(alone.err, Catch::Contains("add --peers"));
}
