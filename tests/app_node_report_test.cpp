// SPDX-License-Identifier: Apache-2.0
// `orrery node-report` in small, with a GPU that is emulated: its times mean nothing, what is written does.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>

#include "sim/app/child_process.hpp"
#include "sim/app/node_report.hpp"
#include "sim/app/node_shares.hpp"
#include "tests/app_testing.hpp"
#include "tests/emulated_gpu.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr const char* kGrid = R"(plans:
  - name: train
    model: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    workload: {train: {batch: 1, sequence: 8, dtype: f32, steps: 3}}
  - name: train offloaded
    model: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    strategy: [{zero-offload: {}}]
    workload: {train: {batch: 1, sequence: 8, dtype: f32, steps: 3}}
  - name: two ranks
    model: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, n_positions: 16, vocab_size: 61}
    cluster: dgx_h100
    strategy: [{parallel: {mesh: tp2}}]
    workload: {train: {batch: 2, sequence: 8, dtype: f32, steps: 3}}
)";

}  // namespace

TEST_CASE("a report of a node measures, fits, predicts and executes into one folder", "[cuda]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", kGrid), out = folder / "report";
  std::filesystem::create_directories(out);
  QuietApp app;
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20, .told_bytes = 3 << 19});
  NodeReportOptions options{.folder = out, .grid = grid, .quick = true, .clocks = Seconds{0.01}, .budget = Seconds{0}};

  // Without time all is left to another run.
  const NodeReport none = report_node(gpu, options, app.context);
  CHECK(none.measured.results.empty());
  CHECK(none.measured.left > 10);
  CHECK(none.plans.empty());
  CHECK(none.plans_left == 1);  // of three: a quick report executes every fifth

  options.quick = false;
  options.budget = Seconds{3600};
  const NodeReport report = report_node(gpu, options, app.context);
  std::map<std::string, int> groups;
  for (const GpuResult& r : report.measured.results) {
    ++groups[r.group];
    CHECK(r.seconds.median > 0);
  }
  CHECK((groups["products"] > 0 && groups["products in 8 bits"] > 0 && groups["products in tf32"] > 0));
  CHECK(groups["launches"] == 5);
  CHECK(groups["allocations"] == 2);
  CHECK(groups["collectives"] > 0);
  CHECK(groups["observation"] == 2);
  CHECK(report.measured.left == 0);
  CHECK(report.measured.skipped.empty());
  REQUIRE(!report.clocks.empty());
  CHECK(report.clocks.front().state.watts == 300);
  REQUIRE(report.plans.size() == 3);
  for (const NodePlan& p : report.plans) {
    INFO(p.name << ": " << p.problem);
    CHECK(p.ran());
    CHECK(p.predicted > 0);
    CHECK(p.measured > 0);
    CHECK(p.peak_measured == p.peak_predicted);
    CHECK(p.shares == (p.name == "two.ranks"));
    CHECK(p.first_loss > 0);
    CHECK(p.last_loss > 0);
  }
  CHECK(report.exact_peaks() == 3);
  CHECK(!report.counts.ops.empty());
  for (const char* file :
       {"/counters.tsv", "/measurements.tsv", "/clocks.tsv", "/params/h100_sxm.yaml", "/two.ranks.orrery"})
    CHECK(std::filesystem::exists(out + file));

  // Another report measures nothing again, even without time: what it says is in the folder.
  options.budget = Seconds{0};
  const NodeReport again = report_node(gpu, options, app.context);
  REQUIRE(again.measured.results.size() == report.measured.results.size());
  for (std::size_t i = 0; i < again.measured.results.size(); ++i)
    CHECK(again.measured.results[i].seconds.median == Approx(report.measured.results[i].seconds.median).epsilon(1e-7));
  CHECK(again.measured.fresh == 0);
  REQUIRE(again.plans.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) CHECK(to_line(again.plans[i]) == to_line(report.plans[i]));
  CHECK(gpu->bytes_in_use(0) == 0);
}

