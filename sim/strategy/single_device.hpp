// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/strategy.hpp"

namespace orrery {

std::unique_ptr<Strategy> make_single_device(const Node& options);
std::vector<OptionInfo> single_device_options();

}  // namespace orrery
