// SPDX-License-Identifier: Apache-2.0
// What goes wrong with GPUs: one clear line, an exit code, and nothing left behind. With GPUs that are emulated.
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "tests/app_testing.hpp"
#include "tests/emulated_gpu.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

std::vector<std::string> training(std::int64_t steps, const std::vector<std::string>& more = {}) {
  std::vector<std::string> all{
      "run",      "--no-out",
      "--device", "cuda",
      "--set",    "model={model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}",
      "--set",    fmt::format("workload={{train: {{batch: 2, sequence: 8, steps: {}}}}}", steps)};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

struct CommandEnd {
  CommandResult result;
  std::int64_t left = 0;  // streams, events and bytes that the command has not given back
};

CommandEnd run_on(
    const EmulationOptions& options, const std::vector<std::string>& arguments,
    const std::function<void()>& when_opened = [] {}) {
  const auto gpu = std::make_shared<EmulatedGpu>(options);
  const CommandResult r = orrery::testing::orrery(arguments, {}, [&] {
    when_opened();
    return gpu;
  });
  std::int64_t left = std::int64_t(gpu->streams()) + std::int64_t(gpu->events());
  for (int d = 0; d < gpu->num_devices(); ++d) left += gpu->bytes_in_use(d);
  return {r, left};
}

/// Files grow to so many bytes and no further.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("without a driver a GPU is refused in one line, everything else goes on", "[cuda]") {
  if (std::filesystem::exists("/dev/nvidia0")) return;  // there is a driver
  const CommandResult run = orrery::testing::orrery(training(1));
  CHECK(run.code == exit_code::kMissing);
  CHECK(run.out.empty());
  CHECK(std::count(run.err.begin(), run.err.end(), '\n') == 1);
  CHECK_THAT(run.err, Catch::Contains("cuda"));
  const CommandResult report = orrery::testing::orrery({"node-report", "--out", "/dev/null/none"});
  CHECK_THAT(report.err, Catch::StartsWith("orrery: not measured on a GPU: "));
  for (const std::vector<std::string>& command : {std::vector<std::string>{"node-report", "--out", "/dev/null/none"},
                                                  {"calibrate", "--device", "cuda"},
                                                  {"validate", "--grid", "gpu"}}) {
    const CommandResult r = orrery::testing::orrery(command);
    INFO(command.front() << ": " << r.err);
    CHECK(r.code == exit_code::kMissing);
    CHECK(std::count(r.err.begin(), r.err.end(), '\n') == 1);
  }
  CHECK(orrery::testing::orrery({"simulate", "llama3_8b_h100", "--no-out"}).code != exit_code::kMissing);
}

TEST_CASE("a GPU without room says who needed how much", "[cuda]") {
  const std::string how = GENERATE("", "--plain-allocation", "--graphs", "--activities");
  const CommandEnd o = run_on({.memory_bytes = 1 << 15},
                              training(2, how.empty() ? std::vector<std::string>{} : std::vector<std::string>{how}));
  CHECK(o.result.code == exit_code::kDevice);
  CHECK_THAT(o.result.err, Catch::StartsWith("orrery: out of memory on rank 0: '"));
  CHECK(std::count(o.result.err.begin(), o.result.err.end(), '\n') == 1);
  CHECK(o.left == 0);
}

TEST_CASE("records that are not permitted are one error", "[cuda]") {
  const CommandEnd o = run_on({.fails_at = "activities", .fails_after = 0}, training(2, {"--activities"}));
  CHECK(o.result.code == exit_code::kDevice);
  CHECK(o.result.err == "orrery: activities: an error that the test asked for\n");
  CHECK(o.left == 0);
}