TEST_CASE("steps are measured once, and known to the next run by their file", "[cuda]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", kGrid), file = folder / "steps.tsv";
  QuietApp app;
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20});
  const Wiring wiring{app.environment, [gpu] { return gpu; }};
  AppContext context{app.console, app.interrupt, wiring, app.environment, {"orrery", "node-report"}};
  std::vector<Scenario> steps = validation_grid(context, grid);
  steps.resize(1);

  CHECK(measure_gpu_steps(
            steps, 1 << 10, file, [] { return false; }, context)
            .measured == 0);  // too little memory
  CHECK(measure_gpu_steps(
            steps, 256 << 20, file, [] { return true; }, context)
            .left == 1);
  const GpuSteps once = measure_gpu_steps(
      steps, 256 << 20, file, [] { return false; }, context);
  CHECK((once.measured == 1 && once.fresh == 1 && once.left == 0 && once.skipped.empty()));
  CHECK(once.cases.size() > 20);
  for (const RuntimeCase& c : once.cases) CHECK((c.seconds > 0 && c.in_plan));
  const GpuSteps again = measure_gpu_steps(
      steps, 256 << 20, file, [] { return true; }, context);
  CHECK((again.measured == 1 && again.fresh == 0));
  REQUIRE(again.cases.size() == once.cases.size());
  for (std::size_t i = 0; i < again.cases.size(); ++i)
    CHECK(again.cases[i].seconds == Approx(once.cases[i].seconds).epsilon(1e-5));
  CHECK(again.behind.base() == Approx(once.behind.base()).epsilon(1e-5));

  std::ofstream{file, std::ios::app} << "nothing\n";
  CHECK_THROWS_WITH(measure_gpu_steps(
                        steps, 256 << 20, file, [] { return false; }, context),
                    Catch::Contains("has a line that tells no op"));
}

TEST_CASE("the rate of updates on the host is fitted to steps, and predictions go by it", "[cuda]") {
  const TemporaryFolder folder;
  const std::string grid = folder.file("grid.yaml", kGrid);
  QuietApp app;
  app.environment["ORRERY_HOME"] = folder / "home";
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20});
  const Wiring wiring{app.environment, [gpu] { return gpu; }};
  AppContext context{app.console, app.interrupt, wiring, app.environment, {"orrery", "node-report"}};
  const std::vector<Scenario> steps = validation_grid(context, grid);
  const GpuSteps offloaded = measure_gpu_steps(
      {steps[1]}, 256 << 20, folder / "steps.tsv", [] { return false; }, context);
  CHECK(offloaded.measured == 1);
  CHECK(offloaded.behind == Seconds{0});  // several streams: nobody waits behind an op

  const TableCalibration fitted = fit_node({}, offloaded, "h100_sxm", gpu->info(0), context);
  REQUIRE(fitted.parameters.runtime);
  const auto& kernels = fitted.parameters.runtime->kernels;
  REQUIRE(kernels.contains("host_adamw"));
  CHECK(!kernels.contains("adamw"));  // the device does none in that step
  CHECK(!kernels.contains("copy"));

  const auto updates = [&] {
    std::map<std::string, double> seconds;
    for (const ValidatedOp& op : predict_for_runtime(steps[1], context).ops)
      if (std::holds_alternative<AdamW>(op.work)) seconds[op.text] = op.predicted;
    return seconds;
  };
  const std::map<std::string, double> before = updates();
  std::filesystem::create_directories(wiring.locations().own_parameters());
  write_table_calibration(fitted, wiring.locations().own_parameters() + "/h100_sxm.yaml");
  const std::map<std::string, double> after = updates();
  REQUIRE(before.size() > 3);
  REQUIRE(after.size() == before.size());
  const RuntimeLaws laws{*fitted.parameters.runtime};
  for (const RuntimeCase& c : offloaded.cases) {
    if (!std::holds_alternative<AdamW>(c.work)) continue;
    INFO(to_text(c.work));
    CHECK(after.at(to_text(c.work)) == Approx(laws.kernel(c.work, c.bindings)->seconds).epsilon(1e-4));
    CHECK(after.at(to_text(c.work)) != Approx(before.at(to_text(c.work))).epsilon(0.01));
  }
}

