// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/plan/builder.hpp"

namespace orrery {

/// The ranks that keep one of so many buckets in turn.
struct OwnerClass {
  std::string name;
  std::vector<CoordRange> ranges;
};

/// A plan of one class whose ranks all keep, and update, every bucket that is broadcast from an owner and whose
/// gradients add up there (zero3 with `owners`), with a class for each owner: the k-th keeps what has root k, and does
/// nothing for the rest but to take part in its broadcasts and sums. Ops keep their order.
Plan split_owners(const Plan& plan, const std::vector<OwnerClass>& classes, const WorkspaceModel* workspaces);

}  // namespace orrery
