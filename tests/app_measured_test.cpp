// SPDX-License-Identifier: Apache-2.0
// What was measured on GPUs once, replayed for ever: `scenarios/measured` against what the plans are predicted as
// today.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "calibrate/statistics.hpp"
#include "sim/app/gpu_steps.hpp"
#include "sim/app/node_report.hpp"
#include "sim/app/validation.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

constexpr std::size_t kMeasured = 24;  // steps of the H100: those that were drawn then

std::vector<NodePlan> plans_of(const std::string& folder) {
  std::vector<NodePlan> plans;
  std::ifstream in{folder + "/plans.tsv"};
  for (std::string line; std::getline(in, line);) plans.push_back(plan_from_line(line));
  return plans;
}

/// The plans of the grid by the names that a report gives them.
std::map<std::string, Scenario> grid_of(const AppContext& context, const std::string& cluster) {
  std::map<std::string, Scenario> grid;
  for (Scenario& s : validation_grid(context, "gpu", cluster)) {
    std::string name = s.name;
    std::replace(name.begin(), name.end(), ' ', '.');
    grid.emplace(name, std::move(s));
  }
  return grid;
}

double median_error(const std::vector<ValidatedOp>& ops) {
  std::vector<double> errors;
  for (const ValidatedOp& op : ops)
    if (op.measured > 0 && op.predicted > 0) errors.push_back(std::abs(op.predicted / op.measured - 1));
  return median(std::move(errors));
}

}  // namespace

TEST_CASE("plans that were measured on an H100 are predicted as scenarios/measured says", "[cuda]") {
  QuietApp app;
  const std::string folder = app.wiring.locations().scenarios() + "/measured/h100_sxm";
  const std::map<std::string, Scenario> grid = grid_of(app.context, "dgx_h100");
  const OpTimes times{folder + "/ops.tsv"}, steps{folder + "/steps.tsv"};
  const std::vector<Scenario> drawn = draw_gpu_steps(false, 1, "dgx_h100", app.wiring.locations());
  for (std::size_t i = 0; i < kMeasured; ++i) CHECK(steps.knows(drawn.at(i).name));
  std::vector<double> errors, of_ops;
  std::size_t exact = 0;
  for (const NodePlan& measured : plans_of(folder)) {
    INFO(measured.name);
    REQUIRE(measured.ran());
    REQUIRE(grid.contains(measured.name));
    ValidatedPlan plan = predict_for_runtime(grid.at(measured.name), app.context);
    CHECK(plan.predicted == Approx(measured.predicted).epsilon(0.01));
    CHECK(plan.peak_predicted == measured.peak_predicted);
    exact += plan.peak_predicted == measured.peak_measured;
    if (!measured.is_predicted()) continue;
    errors.push_back(std::abs(plan.predicted / measured.measured - 1));
    times.put(measured.name, plan.ops);
    of_ops.push_back(median_error(plan.ops));
    // All but work of the host, and copies from and to it, goes by laws of the runtime.
    for (const Extrapolation& e : plan.report.extrapolated)
      if (!e.reason.starts_with("host_work on") && !e.reason.starts_with("copy on"))
        CHECK_THAT(e.reason, !Catch::Contains("unfitted"));
  }
  // The figures of the page; updates on the host, which were in no step that was measured, are the one plan far off.
  REQUIRE(errors.size() == 22);
  CHECK(exact == 24);
  std::sort(errors.begin(), errors.end());
  CHECK(errors.back() < 0.66);
  errors.pop_back();
  CHECK(errors.back() < 0.14);
  CHECK(std::accumulate(errors.begin(), errors.end(), 0.0) / 21 < 0.047);
  CHECK(median(std::move(of_ops)) < 0.065);
}

TEST_CASE("behind the steps that an H100 ran come some whose weights the host updates", "[cuda]") {
  QuietApp app;
  const std::vector<Scenario> drawn = draw_gpu_steps(false, 1, "dgx_h100", app.wiring.locations());
  REQUIRE(drawn.size() > kMeasured);
  std::map<std::string, std::size_t> updates;  // by law
  for (std::size_t i = kMeasured; i < drawn.size(); ++i) {
    INFO(drawn[i].name);
    const ValidatedPlan plan = predict_for_runtime(drawn[i], app.context);
    CHECK(plan.peak_predicted < std::int64_t{70} << 30);
    CHECK(plan.predicted < 1.0);
    std::size_t on_device = 0;
    for (const ValidatedOp& op : plan.ops) {
      if (runs_on_host(op.work)) ++updates[kernel_law_name(op.work)];
      on_device += !runs_on_host(op.work) && op.kind == OpClass::Optimizer;
    }
    CHECK(on_device == 0);
  }
  std::size_t adamw = 0;
  for (const auto& [law, works] : updates) adamw += law.starts_with("host_adamw.") ? works : 0;
  CHECK(adamw >= 24);  // of different sizes: what a law is fitted to
}