TEST_CASE("a kernel that fails its trial is one warning, whatever is printed where", "[cuda]") {
  const TemporaryFolder folder;
  const std::string warning =
      "warning: attention by wgmma in bf16 with heads of 64 is not used, the slower kernel is: device 0 computes "
      "something else\n";
  // Two plans with such attention: the second one does not tell it again.
  const std::string grid = folder.file("grid.yaml", R"(plans:
  - name: one
    model: {model_type: gpt2, n_embd: 64, n_layer: 1, n_head: 1, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    workload: {train: {batch: 1, sequence: 8, dtype: bf16}}
  - name: two
    model: {model_type: gpt2, n_embd: 64, n_layer: 1, n_head: 1, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    workload: {train: {batch: 2, sequence: 8, dtype: bf16}}
)");
  const std::string progress = GENERATE("none", "json");
  // Each executor opens the devices anew, as on a real computer, and tries the kernel again.
  const CommandResult r = orrery::testing::orrery(
      {"validate", "--grid", grid, "--no-out", "--json", "--progress", progress}, {},
      [] { return std::make_shared<EmulatedGpu>(EmulationOptions{.skips = "HopperAttention"}); });
  CHECK(r.code == 0);
  CHECK(r.out.starts_with("{"));
  const std::size_t at = r.err.find(warning);
  REQUIRE(at != std::string::npos);
  CHECK(r.err.find("warning", at + 1) == std::string::npos);
  if (progress == "none") CHECK(r.err == warning);
}

TEST_CASE("a member of a collective that is lost is one error", "[cuda]") {
  const EmulationOptions two{.devices = 2, .fails_at = "collective", .fails_after = 2, .has_library = true};
  const CommandEnd o = run_on(two, training(4, {"--set", "strategy=[{parallel: {mesh: dp2}}]"}));
  CHECK(o.result.code == exit_code::kDevice);
  CHECK(o.result.err == "orrery: collective: an error that the test asked for\n");
  CHECK(o.left == 0);
}

TEST_CASE("a disk that is full is one error", "[cuda]") {
  const FullDisk disk{1 << 14};
  const CommandEnd o = run_on({}, training(2, {"--set", "strategy=[{zero-infinity: {states: disk}}]"}));
  CHECK(o.result.code == exit_code::kDevice);
  CHECK(o.result.err == "orrery: pwrite: File too large\n");
  CHECK(o.left == 0);
}

TEST_CASE("Ctrl-C ends a run between two steps", "[cuda]") {
  const CommandEnd o = run_on({}, training(100'000), [] { kill(getpid(), SIGINT); });
  CHECK(o.result.code == exit_code::kSignal + SIGINT);
  CHECK(o.result.err == "orrery: interrupted\n");
  CHECK(o.left == 0);
}

TEST_CASE("Ctrl-C ends measurements of a GPU, and a report of it can be gone on with", "[cuda]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", R"(plans:
  - name: train
    model: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    workload: {train: {batch: 1, sequence: 8}}
)");
  const std::string out = folder / "report";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"validate", "--grid", grid, "--no-out"},
        {"calibrate", "--device", "cuda", "--quick", "-o", folder / "gpu.yaml"},
        {"node-report", "--quick", "--out", out}}) {
    INFO(command.front());
    const CommandEnd o = run_on({.memory_bytes = 256 << 20, .told_bytes = 1 << 20}, command,
                                [first = true]() mutable {  // a second signal would end the process
                                  if (std::exchange(first, false)) kill(getpid(), SIGINT), usleep(100'000);
                                });
    CHECK(o.result.code == exit_code::kSignal + SIGINT);
    CHECK(o.result.err == "orrery: interrupted\n");
    CHECK(o.left == 0);
  }
  CHECK(!std::filesystem::exists(folder / "gpu.yaml"));
  // Whole files only: none that a write has left half.
  for (const auto& f : std::filesystem::recursive_directory_iterator{out}) {
    INFO(f.path());
    CHECK((f.path().filename() == "machine.json" || f.path().filename() == "self_test.txt"));
  }
}

TEST_CASE("results that find no room on a disk are one error", "[cuda]") {
  const TemporaryFolder folder;
  const CommandEnd o = [&] {
    const FullDisk disk{1 << 10};
    return run_on({}, training(2, {"--save", folder / "weights.safetensors"}));
  }();
  CHECK(o.result.code == exit_code::kDevice);
  CHECK_THAT(o.result.err, Catch::Contains("weights.safetensors"));
  CHECK(std::filesystem::is_empty(folder / ""));
  CHECK(std::count(o.result.err.begin(), o.result.err.end(), '\n') == 1);
  CHECK(o.left == 0);
}

TEST_CASE("a GPU is calibrated into the parameters that predictions look for", "[cuda]") {
  const TemporaryFolder folder;
  const Environment home{{"ORRERY_HOME", folder / "home"}};
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20, .told_bytes = 1 << 20});
  const auto calibrate = [&](const std::string& budget) {
    return orrery::testing::orrery({"calibrate", "--device", "cuda", "--quick", "--budget", budget}, home,
                                   [&] { return gpu; });
  };
  // Nothing is begun after the budget; the next calibration goes on.
  const CommandResult part = calibrate("1 ps");
  INFO(part.err);
  CHECK(part.code == 0);
  CHECK_THAT(part.out, Catch::Contains("left out, there was no time"));
  const CommandResult whole = calibrate("600 s");
  CHECK(whole.code == 0);
  CHECK(whole.out.find("left out, there was no time") == std::string::npos);
  CHECK(std::filesystem::exists(folder / "home/params/h100_sxm.yaml"));
  CHECK(std::filesystem::exists(folder / "home/params/h100_sxm.measurements.tsv"));
  CHECK(!std::filesystem::exists(folder / "home/params/h100_sxm.measurements.tsv.part"));
  CHECK(std::filesystem::exists(folder / "home/params/h100_sxm.clocks.tsv"));
  // The clock of the emulated GPU falls by 1 MHz with each reading.
  CHECK_THAT(whole.out, Catch::Contains("clock and power  1980 MHz and 300 W at first, "));
  CHECK(gpu->bytes_in_use(0) == 0);
}
