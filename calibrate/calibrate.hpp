// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/bench.hpp"
#include "hw_models/host_parameters.hpp"
#include "sim/base/options.hpp"

namespace orrery {

struct CalibrateOptions {
  bool quick = false;
  std::int64_t seed = 1;
  Seconds budget;
  std::string tool = "orrery calibrate";

  template <class V>
  void visit(V& v) {
    v.field("quick", quick, "fewer points and repetitions: about 20 s");
    v.field("seed", seed, "of the sizes that are measured");
    v.field("budget", budget, "time to measure for; 0: 60 s, quick 14 s", at_least(Seconds{0}));
    v.field("tool", tool, "program and version that the file names");
  }
};

/// How far a calibration is: `done` from 0 to 1.
struct CalibrateProgress {
  std::string_view stage;
  double done = 0;
  double drift = 0;  // how much the machine's speed has varied so far
};
/// Called several times a second; false stops the calibration.
using CalibrateCallback = std::function<bool(const CalibrateProgress&)>;

/// How well whole steps, left out of the fit, are predicted.
struct StepCheck {
  std::string name;
  double measured = 0, predicted = 0;  // seconds
  double shared = 0, independent = 0;  // relative σ if ops of a law err together, and if each errs by itself
  double memory = 0;                   // and what all ops share as far as they wait for memory
  double noise = 0;                    // standard error of the measured time, relative
};

struct Calibration {
  HostParameters parameters;
  std::vector<StepCheck> steps;
  double drift = 0;      // of the time of a step, from one half of the campaign to the other
  double disturbed = 0;  // part of the drift probe's samples that something interrupted
  double cores = 1;      // so many times the work of one core all cores did together
  std::vector<std::string> warnings;
};

/// Measures this computer and fits the laws of its ops. `steps` are whole steps, executed on one rank, that show each
/// op in the state in which a step leaves the caches; every second one in turn is left out of a fit to see how well
/// steps are predicted. Nothing when the callback stopped it. Throws DeviceError when a plan does not run.
std::optional<Calibration> calibrate(const CalibrateOptions& options, std::vector<Bench> steps,
                                     const CalibrateCallback& progress);

/// Writes the parameter file, whole or not at all.
void write_calibration(const Calibration& calibration, const std::string& path);

}  // namespace orrery
