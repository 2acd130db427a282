// SPDX-License-Identifier: Apache-2.0
// Ops of validated plans: predictions that no calibration has seen, by the hundred.
#include "sim/app/validation_ops.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/disturbance.hpp"
#include "calibrate/statistics.hpp"
#include "sim/app/instances.hpp"
#include "sim/app/uncertainty.hpp"

namespace orrery {
namespace {

// Ops that take less than this of their step are told apart: what they are off by nobody sees in the step.
constexpr double kLeastOfStep = 0.001;

/// The plan that a program's steps end with: what the steady steps execute.
const Plan& telling_plan(const Program& program) { return program.plans().back(); }

bool is_op(const Work& w) {
  return !std::holds_alternative<HostWork>(w) && !std::holds_alternative<Alloc>(w) && !std::holds_alternative<Free>(w);
}

/// An op of each work of a plan, by work; works of no op are left out.
std::map<WorkId, std::vector<OpId>> ops_by_work(const Plan& plan) {
  std::map<WorkId, std::vector<OpId>> by_work;
  for (std::size_t i = 0; i < plan.ops.size(); ++i)
    if (is_op(plan.work(OpId{i}))) by_work[plan.ops[i].work].push_back(OpId{i});
  return by_work;
}

void add_check(std::vector<IntervalCheck>& checks, std::string what, const std::vector<ValidatedOp>& rows) {
  if (rows.empty()) return;
  IntervalCheck c{.what = std::move(what), .count = rows.size()};
  std::vector<double> widths, errors;
  for (const ValidatedOp& r : rows) {
    widths.push_back((r.high - r.low) / 2 / r.predicted);
    errors.push_back(std::abs(r.predicted / r.measured - 1));
    if (r.low <= r.measured && r.measured <= r.high) c.coverage += 1 / double(rows.size());
  }
  c.median_half_width = median(std::move(widths));
  c.median_abs_error = median(std::move(errors));
  checks.push_back(std::move(c));
}

/// The mean over the ops of a plan, by how long they take.
double mean_sensitivity(const Plan& plan, const OpCosts& costs) {
  double sum = 0, all = 0;
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const double seconds = costs[i].duration.base();
    sum += double(costs[i].sensitivity) * seconds, all += seconds;
  }
  return all > 0 ? sum / all : 0;
}

}  // namespace

void predict_ops(ValidatedPlan& p, const Machine& machine, const Program& program, const Recording& recording) {
  const Plan& plan = telling_plan(program);
  const std::vector<std::uint32_t> steady = steady_instances(recording.timeline);
  const Bindings& bindings = recording.steps[steady[steady.size() / 2]].bindings;
  const OpCosts costs{*machine.cost, plan, bindings};
  p.sensitivity = mean_sensitivity(plan, costs);
  if (plan.mesh.size() > 1) return;
  for (const auto& [work, same] : ops_by_work(plan)) {
    const OpCost& c = costs[same.front().index()];
    const double deviation = std::hypot(c.error(), machine.drift);
    const Work& w = plan.works[work.index()];
    const Interval i = log_normal_interval(c.duration - machine.cost->launch(w, RankId{0}).behind, deviation);
    p.ops.push_back(
        {class_of(w), to_text(w), i.value.base(), i.low.base(), i.high.base(), 0, double(c.sensitivity), w, bindings});
  }
}

void measure_ops(std::vector<ValidatedOp>& ops, const Program& program, const std::vector<MeasuredRound>& rounds) {
  if (ops.empty()) return;
  const Plan& plan = telling_plan(program);
  const std::size_t telling = program.plans().size() - 1;
  std::vector<std::vector<Observed>> samples(plan.ops.size());
  for (const MeasuredRound& r : rounds)
    for (std::size_t k = 0; k < r.timeline.spans.size(); ++k) {
      const Span& s = r.timeline.spans[k];
      if (!std::binary_search(r.instances.begin(), r.instances.end(), s.instance) ||
          r.timeline.plan_of(s.instance) != telling)
        continue;
      samples[s.op.index()].push_back({double(s.end_ps - s.start_ps) * 1e-12, r.slowed.empty() ? 0 : r.slowed[k]});
    }
  std::size_t i = 0;
  for (const auto& [work, same] : ops_by_work(plan)) {
    for (const OpId op : same) {
      std::vector<double> seconds;
      for (const Observed& o : undisturbed(samples[op.index()], ops[i].sensitivity)) seconds.push_back(o.value);
      ops[i].measured += median(std::move(seconds)) / double(same.size());
    }
    ++i;
  }
  std::erase_if(ops, [](const ValidatedOp& op) { return op.measured <= 0; });
}

std::vector<IntervalCheck> intervals_of(Validations validations) {
  std::map<OpClass, std::vector<ValidatedOp>> by_class;
  std::vector<ValidatedOp> ops, shorter, steps;
  const auto sort_in = [&](const ValidatedPlan& p) {
    steps.push_back({OpClass::Other, "", p.predicted, p.low, p.high, p.measured});
    for (const ValidatedOp& op : p.ops) {
      if (op.measured <= 0 || op.predicted <= 0) continue;
      if (op.measured < kLeastOfStep * p.measured) {
        shorter.push_back(op);
        continue;
      }
      by_class[op.kind].push_back(op);
      ops.push_back(op);
    }
  };
  for (const Validation* v : validations)
    for (const ValidatedPlan& p : v->plans) sort_in(p);
  std::vector<IntervalCheck> checks;
  for (const auto& [kind, rows] : by_class) add_check(checks, std::string{name_of(kind)}, rows);
  add_check(checks, "all ops", ops);
  add_check(checks, "plans", steps);
  ops.insert(ops.end(), steps.begin(), steps.end());
  add_check(checks, kOpsAndPlans, ops);
  add_check(checks, "shorter ops", shorter);
  return checks;
}

}  // namespace orrery
