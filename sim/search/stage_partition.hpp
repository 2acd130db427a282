// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "sim/search/layer_plan.hpp"

namespace orrery {

/// What the layers of a stage run on.
struct StageDevice {
  double slowness = 1;                                           // seconds that it takes for one second of a layer
  std::int64_t room = std::numeric_limits<std::int64_t>::max();  // bytes
  double beside = 0;                                             // seconds that it takes without any layer
};

struct StagePartition {
  std::vector<std::int64_t> sizes;  // layers of each stage
  double slowest = 0, total = 0;    // seconds of the stage that takes longest, and of all stages
};

/// Layers, in their order, on devices, in theirs, so that the slowest stage is as fast as it can be and none takes more
/// bytes than it has room for; each stage gets at least `least` layers. Nothing where no partition fits. Exact, in
/// O(layers · devices · log): a bound on the slowest stage is halved until no number lies between one that can be met
/// and one that cannot. Of equally good partitions that with the least seconds of all stages together. Costs are not
/// below zero. What Sky Computing asks an integer program for (arXiv 2202.11836).
std::optional<StagePartition> partition_stages(std::span<const LayerCost> layers, std::span<const StageDevice> devices,
                                               std::int64_t least = 1);

/// The partitions that trade one for the other: the first has the least seconds of all stages together, each later one
/// a faster slowest stage, for as few more as that needs; the last is what `partition_stages` finds. A pipeline of m
/// microbatches takes about total + (m − 1)·slowest of one.
std::vector<StagePartition> stage_tradeoffs(std::span<const LayerCost> layers, std::span<const StageDevice> devices,
                                            std::int64_t least = 1);

}  // namespace orrery