TEST_CASE("the command for a report says what it had no time to measure", "[cuda]") {
  const TemporaryFolder folder;
  const std::string out = folder / "report";
  const auto gpu = std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 256 << 20, .told_bytes = 1 << 19});
  const CommandResult r =
      orrery::testing::orrery({"node-report", "--quick", "--budget", "1 ps", "--out", out}, {}, [&] { return gpu; });
  INFO(r.err);
  // The tests of kernels, where they lie beside this one, want a real GPU.
  CHECK((r.code == exit_code::kOk || r.code == exit_code::kMissed));
  CHECK_THAT(r.out, Catch::StartsWith("1 × ") && Catch::Contains("\nself-test: "));
  CHECK_THAT(r.out, Catch::Contains("\nkernels: not measured on a GPU\n"));
  CHECK_THAT(r.out, Catch::Contains("\nplans: not measured on a GPU as they were predicted\n"));
  CHECK_THAT(r.out, Catch::Contains("\nno time was left for ") &&
                        Catch::EndsWith(" plans: the same command goes on with them\nwritten to " + out + "\n"));
  for (const char* file : {"machine.json", "self_test.txt", "report.txt", "report.json", "clocks.tsv"})
    CHECK(std::filesystem::exists(out + "/" + file));
  CHECK(read_file(out + "/report.txt") == r.out);
  CHECK(gpu->bytes_in_use(0) == 0);
}

TEST_CASE("kernels are compared with the fastest copy and the fastest product of their type", "[cuda]") {
  const auto result = [](const char* group, const Work& work, double flops, double bytes, double seconds) {
    GpuResult r{.name = to_text(work), .group = group, .flops = flops, .bytes = bytes, .work = work};
    r.seconds.median = seconds;
    return r;
  };
  AttentionShape s{.batch = 1, .heads = 1, .kv_heads = 1, .q = 8192};
  s.dtype = DType::BF16;
  const Copy copy{Bytes{5e8}};
  const Add large{.rows = 1 << 14, .cols = 1 << 10, .dtype = DType::F32};
  const std::vector<GpuResult> results{
      result("memory", copy, 0, 1e9, 1e-3),                                                   // 1 TB/s
      result("memory", copy, 0, 1e6, 1e-9),                                                   // from a cache: too small
      result("memory", large, 1, 0.9e9, 1e-3),                                                // 0.9 TB/s
      result("memory", large, 1, 0.7e9, 1e-3),                                                // 0.7 TB/s: median 0.8
      result("products", Gemm{.m = 1, .n = 1, .k = 1, .dtype = DType::BF16}, 1e12, 1, 1e-3),  // 1 PFLOP/s
      result("attention", AttentionForward{s}, 0.65e12, 1, 1e-3)};
  const std::vector<KernelShare> shares = kernel_shares(results);
  REQUIRE(shares.size() == 3);
  CHECK(shares[0].kind == "add f32");
  CHECK(shares[0].share == Approx(0.8));
  CHECK(!shares[0].is_enough());
  CHECK(shares[1].kind == "attention bf16");
  CHECK(shares[1].share == Approx(0.65));
  CHECK(shares[1].is_enough());
  CHECK(shares[2].kind == "copy");
  CHECK(shares[2].share == 1);
}

TEST_CASE("a program that hangs is killed in time, and when the user asks for it") {
  const TemporaryFolder folder;
  const auto script = [&](const char* text) {
    const std::string path = folder.file("script.sh", fmt::format("#!/bin/sh\n{}\n", text));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  };
  const auto go_on = [] { return false; };
  const ChildEnd good = run_child(script("echo out; echo err >&2"), Seconds{60}, go_on);
  CHECK(good.succeeded);
  CHECK(good.text == "out\nerr\n");
  CHECK_FALSE(run_child(script("exit 3"), Seconds{60}, go_on).succeeded);
  const ChildEnd late = run_child(script("echo begun; sleep 600 & sleep 600"), Seconds{0.5}, go_on);
  CHECK(late.timed_out);
  CHECK_FALSE(late.succeeded);
  CHECK(late.text == "begun\n");
  const ChildEnd stopped = run_child(script("trap '' INT TERM; sleep 600"), Seconds{600}, [] { return true; });
  CHECK_FALSE(stopped.succeeded);
  CHECK_FALSE(stopped.timed_out);
  CHECK_THROWS_AS(run_child(folder / "nothing", Seconds{1}, go_on), DeviceError);
}
