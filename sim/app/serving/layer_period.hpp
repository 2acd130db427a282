// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/model.hpp"

namespace orrery {

/// Layers of a network: `lead` of them, then `period` of them so many times over.
struct LayerPeriod {
  std::int64_t lead = 0, period = 1, times = 1;
};

/// The fewest layers that stand for all: DeepSeek-V3 has three dense ones in front of 58 alike, hence 3 and 1.
LayerPeriod period_of(const std::vector<Block>& blocks);

/// The same decoder with its first layers only, and without the parameters of the others.
Model first_layers(Model model, std::int64_t layers);

}  // namespace orrery
