// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/preset.hpp"

namespace orrery {

// n replicas of a model of P parameters, each with its share of the batch. In bf16 with AdamW a rank keeps weights
// (2P), gradients (2P) and, in f32, master weights and two moments (12P bytes); what a strategy splits is divided by n.
// Ranks of `fsdp` split it, those of `dp` keep copies; with one of the two alone it is the one that splits. Sent per
// rank and step: 2(n − 1)/n of the gradients' bytes, in zero3 3(n − 1)/n. Sources: ZeRO, arXiv 1910.02054; DDP,
// 2006.15704; FSDP and hybrid sharding, 2304.11277.

inline constexpr Preset kDdp{
    .name = "ddp",
    .summary = "replicas; gradients are all-reduced in buckets beside the backward pass",
    .splits = "dp",
    .also = "",
    .mesh = "replicas: `dp4`",
    .options = "bucket",
};

inline constexpr Preset kZero1{
    .name = "zero1",
    .summary = "replicas that split the optimizer states",
    .splits = "dp fsdp",
    .also = "",
    .mesh = "replicas: `dp4`; `dp2 fsdp4` splits over groups of 4 and keeps 2 copies",
    .options = "bucket owners",
    .fix = [](ParallelOptions& o) { o.data.kind = DataKind::Zero1; },
};

inline constexpr Preset kZero2{
    .name = "zero2",
    .summary = "replicas that split optimizer states and gradients",
    .splits = "dp fsdp",
    .also = "",
    .mesh = kZero1.mesh,
    .options = "bucket",
    .fix = [](ParallelOptions& o) { o.data.kind = DataKind::Zero2; },
};

inline constexpr Preset kZero3{
    .name = "zero3",
    .summary = "replicas that split weights too and gather them before use (FSDP; hybrid with two axes)",
    .splits = "fsdp dp",
    .also = "",
    .mesh = "replicas: `fsdp4`; `dp2 fsdp4` splits over groups of 4 and keeps 2 copies (hybrid sharding)",
    .options = "bucket part prefetch reshard",
    .fix = [](ParallelOptions& o) { o.data.kind = DataKind::Zero3; },
};

}  // namespace orrery
