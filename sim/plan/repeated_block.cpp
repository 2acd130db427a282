// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/repeated_block.hpp"

#include <algorithm>

namespace orrery {

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
  for (std::uint32_t k = 0; k < out.num_operands; ++k)
    if (!out.owns(operands[k].tensor())) out.others.push_back(k);
  return out;
}

}  // namespace orrery
