// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/strategy.hpp"

namespace orrery {

/// Any composition of the axes of parallelism on one mesh.
std::unique_ptr<Strategy> make_parallel(const Node& options);
std::vector<OptionInfo> parallel_options();

}  // namespace orrery
