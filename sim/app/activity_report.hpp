// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/cuda/activities.hpp"

namespace orrery {

/// What CUPTI's records of a run came to, in lines: kernels, copies and fills; waits of the host and memory that was
/// asked for, and the ops that caused them, most first.
std::string to_text(const ActivityAccount& account);
nlohmann::json to_json(const ActivityAccount& account);

}  // namespace orrery
