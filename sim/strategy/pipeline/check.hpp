// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

/// Why a schedule cannot be executed; empty: it can. Proven are: every part runs forward exactly once for every
/// microbatch, and backward (or input and weight gradient) exactly once, all at the part's home; and stages that
/// execute their lists in order, waiting for what other stages send, come to the end of them. A pair starts when both
/// of its actions can.
std::vector<std::string> check(const Schedule& schedule);

}  // namespace orrery
