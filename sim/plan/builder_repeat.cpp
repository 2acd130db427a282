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
        out.others.push_back({operand});
      } else if (o.writes()) {
        own.write(TensorId{std::size_t{local}}, OpId{std::size_t{i}});
      } else {
        own.read(TensorId{std::size_t{local}}, OpId{std::size_t{i}}, op.stream);
      }
      ++operand;
    }
    here.num_others = static_cast<std::uint32_t>(out.others.size()) - here.first_other;
    const auto deps = plan_.deps_of(op);
    here.is_after = std::any_of(deps.begin(), deps.end(), [&](OpId d) { return d.value < first; });
    if (here.num_others > 0 || here.is_after) out.boundary.push_back(here);
  }
  const std::uint32_t first_operand = plan_.ops[first].first_operand;
  for (Recipe::Other& o : out.others)
    o.is_read = !written.contains(plan_.owner(plan_.operands[first_operand + o.operand].tensor()));
  const auto add = [&](std::uint32_t tensor, OpId op, bool writes) {
    out.last_uses.push_back({tensor, op.value, plan_.ops[first + op.value].stream, writes});
  };
  for (std::uint32_t t = 0; t < block.num_tensors; ++t) {
    const TensorId local{std::size_t{t}};
    if (const OpId writer = own.writer(local); !writer.is_none()) add(t, writer, true);
    own.for_each_reader(local, [&](OpId op) { add(t, op, false); });
  }
  return out;
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
  const Recipe& recipe = known->second;
  repeat_tensors(block, out, replaced);
  const bool may_write = repeat_operands(block, out, recipe, replaced);
  repeat_ops(block, out, recipe, may_write);
  // Whoever uses its tensors later comes after the ops of this block.
  for (const Recipe::Use& u : recipe.last_uses) {
    const TensorId mine{out.first_tensor.index() + u.tensor};
    const OpId op{out.first_op.index() + u.op};
    if (u.writes)
      uses_.write(mine, op);
    else
      uses_.read(mine, op, u.stream);
  }
  if (block.num_ops > 1) plan_.repetitions.push_back({out.first_op, block.first_op, block.num_ops});
  return end_block(out);
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
  const std::uint32_t operands_like = plan_.ops[first].first_operand;
  const std::size_t count = plan_.ops[first + block.num_ops - 1].first_operand +
                            plan_.ops[first + block.num_ops - 1].num_operands - operands_like;
  const std::size_t first_operand = plan_.operands.size() - count;
  plan_.ops.resize(out.first_op.index() + block.num_ops);
  const auto adds_nothing = [&](const Recipe::Other& other) {
    const Operand o = plan_.operands[first_operand + other.operand];
    return other.is_read && !may_write && o.tensor() == plan_.operands[operands_like + other.operand].tensor() &&
           uses_.writer(plan_.owner(o.tensor())).is_none();
  };
  auto boundary = recipe.boundary.begin();
  for (std::uint32_t i = 0; i < block.num_ops; ++i) {
    const Op& like = plan_.ops[first + i];
    Op& op = plan_.ops[out.first_op.index() + i];
    op = like;
    op.microbatch = microbatch_;
    op.first_operand = static_cast<std::uint32_t>(first_operand + (like.first_operand - operands_like));
    const OpId mine{out.first_op.index() + i};
    std::span<const Recipe::Other> others;
    bool is_alike = true;  // what it comes after
    if (boundary != recipe.boundary.end() && boundary->op == i) {
      others = std::span{recipe.others}.subspan(boundary->first_other, boundary->num_others);
      is_alike = !boundary->is_after && std::all_of(others.begin(), others.end(), adds_nothing);
      ++boundary;
    }
    if (is_alike) {
      op.first_dep = static_cast<std::uint32_t>(plan_.deps.size());
      for (std::uint32_t k = 0; k < like.num_deps; ++k)
        plan_.deps.push_back(OpId{std::size_t{plan_.deps[like.first_dep + k].value + later}});
      for (const Recipe::Other& other : others)
        note_use(plan_, uses_, plan_.operands[first_operand + other.operand], mine, op.stream);
      continue;
    }
    LatestOps before;
    for (const OpId d : plan_.deps_of(like))
      if (d.value >= first) before.add(OpId{std::size_t{d.value + later}}, plan_[d].stream);
    for (const Recipe::Other& other : others)
      add_order(plan_, uses_, plan_.operands[first_operand + other.operand], op.stream, before);
    before.write(plan_, op);
    for (const Recipe::Other& other : others)
      note_use(plan_, uses_, plan_.operands[first_operand + other.operand], mine, op.stream);
  }
}

}  // namespace orrery
