// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "sim/strategy/offload/chunk_cache.hpp"
#include "sim/strategy/offload/chunk_layout.hpp"

namespace orrery {

/// What a step does, chunk by chunk: an op of the passes, a gradient that moves into the slot of its weight because
/// nobody reads that any more, an update, a chunk that the passes are through with.
enum class ChunkDeed : std::uint8_t { Emit, Stash, Update, GiveUp };
struct ChunkAction {
  ChunkDeed deed = ChunkDeed::Emit;
  OpId op;
  std::uint32_t index = 0;  // of an update; GiveUp: of a chunk
};
/// In the order of the plan; chunks are given up only where asked for.
std::vector<ChunkAction> chunk_actions(const Plan& plan, ClassId c, const Updates& updates, const ChunkLayout& layout,
                                       bool give_up);

/// Per action, and behind the last one: the first op of the passes from there on; none where there is none.
std::vector<OpId> next_of_passes(const Plan& plan, const std::vector<ChunkAction>& actions);
/// Per chunk: whether it leaves for its update, so that it has been on the device until then.
std::vector<bool> leaves_for_update(const std::vector<ChunkAction>& actions, const ChunkLayout& layout,
                                    const CachePlan& cache);

/// Where a chunk is between steps.
struct ChunkPlace {
  bool weights_stay = false;  // on the device; else on the host, and they come and go
  bool states_stay = false;   // on the device, where the update is then made; only where weights stay
};

/// What a policy decides from: one step per action.
struct ChunkTrace {
  const Plan& plan;
  ClassId rank_class;
  const Updates& updates;
  const ChunkLayout& layout;
  std::vector<std::int64_t> weight_bytes, state_bytes;  // per chunk; states with the master copy
  std::vector<std::int64_t> beside;                     // per step: bytes on the device beside chunks, now and next
  std::vector<std::int64_t> during;                     // the same now, without what the op before has read last
  std::vector<CacheStep> steps;                         // without capacities
  std::vector<std::int64_t> changed;                    // per step: bytes of the chunk that a gradient moves into
  std::vector<std::uint32_t> passes;  // per step: a forward or a backward pass of a microbatch, by number
  std::vector<std::uint32_t> ops;     // per step: its op, by place in the class

  /// Bytes of a chunk's master copy where it is wider than the weights; else 0.
  std::int64_t master_bytes(std::uint32_t chunk) const;
  /// The most that lies beside chunks.
  std::int64_t most_beside() const;
  /// Per step: the most bytes that may be on their way down: one chunk at a time, of those that gradients came into.
  std::vector<std::int64_t> on_their_way() const;
  /// The steps for chunks whose weights come and go, in so many bytes each.
  std::vector<CacheStep> moving(const std::vector<ChunkPlace>& places,
                                const std::function<std::int64_t(std::size_t)>& capacity) const;
};

ChunkTrace trace_chunks(const Plan& plan, ClassId c, const Updates& updates, const ChunkLayout& layout,
                        const std::vector<ChunkAction>& actions, const WorkspaceModel* workspaces,
                        Beside beside = Beside::All);

}  // namespace orrery
