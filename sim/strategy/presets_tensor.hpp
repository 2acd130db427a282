// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/preset.hpp"

namespace orrery {

/// Megatron-LM: t ranks share each matrix, the first of a pair by columns, the second by rows, heads and vocabulary with
/// them. A block of b·s rows and width h sums b·s·h elements over t twice forward and twice backward; with
/// `sequence_parallel` each sum is a reduce-scatter and an all-gather, and what lies between blocks is divided by t.
/// Sources: arXiv 1909.08053; sequence parallelism 2205.05198.
inline constexpr Preset kTensor{
    .name = "tensor",
    .summary = "matrices split by columns, then rows (Megatron), activations too with sequence_parallel",
    .splits = "tp",
    .also = "dp",
    .mesh = "ranks that share each matrix: `tp4`; `dp2 tp4` with replicas",
    .options = "sequence_parallel",
};

}  // namespace orrery
