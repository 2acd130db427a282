// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/plan_room.hpp"

#include <algorithm>

namespace orrery {

Bytes most_live(const Plan& plan) {
  Bytes live, most;
  for (const Op& op : plan.ops_of(plan.classes.front())) {
    for (const Operand& o : plan.operands_of(op))
      if (o.allocates()) live += plan.size(plan.owner(o.tensor()));
    most = std::max(most, live);
    for (const Operand& o : plan.operands_of(op))
      if (o.frees()) live -= plan.size(plan.owner(o.tensor()));
  }
  return most;
}

std::size_t room_of(const Plan& p) {
  constexpr std::size_t kName = 50;  // about, with its table
  return p.ops.size() * sizeof(Op) + p.operands.size() * sizeof(Operand) + p.tensors.size() * sizeof(Tensor) +
         p.works.size() * sizeof(Work) + p.names.size() * kName;
}

}  // namespace orrery
