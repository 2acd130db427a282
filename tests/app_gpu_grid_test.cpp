// SPDX-License-Identifier: Apache-2.0
// The plans that `orrery node-report` measures, on no GPU: that one of 80 GB can run each of them, and in the time
// there is.
#include <cstdio>

#include "runtime/cuda/gpu_executor.hpp"
#include "sim/app/report.hpp"
#include "sim/app/session.hpp"
#include "sim/app/validation.hpp"
#include "tests/app_testing.hpp"
#include "tests/gpu_kernels_of.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("each plan of the grid of a node has kernels, room and time on one GPU", "[cuda]") {
  constexpr double kRoom = 72e9;             // of 80 GB, less what the driver and products keep
  constexpr double kRounds = 5, kSteps = 6;  // of a measurement
  constexpr double kMostSeconds = 240;       // of the 480 of a report
  QuietApp app;
  const Wiring& wiring = app.wiring;
  const std::vector<Scenario> grid = validation_grid(app.context, "gpu");
  CHECK(grid.size() >= 40);
  double seconds = 0;
  for (const Scenario& s : grid) {
    INFO(s.name);
    Machine machine = wiring.machine(s.options, s.cluster);
    machine.workspaces = &gpu_workspaces();
    const bool generates = s.options.workload.generate.has_value();
    const Simulation run = simulate_scenario(
        s, machine, wiring, generates ? std::nullopt : std::optional<std::int64_t>{1}, [](std::size_t) {});
    for (const Plan& plan : run.program->plans()) CHECK(works_without_kernel(plan) == std::vector<std::string>{});
    const Report report = make_report({s, *run.program, run.recording, &machine});
    CHECK(double(report.memory.bytes) * double(report.ranks) < kRoom);
    // Ranks that share a GPU take turns on it.
    seconds += report.step * double(report.ranks) * kRounds * (generates ? 32 : kSteps);
  }
  INFO("seconds of all measurements, as predicted: " << seconds);
  CHECK(seconds < kMostSeconds);
}
