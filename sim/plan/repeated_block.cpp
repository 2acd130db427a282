// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/repeated_block.hpp"

#include <algorithm>
#include <bit>

namespace orrery {
std::uint32_t difference_when_moved(std::uint32_t by) {
  return std::bit_cast<std::uint32_t>(Operand{TensorId{std::size_t{by}}, Access{}});
}

RepeatedBlock repeated_block(const Plan& plan, OpId first, std::uint32_t num_ops) {
  RepeatedBlock out;
  const std::span<const Op> ops{plan.ops.data() + first.index(), num_ops};
  out.first_operand = ops.empty() ? 0 : ops.front().first_operand;
  for (const Op& op : ops) {
    out.is_contiguous = out.is_contiguous && op.first_operand == out.first_operand + out.num_operands;
    out.num_operands += op.num_operands;
  }
  if (!out.is_contiguous) return out;
  const std::span<const Operand> operands{plan.operands.data() + out.first_operand, out.num_operands};
  TensorId last;
  const auto widen = [&](TensorId t) {
    out.first_own = std::min(out.first_own, t);  // none is the largest
    last = last.is_none() ? t : std::max(last, t);
  };
  for (std::uint32_t k = out.num_operands; k-- > 0;)
    if (operands[k].allocates()) {
      out.first_taken = k;
      widen(plan.owner(operands[k].tensor()));
    }
  if (!last.is_none()) {
    const TensorId first_owner = out.first_own, last_owner = last;
    for (const Operand& o : operands)
      if (const TensorId owner = plan.owner(o.tensor()); first_owner <= owner && owner <= last_owner) widen(o.tensor());
    out.num_own = last.value - out.first_own.value + 1;
  }
  for (std::uint32_t k = 0; k < out.num_operands; ++k) {
    if (out.owns(operands[k].tensor())) continue;
    out.others.push_back(k);
    out.lends = out.lends || out.owns(plan.owner(operands[k].tensor()));
  }
  return out;
}

BlockComparison::BlockComparison(const Plan& plan) : plan_{plan} {
  for (const Layout& l : plan.layouts) elements_.push_back(l.shape.elements());
}

bool BlockComparison::alike(TensorId x, TensorId y) const {
  const Tensor &s = plan_.tensors[x.index()], &t = plan_.tensors[y.index()];
  return (s.layout == t.layout || elements_[s.layout.index()] == elements_[t.layout.index()]) && s.dtype == t.dtype &&
         s.tier == t.tier && s.persistent == t.persistent;
}

bool BlockComparison::same_use(Operand x, Operand y) const {
  return x.access() == y.access() && x.allocates() == y.allocates() && x.frees() == y.frees() &&
         alike(x.tensor(), y.tensor()) && alike(plan_.owner(x.tensor()), plan_.owner(y.tensor()));
}

/// kNotMoved where tensors do not stand in for each other in this way, whatever the reason.
std::uint32_t BlockComparison::moved_by(const Repetition& r, const RepeatedBlock& block) const {
  std::uint32_t first_operand = plan_[r.first].first_operand;
  for (std::uint32_t i = 0, next = first_operand; i < r.num_ops; ++i) {
    const Op& op = plan_.ops[r.first.index() + i];
    if (!block.is_contiguous || op.first_operand != next) return kNotMoved;
    next += op.num_operands;
  }
  const Operand* const mine = plan_.operands.data() + first_operand;
  const Operand* const like = plan_.operands.data() + block.first_operand;
  const std::uint32_t by =
      block.num_own == 0 ? 0 : mine[block.first_taken].tensor().value - like[block.first_taken].tensor().value;
  std::uint32_t unlike = 0;  // operands that are not the same use of a tensor moved by as much
  const std::uint32_t difference = difference_when_moved(by);
  const auto is_unlike = [&](std::uint32_t k) -> std::uint32_t {
    return std::bit_cast<std::uint32_t>(mine[k]) - std::bit_cast<std::uint32_t>(like[k]) != difference;
  };
  for (std::uint32_t k = 0; k < block.num_operands; ++k) unlike += is_unlike(k);
  if (block.lends) return kNotMoved;
  for (const std::uint32_t k : block.others) {
    unlike -= is_unlike(k);
    if (std::bit_cast<std::uint32_t>(mine[k]) != std::bit_cast<std::uint32_t>(like[k]) && !same_use(mine[k], like[k]))
      return kNotMoved;
  }
  if (unlike > 0 || block.first_own.value + by + std::size_t{block.num_own} > plan_.tensors.size()) return kNotMoved;
  for (std::uint32_t t = 0; t < block.num_own; ++t)
    if (!is_moved(TensorId{std::size_t{block.first_own.value + t}}, block, by)) return kNotMoved;
  return by;
}

bool BlockComparison::is_moved(TensorId t, const RepeatedBlock& block, std::uint32_t by) const {
  const TensorId mine{std::size_t{t.value + by}};
  if (!alike(mine, t)) return false;
  const TensorId base = plan_.tensors[t.index()].base, my_base = plan_.tensors[mine.index()].base;
  if (base.is_none() || my_base.is_none()) return base == my_base;
  return block.owns(base) ? my_base.value == base.value + by : alike(my_base, base);
}

}  // namespace orrery
