// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/network_sizes.hpp"
#include "sim/app/training_request.hpp"

namespace orrery {

/// What may be searched for the largest that fits.
enum class FitGrowth : std::uint8_t { Batch, Sequence, Model };

/// One way to keep a model's data in memory, as a strategy of a scenario.
struct MemoryWay {
  std::string name, strategy;
  bool budgeted = true;     // activations can be given what others leave of the device: `recompute: rotor`
  bool recomputes = false;  // says itself what runs again
};
/// On one rank, or several: replicas and their shards, and every registered strategy that moves tensors of such steps
/// to other tiers.
std::vector<MemoryWay> memory_ways(std::int64_t ranks, const MemoryRoom& room);

/// Where a search ended.
struct LargestFit {
  std::int64_t value = 0;           // samples per rank and microbatch, tokens, or parameters; 0: none fits
  std::optional<NetworkSize> size;  // of a searched model
  std::string next;                 // what is too small for the next larger one; empty: none was tried
};

/// A way, with the kind of recomputation that is fastest of those that fit, else the one that comes closest.
struct FitRow {
  std::string name;
  TrainingTrial best;
  std::vector<TrainingTrial> trials;
  std::optional<LargestFit> largest;  // of a search; the row is then of that step
};

FitRow fit(const Reproducer& reproducer, const TrainingRequest& request, const MemoryWay& way);
/// The same for the largest batch, sequence or model with which it fits. A sequence is a multiple of 128 tokens.
FitRow fit_largest(const Reproducer& reproducer, const TrainingRequest& request, const MemoryWay& way,
                   FitGrowth growth);

}  // namespace orrery
