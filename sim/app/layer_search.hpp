// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/app/step_split.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// What a search layer by layer works with.
struct LayerSearch {
  const Model& model;
  std::int64_t batch = 1, devices_per_node = 1;
  std::function<SplitTrial(const StepSplit&)> predict;
};

/// The kind of each block of a transformer, counted from 0: those of one kind cost the same, by equal sizes of
/// parameters, windows and experts.
std::vector<std::size_t> kinds_of_blocks(const Model& model);

/// Ways of their own for some blocks of a split, as Galvatron and Galvatron-BMW choose them (arXiv 2211.13878,
/// 2307.02031): what they keep of the forward pass, what their replicas share, and, where the mesh has replicas and
/// matrices alone, how they put both on the ranks of a stage. What a way adds to the time and the memory of each stage
/// is the difference between predictions of all blocks of a kind in this way and in the split's; what a change between
/// meshes costs, of one in the middle of each stage. The fastest ways that should fit are predicted, and planned again
/// with what the plan was off by. `base` was predicted, and need not fit. All that was predicted, in any order.
std::vector<SplitTrial> search_layers(const LayerSearch& search, const SplitTrial& base);

}  // namespace orrery
