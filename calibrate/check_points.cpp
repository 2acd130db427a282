// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check_points.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/campaign.hpp"
#include "calibrate/step_check.hpp"
#include "calibrate/suites.hpp"

namespace orrery {
namespace {

CheckRow make_row(std::string what, std::string law, double measured, double predicted, double sigma) {
  const double factor = std::exp(kNinetyPercent * sigma);
  return {std::move(what), std::move(law), measured, predicted, predicted / factor, predicted * factor};
}

CheckRow op_row(const HostModel& model, const Point& p) {
  const OpCost c = model.cost(p.work, p.bindings, {});
  return make_row(to_text(p.work), slot_name(slot_of(p.work)), p.seconds.median, c.duration.base(),
                  std::hypot(c.deviation, c.bias));
}

/// A step's interval: deviations add up as independent, biases of a law as one.
CheckRow step_row(const HostModel& model, const MeasuredPlan& step) {
  const Scales scales;
  double predicted = 0, variance = 0;
  std::vector<double> by_law(kNumSlots, 0.0);
  for (const Point& p : step.points) {
    const double ops = double(p.ops);
    const OpCost c = model.cost(p.work, p.bindings, scales);
    predicted += ops * (c.duration + model.launch(p.work, scales).enqueue).base();
    variance += ops * std::pow(c.duration.base() * c.deviation, 2);
    by_law[slot_of(p.work)] += ops * c.duration.base() * c.bias;
  }
  for (const double b : by_law) variance += b * b;
  return make_row(step.name, {}, step.seconds.median, predicted, std::sqrt(variance) / predicted);
}

}  // namespace

CheckSummary summarise(const std::vector<CheckRow>& rows) {
  CheckSummary s{.rows = rows.size()};
  if (rows.empty()) return s;
  std::vector<double> errors, widths;
  double sum = 0, covered = 0;
  for (const CheckRow& r : rows) {
    errors.push_back(std::abs(r.error()));
    widths.push_back((r.high - r.low) / 2 / r.predicted);
    sum += errors.back();
    covered += r.covered() ? 1 : 0;
  }
  s.mean_abs_error = sum / double(rows.size());
  s.worst_abs_error = *std::max_element(errors.begin(), errors.end());
  s.median_abs_error = median(std::move(errors));
  s.median_half_width = median(std::move(widths));
  s.coverage = covered / double(rows.size());
  return s;
}

std::optional<CheckReport> check_points(const HostModel& model, const CheckOptions& options, std::vector<Bench> steps,
                                        const CalibrateCallback& progress) {
  Random random{static_cast<std::uint64_t>(options.seed)};
  Campaign campaign;
  for (Bench& bench : make_benches(draw_works(random, options.share), random)) campaign.add(std::move(bench));
  const std::size_t first_step = campaign.runs().size();
  for (Bench& step : steps) campaign.add(std::move(step));
  if (!campaign.measure(options.budget, random, progress)) return {};
  CheckReport report;
  for (std::size_t i = 0; i < campaign.runs().size(); ++i) {
    const MeasuredPlan measured = campaign.runs()[i]->measured();
    if (i >= first_step) report.steps.push_back(step_row(model, measured));
    for (const Point& p : measured.points) report.ops.push_back(op_row(model, p));
  }
  return report;
}

}  // namespace orrery
