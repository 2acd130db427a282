// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/offload/first_use.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/strategy/offload/rewriter.hpp"

namespace orrery {
namespace {

class FirstUse {
 public:
  FirstUse(PlanRewriter& r, ClassId c, bool again)
      : plan_{r.from()}, r_{r}, class_{plan_.classes[c.index()]}, again_{again} {}

  void run() {
    find_last_touches();
    for (std::uint32_t i = 0; i < class_.num_ops; ++i) {
      if (is_sum(i)) continue;  // came behind what completed its gradient
      if (const auto filled = filled_late(i)) {
        waiting_[filled->value].push_back(i);
        continue;
      }
      bring_inputs(i);
      emit(i);
      const auto it = sums_behind_.find(i);
      if (it == sums_behind_.end()) continue;
      for (const std::uint32_t s : it->second) emit_sum(s);
    }
  }

 private:
  struct Gathered {
    std::uint32_t op;
    bool forward;  // in the forward pass
  };

  OpId id(std::uint32_t i) const { return OpId{std::size_t{class_.first_op + i}}; }
  std::span<const Operand> operands(std::uint32_t i) const { return plan_.operands_of(plan_[id(i)]); }
  const Tensor& owner(const Operand& o) const { return plan_.tensors[plan_.owner(o.tensor()).index()]; }

  bool is_collective(std::uint32_t i, std::initializer_list<CollectiveKind> kinds) const {
    const auto* work = std::get_if<Collective>(&plan_.work(plan_[id(i)]));
    return work != nullptr && std::find(kinds.begin(), kinds.end(), work->kind) != kinds.end();
  }
  bool gathers(std::uint32_t i) const {
    return is_collective(i, {CollectiveKind::AllGather, CollectiveKind::Broadcast});
  }

  /// Sums gradients of a pass, which nobody needs afterwards.
  bool is_sum(std::uint32_t i) const {
    if (!is_collective(i, {CollectiveKind::ReduceScatter, CollectiveKind::Reduce})) return false;
    const Tensor& from = owner(operands(i)[0]);
    return from.role == TensorRole::Gradient && !from.persistent;
  }

  /// What an op fills that can wait for the first use of it: gathered weights, padding of gradients.
  std::optional<TensorId> filled_late(std::uint32_t i) const {
    const bool weights = gathers(i);
    if (!weights && !std::holds_alternative<Fill>(plan_.work(plan_[id(i)]))) return {};
    const Operand& to = operands(i).back();
    if (owner(to).persistent || owner(to).role != (weights ? TensorRole::Parameter : TensorRole::Gradient)) return {};
    return plan_.owner(to.tensor());
  }

  void find_last_touches() {
    std::unordered_map<std::uint32_t, std::uint32_t> last;  // per owner: the op that touched it last
    for (std::uint32_t i = 0; i < class_.num_ops; ++i) {
      const bool sums = is_sum(i);
      std::uint32_t behind = 0;
      for (const Operand& o : operands(i)) {
        std::uint32_t& touched = last.try_emplace(plan_.owner(o.tensor()).value, 0).first->second;
        behind = std::max(behind, touched);
        if (!sums) touched = i;
      }
      if (sums) sums_behind_[behind].push_back(i);
    }
  }

  void bring_inputs(std::uint32_t i) {
    needed_.clear();
    for (const Operand& o : operands(i))
      if (auto w = waiting_.extract(plan_.owner(o.tensor()).value))
        needed_.insert(needed_.end(), w.mapped().begin(), w.mapped().end());
    std::sort(needed_.begin(), needed_.end());
    for (const std::uint32_t w : needed_) {
      fill(w, i);
      if (gathers(w)) gathered_[plan_.owner(operands(w).back().tensor()).value] = {w, is_forward(i)};
    }
    for (const Operand& o : operands(i)) gather_again(i, plan_.owner(o.tensor()));
  }

  bool is_forward(std::uint32_t i) const { return plan_[id(i)].phase == Phase::Forward; }

  /// What one pass has gathered is gone when the other one uses it.
  void gather_again(std::uint32_t i, TensorId filled) {
    const auto it = gathered_.find(filled.value);
    if (!again_ || it == gathered_.end() || it->second.forward == is_forward(i)) return;
    it->second.forward = is_forward(i);
    const Tensor& t = plan_.tensors[filled.index()];
    r_.put(filled, r_.builder().tensor(plan_.names[t.name], plan_.shape(filled), {.dtype = t.dtype, .role = t.role}));
    fill(it->second.op, i);
  }

  void fill(std::uint32_t i, std::uint32_t user) {
    emit(i, {.phase = plan_[id(user)].phase});
    if (plan_[id(i)].stream != Stream::Compute) r_.order(computed_);
  }

  void emit(std::uint32_t i, const OpChange& change = {}) {
    r_.emit(id(i), change);
    if (plan_[id(i)].stream != Stream::Compute) return;
    r_.order(std::exchange(summed_, OpId{}));
    computed_ = r_.last();
  }

  void emit_sum(std::uint32_t i) {
    emit(i);
    r_.order(computed_);
    summed_ = r_.last();
  }

  const Plan& plan_;
  PlanRewriter& r_;
  const RankClass& class_;
  bool again_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> sums_behind_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> waiting_;  // fills, by what they fill
  std::vector<std::uint32_t> needed_;                                      // of these, by the op at hand
  std::unordered_map<std::uint32_t, Gathered> gathered_;                   // by what they fill
  OpId computed_, summed_;  // the last op of the passes; a sum that the next one waits for
};

}  // namespace

Plan at_first_use(const Plan& plan, bool again, const WorkspaceModel* workspaces) {
  PlanRewriter r{plan};
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    r.begin_class(ClassId{c});
    FirstUse{r, ClassId{c}, again}.run();
    r.end_class();
  }
  return r.take(workspaces);
}

}  // namespace orrery
