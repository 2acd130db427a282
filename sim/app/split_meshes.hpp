// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/app/step_split.hpp"

namespace orrery {

/// What a search is bounded by.
struct SplitBounds {
  std::int64_t devices_per_node = 1;  // tp stays within one
  std::int64_t layers = 1;            // pp has at most as many
  std::int64_t experts = 1;           // of a layer; ep divides them
};
SplitBounds split_bounds(const Model& model, std::int64_t devices_per_node);
/// All meshes of so many ranks within bounds that a batch of so many samples and such a sequence can be split by.
std::vector<SplitMesh> split_meshes(std::int64_t ranks, std::int64_t batch, std::int64_t sequence,
                                    const SplitBounds& bounds);

}  // namespace orrery
