// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/timeline/analysis.hpp"

namespace orrery {

/// Exposed, waiting, idle and busy times of each recorded rank over [0, makespan]; weights are left at 1.
std::vector<RankTime> attribute_time(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph);

}  // namespace orrery
