// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "calibrate/calibrate.hpp"
#include "sim/app/command.hpp"

namespace orrery {

/// Measures this computer under a line of progress. Throws Interrupted when the user stops it.
Calibration calibrate_host(const CalibrateOptions& options, AppContext& context);

/// Calibrates and writes the parameter file, whole or not at all.
Calibration calibrate_to(const std::string& path, const CalibrateOptions& options, AppContext& context);

/// The same, once more where something else used the cores often; keeps the one that was disturbed less.
Calibration calibrate_undisturbed(const std::string& path, const CalibrateOptions& options, AppContext& context);

struct CalibrationCheck {
  std::string reason;  // to calibrate before a validation: "this computer was never calibrated"; empty: there is none
  Neighbours found;    // by how much, relative, its clock and memory are slower or faster than when it was calibrated
};
/// Takes a fifth of a second: a fixed work and a fixed pass over memory tell whether the computer is as it was.
CalibrationCheck check_calibration(const AppContext& context);

/// Days after which parameters count as old.
constexpr int kFreshDays = 30;

}  // namespace orrery
