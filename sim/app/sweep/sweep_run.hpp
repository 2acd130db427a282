// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/sweep/sweep_points.hpp"

namespace orrery {

/// How points of a sweep are computed.
struct SweepRun {
  std::string folder;
  std::size_t jobs = 1;      // points at once on this computer; 0: others do all of it
  double point_timeout = 0;  // seconds; 0: none
  std::optional<ListenAt> listen;
  std::string token;                                     // file; empty: that of the folder
  std::function<void(std::size_t point)> on_point = {};  // may be null; told of each point that has a record
};

/// Computes the last points of `sweep`, which `prepared` are, as far as they have no record: each id once, refusals
/// without asking anybody. Records go to `shard` and to `sweep`.
void compute_points(const SweepPlan& plan, const std::vector<PreparedPoint>& prepared, const SweepRun& run,
                    ShardFile& shard, SweepResults& sweep, AppContext& context);

}  // namespace orrery
