// SPDX-License-Identifier: Apache-2.0
// Which way to split a training step over the ranks of a cluster is fastest: `orrery search`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/app/split_meshes.hpp"

namespace orrery {

struct SplitSearch {
  std::vector<SplitTrial> best;   // the fastest that fits of each mesh, fastest first
  std::vector<SplitTrial> small;  // of meshes with none what comes closest to fitting, closest first
  std::int64_t meshes = 0, fit_meshes = 0, tried = 0, fitting = 0;
  std::string refusal;  // why none was predicted
};

/// Every mesh by 1F1B, with each size of a microbatch and the least recomputation that fits; the same with `tiers` for
/// meshes that memory holds up; then whatever else a split has, one thing after another, around the fastest meshes;
/// then ways of their own for some of its blocks. Steps of many microbatches are predicted from two shorter ones, but
/// for the best of `rows` meshes, which are all that is given.
SplitSearch search_splits(const Reproducer& reproducer, const TrainingRequest& request, const Model& model,
                          const SplitBounds& bounds, const std::vector<TierWay>& tiers, std::size_t rows,
                          const std::function<void(std::string_view, double)>& progress);

}  // namespace orrery
