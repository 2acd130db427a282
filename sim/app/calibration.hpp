// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "calibrate/calibrate.hpp"
#include "sim/app/command.hpp"

namespace orrery {

/// Measures this computer under a line of progress. Throws Interrupted when the user stops it.
Calibration calibrate_host(const CalibrateOptions& options, AppContext& context);

/// Calibrates, once more where something else used the cores often but not nearly always, and writes the parameter
/// file, whole or not at all, of the one that was disturbed less.
Calibration calibrate_to(const std::string& path, const CalibrateOptions& options, AppContext& context);

/// Why there is reason to calibrate before a validation: "this computer was never calibrated"; empty when there is
/// none. Takes a tenth of a second: a fixed work tells whether the computer is still as fast as it was.
std::string reason_to_calibrate(const AppContext& context);

/// Part of a probe's samples from which on a computer does not count as idle: plans predicted by parameters of such a
/// calibration were 17 % too slow.
constexpr double kOftenDisturbed = 0.4;

/// Days after which parameters count as old.
constexpr int kFreshDays = 30;

}  // namespace orrery
