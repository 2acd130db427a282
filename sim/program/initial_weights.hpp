// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.hpp"

namespace orrery {

/// What a parameter starts with when no weights are loaded: zeros, ones, or normal numbers that depend on the seed and
/// on which parameter it is alone, so that every strategy starts from the same network.
std::vector<double> initial_values(const Model& model, ParameterId parameter, std::uint64_t seed);

}  // namespace orrery
