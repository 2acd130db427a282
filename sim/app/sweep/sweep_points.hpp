// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/app/sweep/sweep_plan.hpp"
#include "sim/app/sweep/sweep_server.hpp"
#include "sim/app/sweep/sweep_store.hpp"

namespace orrery {

/// A document whose names of files are absolute where there are such files: read elsewhere it means the same.
Node with_absolute_files(Node document);

/// A point that is known to be readable, or why it is not.
struct PreparedPoint {
  SweptPoint point;
  SweepTask task;
  std::string refusal;
};
/// Resolves points, which finds those that make no sense. `after` is told how far it is.
std::vector<PreparedPoint> prepare(const SweepPlan& plan, const std::vector<SweepPoint>& points,
                                   const Locations& locations, const std::function<void(double)>& after);

/// Predicts points with what this program has. `context` outlives it.
PointComputerOf point_computers(AppContext& context);

/// Part `part` of `parts`, which an id belongs to alone.
bool is_in_part(const std::string& id, std::int64_t part, std::int64_t parts);

}  // namespace orrery
