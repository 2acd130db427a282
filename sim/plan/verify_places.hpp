// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// What is wrong with views that have `places` (see RankView): one per position, inside of persistent tensors of the
/// view's type, which every op that touches the view has as operands.
std::vector<std::string> problems_of_places(const Plan& plan);

}  // namespace orrery
