// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/repeated_block.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "sim/plan/operand_bits.hpp"

namespace orrery {
namespace {

/// Whether operands of `like`, but for those of others, are the same use of a tensor moved by as much.
bool has_moved_operands(const Operand* mine, const Operand* like, const RepeatedBlock& block, std::uint32_t by) {
  const std::uint32_t difference = difference_when_moved(by);
  std::uint32_t unlike = count_unlike(mine, like, block.num_operands, difference);
  for (const std::uint32_t k : block.others)
    unlike -= std::bit_cast<std::uint32_t>(mine[k]) - std::bit_cast<std::uint32_t>(like[k]) != difference ? 1u : 0u;
  return unlike == 0;
}

}  // namespace

MovedStretches::MovedStretches(const Plan& plan, const RankClass& c) {
  for (const Stretch& s : stretches_of(plan, c)) {
    Part& part = parts_.emplace_back(Part{s});
    if (s.like.is_none()) continue;
    const auto [known, is_new] = blocks_.try_emplace(s.like);
    if (is_new) known->second = repeated_block(plan, s.like, static_cast<std::uint32_t>(s.num_ops));
    const RepeatedBlock& block = known->second;
    if (s.moved != kNotMoved && !block.borrows && block.num_own > 0) part.block = &block;
  }
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
    for (std::uint32_t t = 0; t < out.num_own; ++t)
      if (out.owns(plan.tensors[out.first_own.index() + t].base)) out.views.push_back(t);
  }
  for (std::uint32_t k = 0; k < out.num_operands; ++k) {
    const bool has_owner = out.owns(plan.owner(operands[k].tensor()));
    if (out.owns(operands[k].tensor())) {
      out.borrows = out.borrows || !has_owner;
      continue;
    }
    out.others.push_back(k);
    out.lends = out.lends || has_owner;
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

bool BlockComparison::is_moved(const Repetition& r, const RepeatedBlock& block, TensorRange& touched) const {
  if (!block.is_contiguous || block.lends) return false;
  const Operand* const mine = plan_.operands.data() + r.first_operand;
  const Operand* const like = plan_.operands.data() + block.first_operand;
  for (const std::uint32_t k : block.others) {
    if (is_same(mine[k], like[k])) continue;
    if (mine[k].tensor().index() >= plan_.tensors.size() || !same_use(mine[k], like[k])) return false;
    touched.widen(plan_.owner(mine[k].tensor()));
  }
  if (block.num_own == 0) return true;
  const std::size_t first = std::size_t{block.first_own.value} + r.moved, end = first + block.num_own;
  if (end > plan_.tensors.size() || !has_moved_operands(mine, like, block, r.moved)) return false;
  touched.widen(TensorId{first});
  touched.widen(TensorId{end - 1});
  for (std::uint32_t k = 0; block.borrows && k < block.num_operands; ++k) touched.widen(plan_.owner(mine[k].tensor()));
  return has_moved_tensors(block, r.moved);
}

/// Mostly they are the same to the bit but for the owners of views.
bool BlockComparison::has_moved_tensors(const RepeatedBlock& block, std::uint32_t by) const {
  static_assert(sizeof(Tensor) == 16 && std::is_trivially_copyable_v<Tensor>);
  const Tensor* const like = plan_.tensors.data() + block.first_own.index();
  std::uint32_t unlike = count_unlike(like + by, like, 4 * std::size_t{block.num_own}, 0);
  for (const std::uint32_t v : block.views) unlike -= by != 0 && like[v + by].base.value - like[v].base.value == by;
  for (std::uint32_t t = 0; unlike > 0 && t < block.num_own; ++t)
    if (!is_moved_tensor(TensorId{std::size_t{block.first_own.value + t}}, block, by)) return false;
  return true;
}

bool BlockComparison::is_moved_tensor(TensorId t, const RepeatedBlock& block, std::uint32_t by) const {
  const TensorId mine{std::size_t{t.value + by}};
  if (!alike(mine, t)) return false;
  const TensorId base = plan_.tensors[t.index()].base, my_base = plan_.tensors[mine.index()].base;
  if (base.is_none() || my_base.is_none()) return base == my_base;
  return block.owns(base) ? my_base.value == base.value + by : alike(my_base, base);
}

}  // namespace orrery
