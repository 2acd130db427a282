// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/measure.hpp"
#include "hw_models/host_model.hpp"

namespace orrery {

/// A measured step beside the sum of its ops' predictions.
StepCheck check_step(const HostModel& model, const MeasuredPlan& step);

/// Decides which part of the laws' errors ops of a law share, so that 90 % intervals of whole steps, drift and errors
/// of measuring included, hold 90 % of them: with σ of one op,
///
///   bias = ρ·σ·λ,  deviation = √(1 − ρ²)·σ
///
/// beside what all ops of a step share, as far as they wait for memory.
/// ρ is the least that suffices; λ > 1 only where ρ = 1 does not. Leaves out that shapes of a law differ in how alike
/// their errors are.
void settle_bias(HostParameters& parameters, const std::vector<StepCheck>& steps);

}  // namespace orrery
