// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/campaign.hpp"
#include "calibrate/fit_host.hpp"
#include "calibrate/suites.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

constexpr double kQuickShare = 0.35;
constexpr Seconds kBudget{60.0}, kQuickBudget{14.0};
constexpr double kMuchDrift = 0.05, kMuchDisturbed = 0.1;
constexpr std::int64_t kMostRanks = 8;
constexpr std::int64_t kBandwidthElements = 1 << 24;  // of a copy that no cache holds

/// What is measured, by kind: the campaign holds the runs in this order.
struct Parts {
  std::size_t steps_begin = 0, steps_end = 0, bandwidth = 0;
};

/// All cores copy at the same time.
Bench bandwidth_bench(std::int64_t ranks) {
  PlanBuilder b{"bandwidth", Mesh{{{"rank", ranks}}}};
  b.begin_class("all", {{0, ranks}});
  const TensorSpec spec{.role = TensorRole::Parameter, .persistent = true};
  const TensorId from = b.tensor("bandwidth.from", {kBandwidthElements}, spec),
                 to = b.tensor("bandwidth.to", {kBandwidthElements}, spec);
  b.add("copy", Copy{size_of(DType::F32, kBandwidthElements)}, {reads(from), writes(to)});
  return {b.take(&host_workspaces()), {}, {}, 0};
}

Parts prepare(Campaign& campaign, const CalibrateOptions& o, std::vector<Bench> steps, Random& random) {
  Parts parts;
  for (Bench& bench : make_benches(draw_works(random, o.quick ? kQuickShare : 1), random))
    campaign.add(std::move(bench));
  for (Bench& bench : cache_sweep(random)) campaign.add(std::move(bench));
  parts.steps_begin = campaign.runs().size();
  for (Bench& step : steps) campaign.add(std::move(step));
  parts.steps_end = campaign.runs().size();
  const std::int64_t ranks = std::min(detected_cores(), kMostRanks);
  for (std::int64_t n = 2; n <= ranks; n *= 2)
    for (Bench& bench : message_benches(n, random)) campaign.add(std::move(bench));
  parts.bandwidth = campaign.runs().size();
  campaign.add(bandwidth_bench(ranks));
  return parts;
}

Measurements collect(const Campaign& campaign, const Parts& parts) {
  Measurements m{.steps_begin = parts.steps_begin, .steps_end = parts.steps_end};
  for (const auto& run : campaign.runs()) m.plans.push_back(run->measured());
  for (std::size_t i = 0; i < m.plans.size(); ++i)
    for (Point& p : m.plans[i].points) p.plan = static_cast<std::uint32_t>(i);
  return m;
}

FlopsPerSecond best_rate(const Measurements& m) {
  double best = 1;
  for (const MeasuredPlan& plan : m.plans)
    for (const Point& p : plan.points)
      if (std::holds_alternative<Gemm>(p.work)) best = std::max(best, amount(p.work).flops.base() / p.seconds.median);
  return FlopsPerSecond{best};
}

/// The middle time between two ops, each step counting by how much of it such gaps are: steps of short ops.
Seconds usual_gap(const Measurements& m) {
  std::vector<std::pair<double, double>> gaps;  // with weights
  double all = 0, below = 0;
  for (std::size_t i = m.steps_begin; i < m.steps_end; ++i) {
    double ops = 0;
    for (const Point& p : m.plans[i].points) ops += double(p.ops);
    gaps.emplace_back(std::max(0.0, m.plans[i].gap), ops / m.plans[i].seconds.median);
    all += gaps.back().second;
  }
  std::sort(gaps.begin(), gaps.end());
  for (const auto& [gap, weight] : gaps)
    if ((below += weight) >= all / 2) return Seconds{gap};
  return Seconds{0};
}

HostParameters describe(const CalibrateOptions& o, const Campaign& campaign, const Parts& parts,
                        const Measurements& m) {
  HostParameters p;
  p.provenance = {FitStatus::Fitted, detected_processor(), today(), o.tool,
                  fmt::format("micro-benchmarks on {} cores, seed {}", detected_cores(), o.seed)};
  const Caches caches = detected_caches();
  p.l2 = caches.l2, p.l3 = caches.l3;
  p.peak = best_rate(m);
  p.probe = Seconds{campaign.probe().seconds()};
  p.drift = parts.steps_end > parts.steps_begin ? campaign.drift(parts.steps_begin, parts.steps_end)
                                                : campaign.probe().drift();
  p.dispatch = usual_gap(m);
  const double moved = 2 * 4 * double(kBandwidthElements) * double(std::min(detected_cores(), kMostRanks));
  p.memory_bandwidth = BytesPerSecond{moved / m.plans[parts.bandwidth].seconds.median};
  p.communication = {.deviation = p.drift, .bias = 0.5};
  return p;
}

std::vector<std::string> warnings_of(const Calibration& c) {
  std::vector<std::string> warnings;
  if (c.disturbed > kMuchDisturbed)
    warnings.push_back(
        fmt::format("the machine was not idle: {:.0f} % of the drift probe's samples took far longer than the others",
                    100 * c.disturbed));
  if (c.drift > kMuchDrift)
    warnings.push_back(
        fmt::format("the speed of the machine varied by {:.1f} % while it was measured; other programs were running, "
                    "or its clock changed",
                    100 * c.drift));
  return warnings;
}

}  // namespace

std::optional<Calibration> calibrate(const CalibrateOptions& options, std::vector<Bench> steps,
                                     const CalibrateCallback& progress) {
  if (!progress({"preparing", 0, 0})) return {};
  Random random{static_cast<std::uint64_t>(options.seed)};
  Campaign campaign;
  const Parts parts = prepare(campaign, options, std::move(steps), random);
  const Seconds budget = options.budget > Seconds{0} ? options.budget : options.quick ? kQuickBudget : kBudget;
  if (!campaign.measure(budget, random, progress)) return {};
  if (!progress({"fitting", 0, campaign.probe().drift()})) return {};
  const Measurements measured = collect(campaign, parts);
  Calibration c;
  c.parameters = describe(options, campaign, parts, measured);
  c.steps = fit_host(c.parameters, measured);
  c.drift = c.parameters.drift;
  c.disturbed = campaign.probe().disturbed();
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
