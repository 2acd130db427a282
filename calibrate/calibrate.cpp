// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/campaign.hpp"
#include "calibrate/disturbance.hpp"
#include "calibrate/fit_host.hpp"
#include "calibrate/selection.hpp"
#include "calibrate/this_machine.hpp"
#include "runtime/core_watch.hpp"
#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

constexpr Seconds kBudget{60.0}, kQuickBudget{14.0};
constexpr double kLongStep = 5e-3;  // seconds
constexpr double kMuchDrift = 0.05, kMuchDisturbed = 0.1, kFewCores = 0.8;
// Relative standard deviation of what neighbours leave of memory from one time to another, which no core tells: in 59
// validations of two days on a shared Zen 4, products of few rows, which wait for memory half of their time, were off
// by 6 % in common; ten calibrations within two hours of another day found 21 to 34 GB/s.
constexpr double kMemoryOfNeighbours = 0.12;
// And of all time, beside the clock that is corrected for: how often a hypervisor stops the cores (7,600 to 24,000
// times a second for 2 us) and how much of a step's own data the last cache keeps beside theirs. By which trainings, or
// products of many rows, were off in common: 1.1 % root mean square of 15 validations on a shared Emerald Rapids (0.8 %
// of the six with the laws as they are); with older laws 1.2 % of 20 on a Zen 4, 1.9 % of twelve on a Zen 5 (1.3 % of
// the eight in which others used the cores least) and 1.7 % of nine on a Sapphire Rapids.
constexpr double kClockOfNeighbours = 0.011;

BytesPerSecond rate_of(const MovingBench& b, const std::vector<MeasuredPlan>& plans) {
  return b.moved / Seconds{plans[b.bench].seconds.median};
}

/// How much longer a core waits for a MB from memory than from the last cache.
Seconds wait_of_megabyte(const std::vector<MeasuredPlan>& plans, const Selection& selection) {
  constexpr double kLeast = 0.1;  // of the time that it takes from memory
  constexpr Bytes kMegabyte{1e6};
  const Seconds far = kMegabyte / rate_of(selection.far, plans), near = kMegabyte / rate_of(selection.near, plans);
  return std::max(far - near, kLeast * far);
}

Measurements collect(const Campaign& campaign, const Selection& selection) {
  std::vector<MeasuredPlan> plans = campaign.measured();
  const double told_from = quiet_core(), quiet = quiet_core_of(plans, told_from);
  for (MeasuredPlan& plan : plans) tell_from(plan, told_from, quiet);
  expect_quiet_core(quiet);
  const Sensitivity sensitivity = sensitivity_of(plans, detected_caches());
  for (MeasuredPlan& plan : plans) summarise(plan, sensitivity);
  Measurements m{std::move(plans), selection.sweep, selection.steps, selection.beside,
                 selection.turns,  selection.alone, selection.pairs, sensitivity};
  m.wait_of_megabyte = wait_of_megabyte(m.plans, selection);
  for (std::size_t i = 0; i < m.plans.size(); ++i)
    for (Point& p : m.plans[i].points) p.plan = static_cast<std::uint32_t>(i);
  return m;
}

FlopsPerSecond best_rate(const Measurements& m) {
  double best = 1;
  for (const MeasuredPlan& plan : m.plans)
    for (const Point& p : plan.points)
      if (std::holds_alternative<Gemm>(p.work) && p.seconds.count > 0)
        best = std::max(best, amount(p.work).flops.base() / p.seconds.median);
  return FlopsPerSecond{best};
}

/// The middle time between two ops, each step counting by how much of it such gaps are: steps of short ops.
Seconds usual_gap(const Measurements& m) {
  std::vector<std::pair<double, double>> gaps;  // with weights
  for (std::size_t i = m.steps.begin; i < m.steps.end; ++i) {
    double ops = 0;
    for (const Point& p : m.plans[i].points) ops += double(p.ops);
    gaps.emplace_back(std::max(0.0, m.plans[i].gap), ops / m.plans[i].seconds.median);
  }
  return Seconds{weighted_quantile(std::move(gaps), 0.5)};
}

/// Relative standard deviation of the median of some executions at different times, which all ops share: what comes and
/// goes slowly of the cores, and what is left of the difference between neighbouring ones. Steps of short ops differ by
/// what their laws tell.
double drift_of(const Measurements& m, const DriftProbe& probe) {
  constexpr double kExecutions = 5, kMedianToMean = 1.2533;
  std::vector<MeasuredPlan> steps;
  for (std::size_t i = m.steps.begin; i < m.steps.end; ++i)
    if (m.plans[i].seconds.median >= kLongStep) steps.push_back(m.plans[i]);
  return std::hypot(probe.slow_drift().core, kMedianToMean * jitter_of(steps) / std::sqrt(kExecutions));
}

