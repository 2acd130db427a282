// SPDX-License-Identifier: Apache-2.0
// Training steps over windows of documents: which are legal, who gets which windows, and who waits for whom.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/strategy/stage.hpp"

namespace orrery {

/// Throws OptionError with the reason unless all attention can be told which documents a window holds.
void check_packing(const StepPlan& step);

/// Ranks wait for each other behind a step, and within it where each microbatch exchanges weights or rows of experts.
PackedStep packed_step(const StepPlan& step);

/// Ranks of which all or none are the first on some axes.
struct PackedRanks {
  std::vector<CoordRange> ranges;
  bool slowest = false;
};

/// Of some ranks those that are the first on all of `axes`, and the others as few boxes.
std::vector<PackedRanks> packed_ranks(const std::vector<CoordRange>& ranks, std::span<const std::int8_t> axes);

/// How many ranks of a plan have samples of their own, and which sample of a batch the k-th window of a step is: the
/// k-th, so that all meshes train alike, but where windows are balanced: then those of one rank stand behind one
/// another. Ranks that have the same samples, or parts of them, count once.
struct SampleOrder {
  std::int64_t ranks = 1;
  std::vector<std::int64_t> samples;
};
SampleOrder sample_order(const Plan& plan, const TrainOptions& train);

}  // namespace orrery
