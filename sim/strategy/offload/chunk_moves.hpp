// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "sim/strategy/offload/chunk_trace.hpp"
#include "sim/strategy/offload/tier_strategy.hpp"

namespace orrery {

/// What a chunk comes as when it first comes in a step: its weights; its master copy, which the device rounds; the one
/// or the other, as it was on the device when its update began in the step before or was not. What comes as such a
/// master copy comes before the passes where these have room for it: all ranks at once, as behind their updates.
enum class FirstArrival : std::uint8_t { Weights, Master, MasterOfUpdated };

/// How chunks move.
struct ChunkTravel {
  HostMemory memory = HostMemory::Pinned;
  Stream in = Stream::Compute, out = Stream::Compute;
  bool early = false;       // a chunk leaves as soon as its gradients are complete; else when it is updated
  bool keep_clean = false;  // what has not changed on the device leaves without a copy
  FirstArrival first = FirstArrival::Weights;
  bool own_gradients = false;  // those of chunks that come and go have room of their own on the host; else their
                               // weights' place
  bool keeps_buffer = false;   // master copies come through room on the device that stays, for one at a time
  Tier states = Tier::Pinned;  // of chunks whose states do not stay on the device: host memory, or a disk
  std::int64_t buffers = 4;    // chunks whose states come from a disk and go back to it at once
};

struct ChunkDecision {
  std::vector<ChunkPlace> places;  // per chunk
  std::vector<CacheStep> steps;    // that the cache was planned for
  CachePlan cache;                 // arrivals and departures of chunks whose weights do not stay
  /// Chunks of room there are for those that come and go, each taken by one of them at a time; 0: room is a matter of
  /// the steps' capacities.
  std::int64_t blocks = 0;
};

/// What the plan of a class does with its chunks in one step.
struct ChunkCounts {
  std::int64_t chunks = 0;     // of weights
  std::int64_t on_device = 0;  // whose states stay on the device and are updated there
  std::int64_t resident = 0;   // whose weights stay on the device while others come and go
  bool cached = false;         // some weights come and go; else all stay on the device
  CachePlan cache;
  std::vector<CacheStep> steps;  // that the cache was planned for
  std::int64_t chunk_bytes = 0;  // of the largest chunk of weights
  std::int64_t came_wide = 0;    // arrivals as master copies
  std::int64_t written = 0;      // departures with a copy
};

/// What a strategy says of chunks: how they lie, where each is, and how they move.
struct ChunkRules {
  ChunkTravel travel;
  std::function<ChunkLayout(const Plan&, ClassId, const Updates&)> lay_out;
  std::function<ChunkDecision(const ChunkTrace&)> decide;
};

/// Puts weights, master copies and moments into chunks and moves them between device and host. The gradient of a weight
/// takes its place on the device when nobody reads that any more. `counts`, if not null, gets one entry per class.
Plan move_chunks(const Plan& plan, const ChunkRules& rules, const WorkspaceModel* workspaces,
                 std::vector<ChunkCounts>* counts = nullptr);

}  // namespace orrery
