// SPDX-License-Identifier: Apache-2.0
// What others do on the cores while something is measured, taken out of the measurements.
#pragma once

#include <span>
#include <vector>

#include "calibrate/measure.hpp"
#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// How much of what slows the cores ops feel: their time grows as (1 + disturbed)^exponent. 1: as much as the fixed
/// work that `disturbed` is told by; 0: nothing, as what waits for memory alone.
struct Sensitivity {
  Caches caches;
  std::vector<CoreSensitivity> slots;  // see slot_of; none: times stay as measured

  double of(const Point& p) const;
};

/// Times without what disturbed them, where they grow with this power of it: see Sensitivity. With a power above 1, of
/// what feels more than the fixed work tells, the quiet ones alone, or the less disturbed half.
std::vector<Observed> undisturbed(std::vector<Observed> samples, double exponent);
/// The times of one op of this work as they are on a core that nobody else uses, by what its executions tell of how
/// much it feels.
std::vector<Observed> undisturbed(std::vector<Observed> samples, const Work& work);

/// Seconds that the fixed work takes on a core as quiet as during the quiet ones of all these executions, whose
/// disturbances are told from one on which it takes `quiet_core`.
double quiet_core_of(std::span<const MeasuredPlan> plans, double quiet_core);

/// Tells disturbances from a core on which the fixed work takes `to` seconds instead of `from`.
void tell_from(std::vector<Observed>& samples, double from, double to);
void tell_from(MeasuredPlan& plan, double from, double to);

/// From the differences between executions of the same op, all ops of a slot together. Slots with few measurements, or
/// in which nothing was slowed, are taken to be like all; all, to feel what a core does as much as the fixed work.
Sensitivity sensitivity_of(std::span<const MeasuredPlan> plans, const Caches& caches);

/// The times of a plan and its points as they are on cores that nobody else uses; an op's own exponent counts as far as
/// its executions tell one, and that of the plan is that of its ops, by how long they take.
void summarise(MeasuredPlan& plan, const Sensitivity& sensitivity);

}  // namespace orrery
