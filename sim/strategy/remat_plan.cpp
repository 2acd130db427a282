// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/remat_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/base/option_error.hpp"
#include "sim/strategy/offload/rewriter.hpp"

namespace orrery {
namespace {

/// Programs of more nodes take CBC minutes.
constexpr int kMostBlocks = 6;

class Again {
 public:
  Again(const Plan& plan, const RematSolver& solver, Bytes budget)
      : plan_{plan}, solver_{solver}, budget_{budget}, r_{plan} {}

  Plan run(const WorkspaceModel* workspaces) {
    for (std::size_t c = 0; c < plan_.classes.size(); ++c) run_class(ClassId{c});
    return r_.take(workspaces);
  }

 private:
  struct Stage {
    std::size_t pass = 0, node = 0;
  };

  const RematSchedule& schedule_of(const RematGraph& graph);
  void run_class(ClassId c);
  void begin(const RematPass& pass, std::size_t stage);
  void make_again(const RematNode& node);

  const Plan& plan_;
  const RematSolver& solver_;
  Bytes budget_;
  PlanRewriter r_;
  std::vector<std::pair<RematGraph, RematSchedule>> known_;  // passes that are alike have one schedule
};

const RematSchedule& Again::schedule_of(const RematGraph& graph) {
  const auto it = std::find_if(known_.begin(), known_.end(), [&](const auto& k) { return k.first == graph; });
  if (it != known_.end()) return it->second;
  auto found = solver_.solve(graph, static_cast<std::int64_t>(budget_.base()));
  if (!found) {
    std::int64_t least = 0;  // of any one node
    for (int i = 0; i < graph.size(); ++i)
      least = std::max(least, graph.bytes[static_cast<std::size_t>(i)] + graph.extra_of(i));
    throw OptionError{
        {"activation_budget"},
        fmt::format("no way to compute a pass again was found within an activation_budget of {}", to_text(budget_)),
        fmt::format("one part of it alone takes {}: allow more", to_text(Bytes{double(least)}))};
  }
  known_.emplace_back(graph, std::move(*found));
  return known_.back().second;
}

/// The ops of a node that make activations, into new ones.
void Again::make_again(const RematNode& node) {
  std::unordered_map<std::uint32_t, bool> made;
  for (const OpId id : node.ops) {
    bool makes = false;
    for (const Operand& o : plan_.operands_of(plan_[id])) {
      const TensorId owner = plan_.owner(o.tensor());
      const Tensor& t = plan_.tensors[owner.index()];
      if (!o.writes() || !is_made_in_passes(plan_, owner)) continue;
      makes = true;
      if (!made.try_emplace(owner.value, true).second) continue;
      r_.put(owner, r_.builder().tensor(std::string{plan_.names[t.name]} + ".again", plan_.shape(owner),
                                        {.dtype = t.dtype, .role = t.role, .tier = t.tier}));
    }
    if (makes) r_.emit(id, {.phase = Phase::Recompute, .suffix = ".again"});
  }
}

void Again::begin(const RematPass& pass, std::size_t stage) {
  const RematSchedule& s = schedule_of(pass.graph);
  for (std::size_t i = 0; i < stage; ++i)
    if (s.made[stage][i]) make_again(pass.nodes[i]);
}

void Again::run_class(ClassId c) {
  r_.begin_class(c);
  const std::vector<RematPass> passes = remat_passes(plan_, c, kMostBlocks);
  std::unordered_map<std::uint32_t, Stage> stages;  // by their first op
  for (std::size_t p = 0; p < passes.size(); ++p)
    for (std::size_t n = 0; n < passes[p].nodes.size(); ++n) stages[passes[p].nodes[n].ops.front().value] = {p, n};
  const RankClass& rank_class = plan_.classes[c.index()];
  for (std::uint32_t i = 0; i < rank_class.num_ops; ++i) {
    const OpId id{std::size_t{rank_class.first_op + i}};
    if (const auto it = stages.find(id.value); it != stages.end()) begin(passes[it->second.pass], it->second.node);
    r_.emit(id);
  }
  r_.end_class();
}

}  // namespace

Plan make_again(const Plan& plan, const RematSolver& solver, Bytes budget, const WorkspaceModel* workspaces) {
  return Again{plan, solver, budget}.run(workspaces);
}

}  // namespace orrery
