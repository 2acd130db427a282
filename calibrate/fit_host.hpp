// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/disturbance.hpp"
#include "calibrate/measure.hpp"
#include "calibrate/selection.hpp"

namespace orrery {

/// All that a calibration measured.
struct Measurements {
  std::vector<MeasuredPlan> plans;      // Point::plan is an index of these
  Numbers sweep, steps, beside, turns;  // which of them are what, see Selection
  std::vector<std::size_t> alone;
  std::size_t pairs = 0;
  Sensitivity sensitivity;
  Seconds wait_of_megabyte;  // of a core for a MB from memory, on top of that for one from the last cache
};

/// Fits the laws, how much of the last cache there really is, and how far predictions may be off; `parameters` has the
/// reported caches and all else. Gives the steps, each as a fit without it predicts it.
std::vector<StepCheck> fit_host(HostParameters& parameters, const Measurements& measured);

}  // namespace orrery
