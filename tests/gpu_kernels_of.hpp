// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery::testing {

/// The works of a plan for which the cuda device has no kernel.
std::vector<std::string> works_without_kernel(const Plan& plan);

}  // namespace orrery::testing