HostParameters describe(const CalibrateOptions& o, const Campaign& campaign, const Selection& selection,
                        const Measurements& m) {
  HostParameters p;
  p.provenance = {FitStatus::Fitted, detected_processor(), today(), o.tool,
                  fmt::format("micro-benchmarks on {} cores, seed {}", detected_cores(), o.seed)};
  const Caches caches = detected_caches();
  p.l2 = caches.l2, p.l3 = caches.l3, p.cores = caches.cores;
  p.peak = best_rate(m);
  p.quiet_core = Seconds{quiet_core()};
  p.probe = Seconds{campaign.probe().seconds()};
  p.memory_probe = Seconds{campaign.probe().pass_seconds()};
  p.drift = drift_of(m, campaign.probe());
  p.dispatch = usual_gap(m);
  p.memory_bandwidth = rate_of(selection.memory, m.plans);
  p.communication = {.deviation = p.drift, .bias = 0.5};
  return p;
}

/// What a minute does not tell of neighbours: how much memory, how much of the clock and how many of the cores they
/// leave at another time.
void widen_for_neighbours(HostParameters& p, const Calibration& c, double memory_drift) {
  const bool has_neighbours = c.disturbed > kMuchDisturbed || is_virtual_machine();
  const double memory = std::max(memory_drift, has_neighbours ? kMemoryOfNeighbours : 0.0);
  for (auto& [name, law] : p.laws) law.memory = std::hypot(law.memory, memory);
  if (has_neighbours) p.drift = std::hypot(p.drift, kClockOfNeighbours);
  // Anything between all of the cores and as many as there were: the deviation of a uniform distribution.
  const double missing = std::log(std::max(1.0, double(detected_cores()) / std::max(c.cores, 1e-3)));
  p.sharing = std::hypot(p.sharing, missing / std::sqrt(12.0));
}

std::vector<std::string> warnings_of(const Calibration& c) {
  std::vector<std::string> warnings;
  if (c.disturbed > kMuchDisturbed)
    warnings.push_back(
        fmt::format("the machine was not idle: something else used the cores at {:.0f} % of the samples of the drift "
                    "probe; times are corrected for how much it slowed them",
                    100 * c.disturbed));
  if (c.drift > kMuchDrift)
    warnings.push_back(
        fmt::format("the speed of the machine varied by {:.1f} % while it was measured; other programs were running, "
                    "or its clock changed",
                    100 * c.drift));
  if (c.cores < kFewCores * double(detected_cores()))
    warnings.push_back(
        fmt::format("the {} cores of this computer did the work of {:.1f} when all were busy: predictions for several "
                    "ranks will be wrong",
                    detected_cores(), c.cores));
  return warnings;
}

}  // namespace

std::optional<Calibration> calibrate(const CalibrateOptions& options, std::vector<Bench> steps,
                                     const CalibrateCallback& progress) {
  if (!progress({"preparing", 0, 0})) return {};
  Random random{static_cast<std::uint64_t>(options.seed)};
  Campaign campaign;
  Selection selection = select_benches(options, std::move(steps), random);
  for (Bench& bench : selection.benches) campaign.add(std::move(bench));
  const Seconds budget = options.budget > Seconds{0} ? options.budget : options.quick ? kQuickBudget : kBudget;
  if (!campaign.measure(budget, random, progress)) return {};
  if (!progress({"fitting", 0, campaign.probe().drift()})) return {};
  const Measurements measured = collect(campaign, selection);
  Calibration c;
  c.parameters = describe(options, campaign, selection, measured);
  c.steps = fit_host(c.parameters, measured);
  c.drift = c.parameters.drift;
  c.disturbed = campaign.probe().disturbed();
  c.cores = campaign.cores().cores();
  widen_for_neighbours(c.parameters, c, campaign.probe().slow_drift().memory);
  c.warnings = warnings_of(c);
  progress({"done", 1, c.drift});
  return c;
}

void write_calibration(const Calibration& calibration, const std::string& path) {
  Node document = Node::map();
  document.fields.emplace_back("host", write_host_parameters(calibration.parameters));
  write_file_atomically(path,
                        "# SPDX-License-Identifier: Apache-2.0\n# Written by `orrery calibrate`; see "
                        "hw_models/host_laws.hpp for what the laws are.\n" +
                            to_yaml(document));
}

}  // namespace orrery
