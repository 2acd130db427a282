// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/app/network_sizes.hpp"
#include "sim/app/reproduction.hpp"

namespace orrery {

/// Bytes of each memory that a rank may use; 0: there is none.
struct FitRoom {
  double device = 0, host = 0, disk = 0;
};

/// What is to be trained, and on what.
struct FitRequest {
  Node model, cluster;  // documents, not names
  std::int64_t ranks = 1;
  std::int64_t batch = 1;  // samples per rank and step
  std::int64_t sequence = 1024;
  std::string dtype = "bf16";
  FitRoom room;
};

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
std::vector<MemoryWay> memory_ways(std::int64_t ranks, const FitRoom& room);

/// A step under one way and one kind of recomputation.
struct FitTrial {
  std::string recompute;
  std::string limit;              // what is too small, or why the way is not open; empty when it fits
  std::string slowed;             // what takes most of the time: "compute 83 %"
  std::vector<TierReport> tiers;  // peaks of a rank
  double step = 0, low = 0, high = 0, tokens_per_second = 0, mfu = 0;

  bool fits() const { return limit.empty(); }
};

/// Where a search ended.
struct LargestFit {
  std::int64_t value = 0;           // batch per rank, tokens, or parameters; 0: not even the smallest fits
  std::optional<NetworkSize> size;  // of a searched model
  std::string next;                 // what is too small for the next larger one; empty: none was tried
};

/// A way, with the kind of recomputation that is fastest of those that fit, else the one that comes closest.
struct FitRow {
  std::string name;
  FitTrial best;
  std::vector<FitTrial> trials;
  std::optional<LargestFit> largest;  // of a search; the row is then of that step
};

FitRow fit(const Reproducer& reproducer, const FitRequest& request, const MemoryWay& way);
/// The same for the largest batch, sequence or model with which it fits. A sequence is a multiple of 128 tokens.
FitRow fit_largest(const Reproducer& reproducer, const FitRequest& request, const MemoryWay& way, FitGrowth growth);

}  // namespace orrery
