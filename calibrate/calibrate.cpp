// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "calibrate/campaign.hpp"
#include "calibrate/fit.hpp"
#include "calibrate/step_check.hpp"
#include "calibrate/suites.hpp"
#include "calibrate/this_machine.hpp"
#include "sim/machine/cluster.hpp"

namespace orrery {
namespace {

constexpr double kQuickShare = 0.35;
constexpr int kSteps = 20, kDecodes = 40, kQuickSteps = 8, kQuickDecodes = 12;
constexpr Seconds kBudget{60.0}, kQuickBudget{14.0};
constexpr double kMuchDrift = 0.05;
constexpr std::int64_t kMostRanks = 8;
constexpr std::int64_t kBandwidthElements = 1 << 24;  // of a copy that no cache holds
constexpr double kContextWeight = 3;
constexpr double kCacheShares[] = {1, 0.7, 0.5, 0.35, 0.25, 0.18};  // of the last cache

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

Parts prepare(Campaign& campaign, const CalibrateOptions& o, const std::vector<ContextPlan>& context, Random& random) {
  Parts parts;
  for (Bench& bench : make_benches(draw_works(random, o.quick ? kQuickShare : 1), random))
    campaign.add(std::move(bench));
  parts.steps_begin = campaign.runs().size();
  for (int i = 0; i < (o.quick ? kQuickSteps : kSteps); ++i) campaign.add(train_step_bench(draw_step(random), random));
  for (int i = 0; i < (o.quick ? kQuickDecodes : kDecodes); ++i)
    campaign.add(decode_step_bench(draw_decode(random), random));
  for (const ContextPlan& c : context) campaign.add({*c.plan, {}, c.bindings, kContextWeight});
  parts.steps_end = campaign.runs().size();
  const std::int64_t ranks = std::min(detected_cores(), kMostRanks);
  for (std::int64_t n = 2; n <= ranks; n *= 2)
    for (Bench& bench : message_benches(n, random)) campaign.add(std::move(bench));
  parts.bandwidth = campaign.runs().size();
  campaign.add(bandwidth_bench(ranks));
  return parts;
}

std::vector<Point> collect(const Campaign& campaign) {
  std::vector<Point> points;
  for (std::size_t i = 0; i < campaign.runs().size(); ++i)
    for (Point& p : campaign.runs()[i]->points()) {
      p.plan = static_cast<std::uint32_t>(i);
      points.push_back(std::move(p));
    }
  return points;
}

FlopsPerSecond best_rate(const std::vector<Point>& points) {
  double best = 1;
  for (const Point& p : points)
    if (std::holds_alternative<Gemm>(p.work)) best = std::max(best, amount(p.work).flops.base() / p.seconds.median);
  return FlopsPerSecond{best};
}

HostParameters describe(const CalibrateOptions& o, const Campaign& campaign, const Parts& parts,
                        const std::vector<Point>& points) {
  HostParameters p;
  p.provenance = {FitStatus::Fitted, detected_processor(), today(), o.tool,
                  fmt::format("micro-benchmarks on {} cores, seed {}", detected_cores(), o.seed)};
  const Caches caches = detected_caches();
  p.l2 = caches.l2, p.l3 = caches.l3;
  p.peak = best_rate(points);
  p.drift = campaign.probe().drift();
  std::vector<double> gaps;
  for (std::size_t i = 0; i < parts.steps_end; ++i) {
    const auto& g = campaign.runs()[i]->gaps();
    gaps.insert(gaps.end(), g.begin(), g.end());
  }
  p.dispatch = Seconds{std::max(0.0, median(std::move(gaps)))};
  const BenchRun& copies = *campaign.runs()[parts.bandwidth];
  const double moved = 2 * 4 * double(kBandwidthElements) * double(copies.bench().plan.mesh.size());
  p.memory_bandwidth = BytesPerSecond{moved / median(copies.totals())};
  p.communication = {.deviation = p.drift, .bias = 0.5};
  return p;
}

/// The laws of these points, without those of the plans in `left_out`.
std::map<std::string, LawFit> fit_laws(const std::vector<Point>& points, const Caches& caches,
                                       const std::vector<bool>& left_out) {
  std::map<std::size_t, std::vector<const Point*>> by_slot;
  for (const Point& p : points)
    if (p.weight > 0 && p.seconds.median > 0 && !left_out[p.plan] && !std::holds_alternative<Send>(p.work))
      by_slot[slot_of(p.work)].push_back(&p);
  std::map<std::string, LawFit> laws;
  for (const auto& [slot, of_slot] : by_slot) laws[slot_name(slot)] = fit_law(form_of(slot), of_slot, caches);
  return laws;
}

/// Points-weighted median error of the laws of a fit.
double error_of(const std::map<std::string, LawFit>& laws) {
  double sum = 0, points = 0;
  for (const auto& [name, law] : laws) {
    sum += law.median_error * double(law.points);
    points += double(law.points);
  }
  return points > 0 ? sum / points : 0;
}

/// The laws under the capacity of the last cache that explains the measurements best. Other programs and other tenants of a
/// processor keep part of a shared cache, so what the hardware reports is an upper bound.
void fit_with_last_cache(HostParameters& parameters, const std::vector<Point>& points, std::size_t num_plans) {
  const Bytes reported = parameters.l3;
  double best = std::numeric_limits<double>::infinity();
  for (const double share : kCacheShares) {
    const Bytes l3 = std::max(share * reported, parameters.l2);
    std::map<std::string, LawFit> laws = fit_laws(points, {parameters.l2, l3}, std::vector<bool>(num_plans, false));
    const double error = error_of(laws);
    if (error >= best) continue;
    best = error;
    parameters.l3 = l3;
    parameters.laws = std::move(laws);
  }
}

/// A message takes as long as its receiver needs: sends have the receives' law.
void share_receives(std::map<std::string, LawFit>& laws) {
  if (const auto recv = laws.find("recv"); recv != laws.end()) laws["send"] = recv->second;
}

/// Predicts each step from a fit without it and half of the others.
std::vector<StepCheck> check_left_out(const HostParameters& base, const Campaign& campaign, const Parts& parts,
                                      const std::vector<Point>& points) {
  std::vector<StepCheck> checks;
  for (const std::size_t half : {0u, 1u}) {
    std::vector<bool> left_out(campaign.runs().size(), false);
    for (std::size_t i = parts.steps_begin; i < parts.steps_end; ++i) left_out[i] = i % 2 == half;
    HostParameters fitted = base;
    fitted.laws = fit_laws(points, {base.l2, base.l3}, left_out);
    const HostModel model{"host", fitted};
    for (std::size_t i = parts.steps_begin; i < parts.steps_end; ++i)
      if (left_out[i]) checks.push_back(check_step(model, *campaign.runs()[i]));
  }
  return checks;
}

std::vector<std::string> warnings_of(const Calibration& c) {
  std::vector<std::string> warnings;
  if (c.drift > kMuchDrift)
    warnings.push_back(
        fmt::format("the speed of the machine varied by {:.1f} % while it was measured; other programs were running, "
                    "or its clock changed",
                    100 * c.drift));
  return warnings;
}

}  // namespace

std::optional<Calibration> calibrate(const CalibrateOptions& options, const CalibrateCallback& progress,
                                     const std::vector<ContextPlan>& context) {
  if (!progress({"preparing", 0, 0})) return {};
  Random random{static_cast<std::uint64_t>(options.seed)};
  Campaign campaign;
  const Parts parts = prepare(campaign, options, context, random);
  const Seconds budget = options.budget > Seconds{0} ? options.budget : options.quick ? kQuickBudget : kBudget;
  if (!campaign.measure(budget, random, progress)) return {};
  if (!progress({"fitting", 0, campaign.probe().drift()})) return {};
  const std::vector<Point> points = collect(campaign);
  Calibration c;
  c.parameters = describe(options, campaign, parts, points);
  fit_with_last_cache(c.parameters, points, campaign.runs().size());
  c.steps = check_left_out(c.parameters, campaign, parts, points);
  share_receives(c.parameters.laws);
  settle_bias(c.parameters, c.steps);
  c.drift = c.parameters.drift;
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
