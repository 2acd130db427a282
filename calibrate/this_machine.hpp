// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// What this computer says about itself.
Caches detected_caches();
std::string detected_processor();
/// Today as 2026-11-21.
std::string today();

}  // namespace orrery
