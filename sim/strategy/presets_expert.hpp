// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/preset.hpp"

namespace orrery {

/// n ranks share the batch as replicas do and hold E/n of the experts each. Tokens go to their experts by an all-to-all
/// and come back by another, 2(n − 1)/n·top_k·tokens·h elements per layer forward if experts are chosen evenly;
/// everything but the experts is a replica. Sources: GShard, arXiv 2006.16668; without dropped tokens MegaBlocks,
/// 2211.15841.
inline constexpr Preset kExpert{
    .name = "expert",
    .summary = "experts on different ranks: tokens go there and back by all-to-all",
    .splits = "ep",
    .also = "dp",
    .mesh = "ranks that hold experts: `ep4`; `dp2 ep4` with replicas of them",
    .options = "expert_buffer",
};

/// The same, with several replicas of hot experts: each rank has slots for so many, replicas of an expert share its
/// rows, and their gradients are summed over the ranks that have it. Where they go follows from how often the workload
/// says that experts are chosen; what is computed does not. Source: FlexMoE, arXiv 2304.03946.
inline constexpr Preset kFlexMoe{
    .name = "flexmoe",
    .summary = "replicas of hot experts on several ranks share their rows",
    .splits = "ep",
    .also = "dp",
    .mesh = "ranks that hold experts: `ep4`; `dp2 ep4` with replicas of them",
    .options = "expert_slots expert_buffer",
    .fix = [](ParallelOptions& p) { p.expert_slots = 2; },
};

}  // namespace orrery
