// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "sim/plan/plan.hpp"

namespace orrery {

/// Bytes on a device of what the ops of a plan have live at once, without what persists.
Bytes most_live(const Plan& plan);

/// Bytes that a plan itself takes here, about.
std::size_t room_of(const Plan& plan);

}  // namespace orrery
