// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "hw_models/host_model.hpp"

namespace orrery {

/// One op or step that no fit has seen, with its prediction.
struct CheckRow {
  std::string what;
  std::string law;                                        // empty for a step
  double measured = 0, predicted = 0, low = 0, high = 0;  // seconds; the 90 % interval

  double error() const { return predicted / measured - 1; }
  bool covered() const { return low <= measured && measured <= high; }
};

struct CheckSummary {
  std::size_t rows = 0;
  double mean_abs_error = 0, median_abs_error = 0, worst_abs_error = 0, coverage = 0;
  double median_half_width = 0;  // of the intervals, relative
};
CheckSummary summarise(const std::vector<CheckRow>& rows);

struct CheckReport {
  std::vector<CheckRow> ops, steps;
};

struct CheckOptions {
  std::int64_t seed = 1000;
  double share = 0.25;  // of the points of a calibration, at least four per suite
  Seconds budget{20.0};
};

/// Measures ops of random sizes (another seed than the calibration's) and whole steps, and compares with the model.
/// Nothing when stopped.
std::optional<CheckReport> check_points(const HostModel& model, const CheckOptions& options, std::vector<Bench> steps,
                                        const CalibrateCallback& progress);

}  // namespace orrery
