// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/report.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery {

struct ValidationOptions {
  std::int64_t repeats = 5;   // measured rounds; one more warms up
  double memory_share = 0.4;  // of this computer's memory that plans measured in turns may take together
};

/// One plan, predicted and measured.
struct ValidatedPlan {
  std::string name;
  double predicted = 0, low = 0, high = 0;
  double measured = 0;          // median over the rounds
  std::vector<double> samples;  // one per round
  std::int64_t peak_predicted = 0, peak_measured = 0;
  Report report;                     // the prediction
  Timeline prediction, measurement;  // the round of median duration
  std::vector<Timeline> rounds;      // while they are measured
  PlanDigests plans;
  std::vector<double> loss;  // of training
  std::string text;          // generated

  double error() const { return predicted / measured - 1; }
  bool is_covered() const { return low <= measured && measured <= high; }
};

struct Validation {
  std::vector<ValidatedPlan> plans;
  std::string machine, parameters;
  double drift = 0, worst_drift = 0;  // of a fixed product measured between the plans
  double seconds = 0;

  double mean_abs_error() const;
  double worst_abs_error() const;
  double coverage() const;
};

/// Throws MissingError for a scenario that this computer cannot execute.
void check_measurable(const std::vector<Scenario>& scenarios);

/// Predicts every scenario, then measures all of them in turns, round by round, so that a change of the machine's speed
/// meets all of them alike.
Validation validate_scenarios(const std::vector<Scenario>& scenarios, const ValidationOptions& options,
                              AppContext& context);

/// The scenarios of the grid that `orrery validate` runs without arguments.
std::vector<Scenario> validation_grid(const AppContext& context);

/// The mean of the steps of a recording that stand for it.
double steady_seconds(const Timeline& timeline);

std::string to_text(const Validation& validation, const Console& console);
/// Where one plan's prediction was wrong: ops by name.
std::string worst_ops_text(const ValidatedPlan& plan, std::size_t rows);
nlohmann::json to_json(const Validation& validation);

}  // namespace orrery
