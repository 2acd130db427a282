// SPDX-License-Identifier: Apache-2.0
#include "sim/app/uncertainty.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "sim/app/instances.hpp"
#include "sim/app/report.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMostReasons = 20;

/// The first rank of a class.
RankId rank_of(const Plan& plan, const RankClass& c) {
  std::vector<std::int64_t> coordinates;
  for (const CoordRange& range : c.ranges) coordinates.push_back(range.first);
  return plan.mesh.rank(coordinates);
}

bool is_message(const Work& w) {
  return std::holds_alternative<Collective>(w) || std::holds_alternative<Send>(w) || std::holds_alternative<Recv>(w);
}

bool has_experts(const Plan& plan) {
  return std::any_of(plan.works.begin(), plan.works.end(),
                     [](const Work& w) { return std::holds_alternative<GroupedGemm>(w); });
}

}  // namespace

OpCosts::OpCosts(const CostModel& cost, const Plan& plan, const Bindings& bindings) : plan_{plan}, first_{0} {
  KnownReuse reuse;
  const Surroundings around{plan, bindings, cost, reuse};
  std::vector<std::size_t> seen(plan.works.size());  // the number from 1 of the last class that does it
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const RankId rank = rank_of(plan, plan.classes[c]);
    for (const Stretch& stretch : stretches_of(plan, plan.classes[c])) {
      if (!stretch.like.is_none()) continue;  // no works but those of what it repeats
      for (std::size_t i = stretch.first; i < stretch.first + stretch.num_ops; ++i) {
        const WorkId work = plan.ops[i].work;
        if (std::exchange(seen[work.index()], c + 1) == c + 1) continue;
        known_.push_back({work, add(cost, plan.works[work.index()], around.of(work), rank)});
      }
    }
    std::sort(known_.begin() + static_cast<std::ptrdiff_t>(first_.back()), known_.end(),
              [](const Known& a, const Known& b) { return a.work < b.work; });
    first_.push_back(known_.size());
  }
}

/// The place of a cost, which is a new one but for a collective of ranks that are known.
std::uint32_t OpCosts::add(const CostModel& cost, const Work& work, const Bindings& bindings, RankId rank) {
  const auto place = static_cast<std::uint32_t>(costs_.size());
  if (const auto* c = std::get_if<Collective>(&work)) {
    Communicator& last = last_[&work];
    if (std::find(last.ranks.begin(), last.ranks.end(), rank) != last.ranks.end()) return last.cost;
    last = {members(plan_.mesh, plan_.groups[c->group.index()], rank), place};
    costs_.push_back(cost.collective(*c, last.ranks));
  } else if (const auto* s = std::get_if<Send>(&work)) {
    costs_.push_back(cost.transfer(s->bytes, rank, peer_of(plan_.mesh, rank, s->peer)));
  } else if (const auto* r = std::get_if<Recv>(&work)) {
    costs_.push_back(cost.transfer(r->bytes, peer_of(plan_.mesh, rank, r->peer), rank));
  } else {
    costs_.push_back(cost.cost(work, bindings, rank));
  }
  return place;
}

const OpCost& OpCosts::operator[](std::size_t op) const {
  const auto behind =
      std::upper_bound(plan_.classes.begin(), plan_.classes.end(), op,
                       [](std::size_t i, const RankClass& c) { return i < c.first_op + std::size_t{c.num_ops}; });
  const std::span<const Known> mine = of_class(static_cast<std::size_t>(behind - plan_.classes.begin()));
  const WorkId work = plan_.ops[op].work;
  return costs_[std::lower_bound(mine.begin(), mine.end(), work, [](const Known& k, WorkId w) {
                  return k.work < w;
                })->cost];
}

void OpCosts::add_to(double& all, std::vector<double>& by_work) const {
  double sum = all;
  std::vector<double> seconds(plan_.works.size());  // of the works of the class at hand
  for (std::size_t c = 0; c < plan_.classes.size(); ++c) {
    for (const Known& k : of_class(c)) seconds[k.work.index()] = costs_[k.cost].duration.base();
    for (const Stretch& stretch : stretches_of(plan_, plan_.classes[c])) {
      const Op* first = &plan_.ops[stretch.like.is_none() ? stretch.first : stretch.like.index()];
      for (const Op& op : std::span{first, stretch.num_ops}) {
        sum += seconds[op.work.index()];
        by_work[op.work.index()] += seconds[op.work.index()];
      }
    }
  }
  all = sum;
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
    out.push_back({c.deviation, c.bias, group, c.memory});
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
    costs.add_to(all, by_work);
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
  const double software = has_experts(plan) ? machine.experts : machine.software;
  const double common = std::hypot(machine.drift, software, plan.mesh.size() > 1 ? machine.sharing : 0.0);
  const auto deviation = [&](const Timeline& one, const CriticalPath& path) {
    return makespan_interval(one, path, path_deviations(one, path, plan, costs), common).deviation;
  };
  if (steps.instances.size() == 1) return deviation(steps.timeline, steps.path);
  const Timeline one = packed(source.recording.timeline, {middle});
  return deviation(one, critical_path(one, plans, SpanGraph{one, plans}));
}

}  // namespace orrery
