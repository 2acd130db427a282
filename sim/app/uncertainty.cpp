// SPDX-License-Identifier: Apache-2.0
#include "sim/app/uncertainty.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "sim/app/instances.hpp"
#include "sim/app/report.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostReasons = 20;

/// The first rank of a class.
RankId rank_of(const Plan& plan, const RankClass& c) {
  std::vector<std::int64_t> coordinates;
  for (const CoordRange& range : c.ranges) coordinates.push_back(range.first);
  return plan.mesh.rank(coordinates);
}

OpCost cost_of(const CostModel& cost, const Plan& plan, const Work& work, const Bindings& bindings, RankId rank) {
  if (const auto* c = std::get_if<Collective>(&work)) {
    const std::vector<RankId> ranks = members(plan.mesh, plan.groups[c->group.index()], rank);
    return cost.collective(*c, ranks);
  }
  if (const auto* s = std::get_if<Send>(&work)) return cost.transfer(s->bytes, rank, peer_of(plan.mesh, rank, s->peer));
  if (const auto* r = std::get_if<Recv>(&work)) return cost.transfer(r->bytes, peer_of(plan.mesh, rank, r->peer), rank);
  return cost.cost(work, bindings, rank);
}

bool is_message(const Work& w) {
  return std::holds_alternative<Collective>(w) || std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w);
}

}  // namespace

OpCosts::OpCosts(const CostModel& cost, const Plan& plan, const Bindings& bindings) : cost_of_op_(plan.ops.size()) {
  KnownReuse reuse;
  const Surroundings around{plan, bindings, cost, reuse};
  std::vector<std::size_t> of_work(
      plan.works.size());  // behind the place in costs_: those of earlier classes are below
  for (const RankClass& c : plan.classes) {
    const RankId rank = rank_of(plan, c);
    const std::size_t before = costs_.size();
    for (std::size_t i = c.first_op; i < c.first_op + c.num_ops; ++i) {
      const WorkId work = plan.ops[i].work;
      std::size_t& known = of_work[work.index()];
      if (known <= before) {
        costs_.push_back(cost_of(cost, plan, plan.works[work.index()], around.of(work), rank));
        known = costs_.size();
      }
      cost_of_op_[i] = static_cast<std::uint32_t>(known - 1);
    }
  }
}

const OpCosts& KnownOpCosts::of(const Plan& plan, const Bindings& bindings) {
  if (plan_ != &plan || bindings_ != bindings) known_.emplace(cost_, plan, bindings);
  plan_ = &plan, bindings_ = bindings;
  return *known_;
}

std::vector<SpanDeviation> path_deviations(const Timeline& timeline, const CriticalPath& path, const Plan& plan,
                                           const OpCosts& costs) {
  // A law has one bias: kind and bias together name it.
  std::map<std::tuple<std::size_t, float, float>, std::uint32_t> groups;
  std::vector<SpanDeviation> out;
  out.reserve(path.segments.size());
  for (const PathSegment& segment : path.segments) {
    if (segment.is_gap) {
      out.emplace_back();
      continue;
    }
    const OpId op = timeline.spans[segment.span].op;
    const OpCost& c = costs[op.index()];
    const auto law = std::tuple{plan.work(op).index(), c.bias, c.deviation};
    const auto group = groups.try_emplace(law, static_cast<std::uint32_t>(groups.size())).first->second;
    out.push_back({c.deviation, c.bias, group});
  }
  return out;
}

std::vector<Extrapolation> extrapolations(KnownOpCosts& known, const std::vector<const Plan*>& plans,
                                          const Recording& recording) {
  std::map<std::string, double> seconds;
  double all = 0;
  for (std::size_t p = 0; p < plans.size(); ++p) {
    const auto last =
        std::find_if(recording.steps.rbegin(), recording.steps.rend(), [&](const Step& s) { return s.plan == p; });
    if (last == recording.steps.rend()) continue;
    const Plan& plan = *plans[p];
    const OpCosts& costs = known.of(plan, last->bindings);
    std::vector<double> by_work(plan.works.size(), 0.0);
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      by_work[plan.ops[i].work.index()] += costs[i].duration.base();
      all += costs[i].duration.base();
    }
    for (std::size_t w = 0; w < plan.works.size(); ++w) {
      if (is_message(plan.works[w])) continue;
      const std::string reason = known.model().extrapolation(plan.works[w], last->bindings, RankId{std::size_t{0}});
      if (!reason.empty()) seconds[reason] += by_work[w];
    }
  }
  std::vector<Extrapolation> out;
  for (const auto& [reason, time] : seconds) out.push_back({reason, all > 0 ? time / all : 0});
  std::stable_sort(out.begin(), out.end(),
                   [](const Extrapolation& x, const Extrapolation& y) { return x.share > y.share; });
  if (out.size() > kMostReasons) out.resize(kMostReasons);
  return out;
}

double step_deviation(const ReportSource& source, KnownOpCosts& known, const PlanDigests& plans,
                      const SteadySteps& steps) {
  const std::uint32_t middle = steps.instances[steps.instances.size() / 2];
  const Step& step = source.recording.steps[middle];
  const Plan& plan = source.program.plans()[step.plan];
  const OpCosts& costs = known.of(plan, step.bindings);
  const Machine& machine = *source.machine;
  const double common = std::hypot(machine.drift, machine.software, plan.mesh.size() > 1 ? machine.sharing : 0.0);
  const auto deviation = [&](const Timeline& one, const CriticalPath& path) {
    return makespan_interval(one, path, path_deviations(one, path, plan, costs), common).deviation;
  };
  if (steps.instances.size() == 1) return deviation(steps.timeline, steps.path);
  const Timeline one = packed(source.recording.timeline, {middle});
  return deviation(one, critical_path(one, plans, SpanGraph{one, plans}));
}

}  // namespace orrery
