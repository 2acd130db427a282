// SPDX-License-Identifier: Apache-2.0
// Which way to split a training step over the ranks of a cluster is fastest: `orrery search`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/app/training_request.hpp"

namespace orrery {

/// The ranks of each axis of a mesh: stages, replicas, replicas with experts of their own, parts of a sequence, parts
/// of a matrix. Neighbours on the last one have consecutive ranks.
struct SplitMesh {
  std::int64_t pp = 1, dp = 1, ep = 1, cp = 1, tp = 1;

  std::int64_t replicas() const { return dp * ep; }
  /// "pp2 dp8 tp4"; "" for one rank.
  std::string text() const;
  bool operator==(const SplitMesh&) const = default;
};

/// One way to split a training step.
struct StepSplit {
  SplitMesh mesh;
  std::int64_t samples = 1;       // of a microbatch, per replica
  std::string schedule = "1f1b";  // of pp
  std::int64_t chunks = 0;        // per stage, of interleaved
  std::string data = "zero1";     // what replicas share
  std::int64_t bucket = 25'000'000;
  std::string recompute = "none", context = "ring";
  bool sequence_parallel = true, tensor_overlap = false, tp_comm_overlap = true;

  std::int64_t microbatches(std::int64_t batch) const { return batch / (mesh.replicas() * samples); }
  /// An entry of `strategy` in a scenario, without what is as it is by default.
  std::string strategy() const;
  /// The value of `recompute`, with the key behind it that tells how many microbatches there are.
  std::string recomputation(std::int64_t microbatches) const;
  /// What of it is neither mesh nor recomputation, for people: "interleaved 2, zero1".
  std::string rest() const;
  bool operator==(const StepSplit&) const = default;
};

struct SplitTrial {
  StepSplit split;
  TrainingTrial trial;
  double bubble = 0;
};

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
/// has, one thing after another, around the fastest meshes. Steps of many microbatches are predicted from two shorter
/// ones, but for the best of `rows` meshes, which are all that is given.
SplitSearch search_splits(const Reproducer& reproducer, const TrainingRequest& request, const SplitBounds& bounds,
                          std::size_t rows, const std::function<void(std::string_view, double)>& progress);

}  // namespace orrery
