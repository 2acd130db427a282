// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/owner_classes.hpp"

#include <algorithm>
#include <unordered_map>

#include "sim/strategy/offload/rewriter.hpp"

namespace orrery {
namespace {

/// Where a bucket meets its owner: a broadcast reads what it keeps of it, a sum writes that.
const Operand* kept_operand(const Plan& plan, const Op& op) {
  const auto* work = std::get_if<Collective>(&plan.work(op));
  if (work == nullptr) return nullptr;
  if (work->kind == CollectiveKind::Broadcast) return &plan.operands_of(op).front();
  return work->kind == CollectiveKind::Reduce ? &plan.operands_of(op).back() : nullptr;
}

/// By storage that owners keep: which of them.
std::unordered_map<std::uint32_t, std::int64_t> roots_of(const Plan& plan) {
  std::unordered_map<std::uint32_t, std::int64_t> out;
  for (const Op& op : plan.ops)
    if (const Operand* kept = kept_operand(plan, op))
      out[plan.owner(kept->tensor()).value] = std::get<Collective>(plan.work(op)).root;
  return out;
}

}  // namespace

Plan split_owners(const Plan& plan, const std::vector<OwnerClass>& classes, const WorkspaceModel* workspaces) {
  const auto roots = roots_of(plan);
  PlanRewriter r{plan};
  std::vector<Operand> operands;
  for (std::size_t k = 0; k < classes.size(); ++k) {
    r.begin_class(ClassId{0}, classes[k].name, classes[k].ranges);
    for (std::size_t i = 0; i < plan.ops.size(); ++i) {
      const OpId id{i};
      const auto is_others = [&](const Operand& o) {
        const auto root = roots.find(plan.owner(o.tensor()).value);
        return root != roots.end() && root->second != static_cast<std::int64_t>(k);
      };
      const auto old = plan.operands_of(plan[id]);
      if (std::none_of(old.begin(), old.end(), is_others)) {
        r.emit(id);
      } else if (kept_operand(plan, plan[id]) == nullptr) {
        r.skip(id);
      } else {
        operands.clear();
        for (const Operand& o : old)
          if (!is_others(o)) operands.emplace_back(r[o.tensor()], o.access());
        r.emit_with(id, operands);
      }
    }
    r.end_class();
  }
  return r.take(workspaces);
}

}  // namespace orrery
