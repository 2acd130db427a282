// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/app/report.hpp"

namespace orrery {

/// What a scenario expects of one metric beside what was predicted.
struct ExpectationResult {
  std::string metric;
  double expected = 0, actual = 0, tolerance = 0;  // in base units
  bool holds = false;
  std::string text;  // "step_time 61.4 ms, expected 60 ms within 8 %"
};

/// The metrics that `expect` may name.
std::vector<std::string> metric_names();

/// Compares a report with what its scenario expects. Throws UserError with the place of an unknown metric, of a value
/// of another unit, and of a tolerance that is none.
std::vector<ExpectationResult> check_expectations(const Scenario& scenario, const Report& report);

}  // namespace orrery
