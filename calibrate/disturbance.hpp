// SPDX-License-Identifier: Apache-2.0
// What others do on the cores while something is measured, taken out of the measurements.
#pragma once

#include <span>
#include <vector>

#include "calibrate/measure.hpp"
#include "hw_models/host_laws.hpp"

namespace orrery {

/// How much of what slows the cores an op feels: its time grows as (1 + disturbed)^exponent, an exponent per slot (see
/// slot_of). 1: as much as the fixed work that `disturbed` is told by; 0: nothing, as what waits for memory alone.
using Sensitivity = std::vector<double>;

/// The times of one op of this work as they are on a core that nobody else uses, by what its executions tell of how
/// much it feels.
std::vector<Observed> undisturbed(std::vector<Observed> samples, const Work& work);

/// From the differences between executions of the same op, all ops of a slot together; of slots with few measurements,
/// or in which nothing was slowed, that of all.
Sensitivity sensitivity_of(std::span<const MeasuredPlan> plans);

/// The times of a plan and its points as they are on cores that nobody else uses; an op's own exponent counts as far as
/// its executions tell one. An empty sensitivity: as measured. Returns the exponent of the plan: that of its ops, by
/// how long they take.
double summarise(MeasuredPlan& plan, const Sensitivity& sensitivity);

}  // namespace orrery
