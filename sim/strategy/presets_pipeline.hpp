// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/preset.hpp"

namespace orrery {

// Stages of a pipeline: blocks are cut into parts, microbatches pass them one behind another. The schedules with their
// idle times, activations and sources are in pipeline/README.md; each is a name here.

namespace detail {

inline constexpr std::string_view kStageMesh = "stages: `pp4`; `dp2 pp4` with replicas";

}  // namespace detail

inline constexpr Preset kGPipe{
    .name = "gpipe",
    .summary = "stages; all forward passes, then all backward passes",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "gpipe"; },
};

inline constexpr Preset kOneFOneB{
    .name = "1f1b",
    .summary = "stages; a backward pass after each forward one: activations of as many microbatches as stages",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "1f1b"; },
};

inline constexpr Preset kInterleaved{
    .name = "interleaved",
    .summary = "stages of several chunks each: less idle time, more messages",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "chunks stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "interleaved"; },
};

inline constexpr Preset kChimera{
    .name = "chimera",
    .summary = "two pipelines in opposite directions, every part twice",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "chimera"; },
};

inline constexpr Preset kZbH1{
    .name = "zb-h1",
    .summary = "1f1b whose weight gradients wait until a stage would be idle",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "zb-h1"; },
};

inline constexpr Preset kZbV{
    .name = "zb-v",
    .summary = "two chunks per stage in a V, weight gradients wait: hardly any idle time",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "zb-v"; },
};

inline constexpr Preset kDualPipe{
    .name = "dualpipe",
    .summary = "two directions, every part twice, forward passes beside backward ones",
    .splits = "pp",
    .also = "dp",
    .mesh = detail::kStageMesh,
    .options = "stage_layers",
    .fix = [](ParallelOptions& o) { o.schedule = "dualpipe"; },
};

}  // namespace orrery
