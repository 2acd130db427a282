// SPDX-License-Identifier: Apache-2.0
// Which way to split a training step over the ranks of a cluster is fastest: `orrery search`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
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

struct SplitSearch {
  std::vector<SplitTrial> best;   // the fastest that fits of each mesh, fastest first
  std::vector<SplitTrial> small;  // of meshes with none what comes closest to fitting, closest first
  std::int64_t meshes = 0, fit_meshes = 0, tried = 0, fitting = 0;
  std::string refusal;  // why none was predicted
};

/// Every mesh by 1F1B, with each size of a microbatch and the least recomputation that fits; then whatever else a split
/// has, one thing after another, around the fastest meshes; then ways of their own for some of its blocks. Steps of
/// many microbatches are predicted from two shorter ones, but for the best of `rows` meshes, which are all that is
/// given.
SplitSearch search_splits(const Reproducer& reproducer, const TrainingRequest& request, const Model& model,
                          const SplitBounds& bounds, std::size_t rows,
                          const std::function<void(std::string_view, double)>& progress);

}  // namespace orrery
