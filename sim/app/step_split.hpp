// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/tier_ways.hpp"
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

/// What may be made again in the backward pass; each needs less memory than the one before it.
inline constexpr const char* kRecomputations[] = {"none", "selective", "full"};

/// What a block of a model may do otherwise than the rest of it.
struct LayerWay {
  std::string mesh, data, recompute;  // empty mesh: the split's

  bool operator==(const LayerWay&) const = default;
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
  std::vector<std::int64_t> stage_layers;  // blocks of each part of the pipeline; empty: as even as can be
  std::vector<LayerWay> layers;            // per block; empty: all as above
  std::optional<TierWay> tiers;            // where tensors go that devices have no room for

  std::int64_t microbatches(std::int64_t batch) const { return batch / (mesh.replicas() * samples); }
  bool has_replicas() const { return mesh.replicas() * mesh.cp > 1; }
  /// What blocks do of which `layers` says nothing else.
  LayerWay way() const { return {"", data, recompute}; }
  /// An entry of `strategy` in a scenario, without what is as it is by default.
  std::string strategy() const;
  /// The value of `recompute`, with the key behind it that tells how many microbatches there are.
  std::string recomputation(std::int64_t microbatches) const;
  /// What is made again in the backward pass, for people: "full in 12 of 32, else none".
  std::string recomputed() const;
  /// What of it is neither mesh nor recomputation, for people: "zero-offload, interleaved 2, zero1".
  std::string rest() const;
  bool operator==(const StepSplit&) const = default;
};

/// The stage that each part of a pipeline of so many samples lies on, in the order of the blocks; one where there is no
/// pipeline.
std::vector<std::size_t> stages_of_parts(const StepSplit& split, std::int64_t batch);

/// Of so many blocks, those of each stage.
std::vector<std::int64_t> stage_sizes(const StepSplit& split, std::int64_t blocks, std::int64_t batch);

struct SplitTrial {
  StepSplit split;
  TrainingTrial trial;
  double bubble = 0;
  std::vector<StageReport> stages;  // with what is not reserved as room
};

}  // namespace orrery
