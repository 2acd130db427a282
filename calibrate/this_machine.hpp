// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// What this computer says about itself.
Caches detected_caches();
std::string detected_processor();
/// Runs on a hypervisor: others may use its cores, its last cache and its memory.
bool is_virtual_machine();
/// Today as 2026-11-21.
std::string today();

}  // namespace orrery
