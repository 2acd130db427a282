// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/search/storage_plan.hpp"

namespace orrery {

/// MEMO's plan of a step in two levels (arXiv 2407.12117, section 4.3). A pass over a layer is a run of events in which
/// blocks of that layer are taken; blocks that are born and die in it are its transient ones. First each pass is
/// planned alone, equal ones once; then the whole step, with the transient blocks of a pass as one that is as large as
/// its plan and lives as long as the pass. Places are fixed: nothing is asked of the device after the first step.
struct MemoryPlan {
  StoragePlan places;                 // of all blocks of the trace
  std::int64_t most_live = 0;         // no plan of these blocks can be lower
  std::int64_t skeletal_live = 0;     // the most that blocks take at a time which outlive their pass
  std::int64_t largest_pass = 0;      // the highest plan of a pass
  int passes = 0, kinds = 0;          // passes over layers, and those that differ
  int proved = 0;                     // kinds whose plan is as low as any
  std::int64_t transient_blocks = 0;  // blocks that die in their pass
};

/// `limit`: of each mixed-integer program, which runs where the heuristic does not reach the bound and there are at
/// most 40 blocks.
MemoryPlan plan_memory(const AllocationTrace& trace, Seconds limit);

/// The layer that a label names: 3 for "layers.3.mlp.up"; −1 where there is none.
int layer_of(const std::string& label);

}  // namespace orrery
