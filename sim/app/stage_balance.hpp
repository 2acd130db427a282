// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "sim/app/step_split.hpp"

namespace orrery {

/// What stages of a pipeline are balanced with.
struct StageBalance {
  std::int64_t blocks = 1, batch = 1;
  std::function<SplitTrial(const StepSplit&)> predict;
};

/// Other numbers of blocks for the stages of a split, in balance between time and memory, as Galvatron-BMW wants them
/// (arXiv 2307.02031): where stage i of 1F1B holds p − i microbatches, equal stages leave memory of the last ones
/// unused. Seconds and bytes of a stage are taken to be linear in its blocks, from two predictions with different ones.
/// Predicted are the partition whose fullest stage has most room left, those of all trade-offs between the slowest
/// stage and the sum of all that should be fastest (a step of m microbatches takes about (sum + (m − 1)·slowest)/m),
/// and, from the fastest and from the emptiest that fits, those with one block elsewhere, as long as that is faster.
/// `base` was predicted, and need not fit. All that was predicted, in any order; nothing where there is one stage.
std::vector<SplitTrial> balance_stages(const StageBalance& ask, const SplitTrial& base);

}  // namespace orrery
