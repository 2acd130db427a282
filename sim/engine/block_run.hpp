// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/fair_share.hpp"
#include "sim/engine/memory_model.hpp"
#include "sim/engine/op_table.hpp"

namespace orrery {

/// How a block of ops runs on a rank when nothing disturbs it: found once, by running it alone, and replayed wherever
/// the block repeats. Times are picoseconds from the start of its first op. Ops that other simulated ranks take part in
/// are left out, and so is all of their streams.
struct BlockRun {
  struct Timing {
    std::int64_t start = 0, end = 0;
    std::uint32_t op = 0;  // in the block
  };

  bool may_replay = false;
  std::vector<std::uint32_t> streams;                // that it runs on; the first is Compute, which ends last
  std::array<std::uint32_t, kNumStreams> count{};    // records on each
  std::array<std::vector<Timing>, kNumStreams> ops;  // by record
  std::vector<StorageScript::Event> storage;         // in order
  std::vector<std::int64_t> storage_at;              // when
  MemoryModel::Script script;                        // found when it is replayed first
  std::vector<ResourceUse> uses;                     // the most that it asks of each resource at once
  std::int64_t duration = 0;
  std::uint32_t num_ops = 0, disturbed = 0;

  void note_storage(std::int64_t at, StorageScript::Event event) {
    storage.push_back(event);
    storage_at.push_back(at);
  }
  /// While it is being found: an op asks for this, and may have to share it.
  void note_use(std::span<const ResourceUse> wanted, const FairShare& shares, bool undisturbed);
};

/// A block that a rank replays.
struct Replay {
  BlockRun* run = nullptr;  // none: nothing is replayed
  const OpBlocks::Instance* block = nullptr;
  std::int64_t start_ps = 0;
  std::size_t storage_done = 0;

  const BlockRun::Timing& timing(std::uint32_t stream, std::uint32_t record) const {
    return run->ops[stream][record - block->first_record[stream]];
  }
  bool holds(std::uint32_t stream, std::uint32_t record) const {
    return run != nullptr && record - block->first_record[stream] < run->count[stream];
  }
};

}  // namespace orrery
