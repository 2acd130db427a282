// SPDX-License-Identifier: Apache-2.0
// `orrery run --device cuda --peers`: a plan whose ranks are executed by several processes. Processes of this computer,
// whose GPUs are emulated.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "sim/timeline/trace_file.hpp"
#include "tests/app_testing.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/forked.hpp"

using namespace orrery;
using namespace orrery::testing;
using nlohmann::json;

namespace {

std::vector<std::string> training(const std::string& mesh, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{
      "run",
      "--no-out",
      "--json",
      "--device",
      "cuda",
      "--set",
      "model={model_type: gpt2, n_embd: 16, n_layer: 2, n_head: 2, n_positions: 16, vocab_size: 61}",
      "--set",
      fmt::format("strategy=[{{parallel: {{mesh: {}}}}}]", mesh),
      "--set",
      "workload={train: {batch: 4, microbatches: 2, sequence: 8, steps: 3}}"};
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
  const auto [mesh, processes] =
      GENERATE(table<std::string, int>({{"dp2", 2}, {"tp2", 2}, {"pp2", 2}, {"dp2 tp2", 2}, {"pp2 tp2", 4}}));
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
  CHECK_THAT(refusal("dp2", {"--graphs"})[1], Catch::StartsWith("exit code 2: orrery: CUDA graphs are of one process"));
  CHECK_THAT(refusal("dp3", {"--set", "workload.train.batch=6"})[0],
             Catch::StartsWith("exit code 2: orrery: 2 processes cannot share 3 ranks"));
  const CommandResult alone = orrery::testing::orrery(training("dp2", {"--meet", "x"}));
  CHECK(alone.code == exit_code::kWrongInput);
  CHECK_THAT(alone.err, Catch::Contains("add --peers"));
}
