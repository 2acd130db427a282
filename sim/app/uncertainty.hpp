// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "hw_models/cluster_cost_model.hpp"
#include "sim/app/session.hpp"
#include "sim/timeline/interval.hpp"

namespace orrery {

/// Costs of one plan's ops under bindings, one per op of the plan; the rank is the first of the op's class.
std::vector<OpCost> op_costs(const CostModel& cost, const Plan& plan, const Bindings& bindings);

/// The deviations of the spans of one instance. Ops of one kind that share a fit err together.
std::vector<SpanDeviation> span_deviations(const Timeline& timeline, const Plan& plan, const std::vector<OpCost>& costs);

/// How far a prediction lies inside of what its parameters were fitted on.
struct CalibrationCover {
  bool all_calibrated = true;
  std::vector<std::string> reasons;  // why not, each once
};
CalibrationCover extrapolations(const CostModel& cost, const std::vector<const Plan*>& plans, const Recording& recording);

}  // namespace orrery
