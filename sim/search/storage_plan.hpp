// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/engine/allocation_trace.hpp"

namespace orrery {

/// A block that is live over events [begin, end).
struct StoredBlock {
  std::int64_t bytes = 0, begin = 0, end = 0;
};

/// Fixed places for blocks: those that live together do not overlap.
struct StoragePlan {
  std::vector<std::int64_t> places;
  std::int64_t height = 0;  // largest end of a block
  std::int64_t bound = 0;   // no plan is lower: what is live at a time, or what a program has proved
  bool is_optimal() const { return height == bound; }
};

/// The most bytes that are live at a time.
std::int64_t most_live(const std::vector<StoredBlock>& blocks);

/// Places blocks one after another as low as those allow that were placed before: in several orders, of which the best
/// is improved by moving blocks that lie on top to the front, for 60 rounds at most. O(60 n²) at worst. Stops at the
/// bound.
StoragePlan plan_storage(const std::vector<StoredBlock>& blocks);

/// The same proved: minimise M under A_i + S_i ≤ M, and for each pair that lives together
///   A_i + S_i ≤ A_j + z_ij·C,  A_j + S_j ≤ A_i + (1 − z_ij)·C,   z_ij binary,
/// with C the height of the heuristic plan, which is the start. (MEMO, arXiv 2407.12117, section 4.3)
StoragePlan prove_storage(const std::vector<StoredBlock>& blocks, Seconds limit);

/// Blocks of a trace, over its events; those that are never given back live to its end.
std::vector<StoredBlock> blocks_of(const AllocationTrace& trace);

}  // namespace orrery
