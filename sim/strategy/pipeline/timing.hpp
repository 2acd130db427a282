// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "sim/strategy/pipeline/schedule.hpp"

namespace orrery {

/// Relative durations of the passes of one chunk, for pictures and closed forms; the engine has the real ones.
struct PassCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1;
  double hop = 0;  // from one stage to another, between the end of a pass and the start of the one that waits for it
  /// Duration of a forward and a backward that overlap; nothing: one runs after the other.
  std::optional<double> pair;
  /// Share of a chunk's activations that is still needed after the input gradient (M_W / M_B of the zero bubble paper).
  double kept = 1;
};

struct TimeRange {
  double start = 0, end = 0;
};

struct StageTiming {
  double busy = 0;
  double idle = 0;  // the bubble: makespan − busy
  double gap = 0;   // idle time between the stage's first and last action
  double peak = 0;  // activations held at once, in those of one chunk and microbatch
};

struct Timing {
  std::vector<std::vector<TimeRange>> actions;  // as in the schedule
  std::vector<StageTiming> stages;
  double makespan = 0;

  /// Idle share of all stages over the makespan.
  double bubble() const;
  /// The most activations that a stage holds.
  double peak() const;
};

/// When everything happens if every action starts as soon as its stage is free and its needs are met:
///
///   start = max(end of the stage's action before, end of each need (+ hop if from another stage))
///
/// What a chunk keeps for its backward lives from the start of its forward to the end of its backward or weight
/// gradient; the input gradient frees 1 − kept of it. Left out: that sends and receives take turns on a link. The
/// schedule must pass `check`.
Timing time_schedule(const Schedule& schedule, const PassCosts& costs = {});

}  // namespace orrery
