// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/plan/work.hpp"

namespace orrery {

constexpr std::int64_t kAnySize = -1;

/// How many elements each operand of an op has, in the order that the comment of its kind gives; kAnySize where the
/// kind does not say. Empty for kinds whose operands are not checked.
std::vector<std::int64_t> operand_sizes(const Work& work);

}  // namespace orrery
