// SPDX-License-Identifier: Apache-2.0
// PlanBuilder: blocks of ops that are added again.
#include <algorithm>
#include <set>

#include "sim/plan/builder.hpp"
#include "sim/plan/latest_ops.hpp"
#include "sim/plan/operand_bits.hpp"

namespace orrery {

TensorId replace(TensorId t, std::span<const Replacement> replaced) {
  for (const Replacement& r : replaced)
    if (t.value - r.from.value < r.count) return TensorId{std::size_t{t.value - r.from.value + r.to.value}};
  return t;
}

OpBlock PlanBuilder::end_block(OpBlock block) const {
  block.num_ops = static_cast<std::uint32_t>(plan_.ops.size() - block.first_op.index());
  block.num_tensors = static_cast<std::uint32_t>(plan_.tensors.size() - block.first_tensor.index());
  return block;
}

PlanBuilder::Recipe PlanBuilder::recipe_of(const OpBlock& block) const {
  Recipe out;
  LastUses own;
  const std::uint32_t first = block.first_op.value, first_own = block.first_tensor.value;
  own.resize(block.num_tensors);
  out.first_tensor = block.first_tensor;
  std::uint32_t operand = 0;
  std::set<TensorId> written;
  for (std::uint32_t i = 0; i < block.num_ops; ++i) {
    const Op& op = plan_.ops[first + i];
    Recipe::Boundary here{i, static_cast<std::uint32_t>(out.others.size())};
    for (const Operand& o : plan_.operands_of(op)) {
      const TensorId owner = plan_.owner(o.tensor());
      const std::uint32_t local = owner.value - first_own;
      if (local >= block.num_tensors) {
        if (o.writes()) written.insert(owner);
        out.others.push_back({operand, owner});
      } else {
        note_use(own, TensorId{std::size_t{local}}, o.writes(), OpId{std::size_t{i}}, op.stream);
      }
      ++operand;
    }
    here.num_others = static_cast<std::uint32_t>(out.others.size()) - here.first_other;
    const auto deps = plan_.deps_of(op);
    here.is_after = std::any_of(deps.begin(), deps.end(), [&](OpId d) { return d.value < first; });
    if (here.num_others > 0 || !deps.empty()) out.boundary.push_back(here);
  }
  for (Recipe::Other& o : out.others) o.is_read = !written.contains(o.owner);
  const auto add = [&](OpId op, bool writes) {
    out.last_uses.push_back({op.value, plan_.ops[first + op.value].stream, writes});
  };
  for (std::uint32_t t = 0; t < block.num_tensors; ++t) {
    const TensorId local{std::size_t{t}};
    out.first_use.push_back(static_cast<std::uint32_t>(out.last_uses.size()));
    if (const OpId writer = own.writer(local); !writer.is_none()) add(writer, true);
    own.for_each_reader(local, [&](OpId op) { add(op, false); });
  }
  out.first_use.push_back(static_cast<std::uint32_t>(out.last_uses.size()));
  return out;
}

/// Whoever uses a tensor of a copy later comes after the ops of the copy.
void PlanBuilder::note_copied(const Copy& copy, std::uint32_t tensor) {
  const Recipe& recipe = *copy.recipe;
  const TensorId mine{copy.block.first_tensor.index() + tensor};
  for (std::uint32_t u = recipe.first_use[tensor]; u < recipe.first_use[tensor + 1]; ++u) {
    const Recipe::Use& use = recipe.last_uses[u];
    note_use(uses_, mine, use.writes, OpId{copy.block.first_op.index() + use.op}, use.stream);
  }
}

/// Somebody is about to use this storage: if it is that of a tensor of a copy, its uses there are noted, and from here
/// on for all copies.
void PlanBuilder::recall(TensorId owner) {
  if (copies_.empty() || !uses_.is_fresh(owner)) return;
  const auto behind = std::upper_bound(copies_.begin(), copies_.end(), owner,
                                       [](TensorId t, const Copy& c) { return t < c.block.first_tensor; });
  if (behind == copies_.begin()) return;
  const Copy& copy = *std::prev(behind);
  const std::uint32_t tensor = owner.value - copy.block.first_tensor.value;
  if (tensor >= copy.block.num_tensors || copy.recipe->first_use[tensor] == copy.recipe->first_use[tensor + 1]) return;
  note_copied(copy, tensor);
  std::vector<std::uint32_t>& lent = copy.recipe->lent;
  if (std::find(lent.begin(), lent.end(), tensor) == lent.end()) lent.push_back(tensor);
}

/// Tensors of its own for those of the block.
void PlanBuilder::repeat_tensors(const OpBlock& block, const OpBlock& out, std::span<const Replacement> replaced) {
  const std::uint32_t own = block.first_tensor.value, moved = out.first_tensor.value - own;
  plan_.tensors.resize(plan_.tensors.size() + block.num_tensors);
  for (std::uint32_t i = 0; i < block.num_tensors; ++i) {
    Tensor t = plan_.tensors[own + i];
    if (!t.base.is_none())
      t.base = t.base.value - own < block.num_tensors ? TensorId{std::size_t{t.base.value + moved}}
                                                      : replace(t.base, replaced);
    plan_.tensors[out.first_tensor.index() + i] = t;
  }
  uses_.resize(plan_.tensors.size());
}

OpBlock PlanBuilder::repeat(const OpBlock& block, std::span<const Replacement> replaced) {
  const OpBlock out = begin_block();
  if (block.num_ops == 0) return end_block(out);
  const auto [known, is_new] = recipes_.try_emplace({block.first_op, block.num_ops});
  if (is_new) known->second = recipe_of(block);
  Recipe& recipe = known->second;
  repeat_tensors(block, out, replaced);
  const bool may_write = repeat_operands(block, out, recipe, replaced);
  repeat_ops(block, out, recipe, may_write);
  if (block.num_ops > 1) plan_.repetitions.push_back({out.first_op, block.first_op, block.num_ops});
  copies_.push_back({end_block(out), &recipe});
  for (const std::uint32_t tensor : recipe.lent) note_copied(copies_.back(), tensor);
  return copies_.back().block;
}

/// Operands of the ops to come: tensors of the block's own are moved, others replaced. Whether what is replaced is
/// written.
bool PlanBuilder::repeat_operands(const OpBlock& block, const OpBlock& out, const Recipe& recipe,
                                  std::span<const Replacement> replaced) {
  const Op &first = plan_[block.first_op], &last = plan_.ops[block.first_op.index() + block.num_ops - 1];
  const std::uint32_t count = last.first_operand + last.num_operands - first.first_operand;
  const std::size_t begin = plan_.operands.size();
  plan_.operands.resize(begin + count);
  const Operand* const like = plan_.operands.data() + first.first_operand;
  Operand* const mine = plan_.operands.data() + begin;
  const std::uint32_t moved = out.first_tensor.value - block.first_tensor.value;
  copy_moved(mine, like, count, difference_when_moved(moved));
  bool may_write = false;
  TensorId lowest;                                                          // of what is replaced
  for (const Replacement& r : replaced) lowest = std::min(lowest, r.from);  // none is the largest
  for (const Recipe::Other& other : recipe.others) {
    const Operand o = like[other.operand];
    if (o.tensor() < lowest && o.tensor() < block.first_tensor) {
      mine[other.operand] = o;
      continue;
    }
    if (o.tensor().value - block.first_tensor.value < block.num_tensors) continue;  // a view of what is replaced
    const TensorId instead = replace(o.tensor(), replaced);
    mine[other.operand] = {instead, o.access()};
    may_write = may_write || (o.writes() && instead != o.tensor());
  }
  return may_write;
}

/// What an op comes after inside of the block it comes after again; only operands of others can add to that. Where all
/// of the block read the same storage as the block that it is like, and nothing has ever written it, they add nothing.
void PlanBuilder::repeat_ops(const OpBlock& block, const OpBlock& out, const Recipe& recipe, bool may_write) {
  const std::uint32_t first = block.first_op.value, later = out.first_op.value - first;
  const Op& last = plan_.ops[first + block.num_ops - 1];
  const std::uint32_t operands_like = plan_.ops[first].first_operand,
                      count = last.first_operand + last.num_operands - operands_like,
                      moved = static_cast<std::uint32_t>(plan_.operands.size()) - count - operands_like;
  plan_.ops.insert(plan_.ops.end(), block.num_ops, Op{});
  std::uint32_t next = 0;
  const auto copy_until = [&](std::uint32_t end) {
    for (; next < end; ++next) {
      Op& op = plan_.ops[out.first_op.index() + next];
      op = plan_.ops[first + next];
      op.microbatch = microbatch_;
      op.first_operand += moved;
      op.first_dep = static_cast<std::uint32_t>(plan_.deps.size());
    }
  };
  const Operand* const like = plan_.operands.data() + operands_like;
  const Operand* const mine = like + moved;
  for (const Recipe::Boundary& b : recipe.boundary) {
    copy_until(b.op + 1);
    Op& op = plan_.ops[out.first_op.index() + b.op];
    const std::span others{recipe.others.data() + b.first_other, b.num_others};
    touched_.clear();
    bool is_alike = !b.is_after;  // what it comes after
    for (const Recipe::Other& other : others) {
      const TensorId t = mine[other.operand].tensor();
      const bool is_same = t == like[other.operand].tensor();
      const TensorId owner = touched_.emplace_back(is_same ? other.owner : plan_.owner(t));
      recall(owner);
      is_alike = is_alike && other.is_read && !may_write && is_same && uses_.writer(owner).is_none();
    }
    const OpId op_like{std::size_t{first + b.op}};
    if (is_alike) {
      for (std::uint32_t k = 0; k < op.num_deps; ++k)
        plan_.deps.push_back(OpId{std::size_t{plan_.deps[plan_[op_like].first_dep + k].value + later}});
    } else {
      LatestOps before;
      for (const OpId d : plan_.deps_of(plan_[op_like]))
        if (d.value >= first) before.add(OpId{std::size_t{d.value + later}}, plan_[d].stream);
      for (std::size_t k = 0; k < others.size(); ++k)
        add_order(plan_, uses_, mine[others[k].operand], touched_[k], op.stream, before);
      before.write(plan_, op);
    }
    const OpId id{out.first_op.index() + b.op};
    for (std::size_t k = 0; k < others.size(); ++k)
      note_use(uses_, touched_[k], mine[others[k].operand].writes(), id, op.stream);
  }
  copy_until(block.num_ops);
}

}  // namespace orrery
