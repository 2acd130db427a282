// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/measured_round.hpp"
#include "sim/app/report.hpp"
#include "sim/timeline/compare.hpp"

namespace orrery {

class Peers;

struct ValidationOptions {
  std::int64_t repeats = 5;  // rounds that count; one more warms up, and others make up for disturbed ones
  std::shared_ptr<Peers> peers = nullptr;  // processes that measure together; null: none but this one
  double memory_share = 0.4;               // of this computer's memory that plans measured in turns may take together
};

/// How well 90 % intervals do over some predictions.
struct IntervalCheck {
  std::string what;                                    // class of ops, "all ops", "plans", …
  std::size_t count = 0;                               // predictions beside a measurement
  double coverage = 0;                                 // the part inside of its interval
  double median_half_width = 0, median_abs_error = 0;  // relative to the prediction and to the measurement
};

/// One work of a plan: the mean over the ops that have it.
struct ValidatedOp {
  OpClass kind = OpClass::Other;
  std::string text;  // of the work; empty: a whole step
  double predicted = 0, low = 0, high = 0, measured = 0;
  double sensitivity = 0;  // as in OpCost
  Work work = {};
  Bindings bindings = {};
};

/// One plan, predicted and measured.
struct ValidatedPlan {
  std::string name;
  double predicted = 0, low = 0, high = 0;
  double sensitivity = 0;       // as in OpCost, of a step
  double measured = 0;          // median over the rounds that count, without what others did on the cores
  double as_run = 0;            // the same with it
  std::vector<double> samples;  // without it, one per such round
  std::size_t rounds = 0;       // that were measured
  double disturbed = 0;         // how much something else slowed the cores during those that count
  std::int64_t peak_predicted = 0, peak_measured = 0;
  std::vector<ValidatedOp> ops;      // of a step on one device, one per work
  Report report;                     // the prediction
  Timeline prediction, measurement;  // the round of median duration
  PlanDigests plans;
  std::vector<double> loss;  // of training
  std::string text;          // generated

  double error() const { return predicted / measured - 1; }
  double error_as_run() const { return predicted / as_run - 1; }
  bool is_covered() const { return low <= measured && measured <= high; }
};

struct Validation {
  std::vector<ValidatedPlan> plans;
  std::string machine, parameters;
  bool is_probed = false;             // some ran on the processor, beside a probe of its speed
  double drift = 0, worst_drift = 0;  // of the drift probe between the plans
  double disturbed = 0;               // part of the probe's samples during which something else used the core
  std::optional<double> cores;  // so many times the work of one core all did together; if a plan has several ranks
  // Of the probe since the calibration, relative, in the core and from memory; 0: not known.
  double slowdown = 0, memory_slowdown = 0;
  double seconds = 0;

  /// Whether something else used the core during less than `kOftenDisturbed` of the samples.
  bool is_idle() const;

  double mean_abs_error() const;
  double worst_abs_error() const;
  /// Against times with what others did on the cores.
  double mean_abs_error_as_run() const;
  double worst_abs_error_as_run() const;
  double coverage() const;
};

/// Of the same plans, behind calibrations of their own.
using Validations = std::span<const Validation* const>;

/// Of the check over both; what intervals are judged by.
inline constexpr const char* kOpsAndPlans = "ops and plans";

/// Ops that take a thousandth of their step or more: by class and all; the plans; those ops and plans together; and
/// the ops that take less; of all these validations together.
std::vector<IntervalCheck> intervals_of(Validations validations);

/// What `validate_scenarios` measures, predicted: by the laws of our own runtime where the device has them.
ValidatedPlan predict_for_runtime(const Scenario& scenario, AppContext& context);

/// Throws MissingError for a scenario that this computer cannot execute, UserError for one on the processor where
/// several processes share the plans.
void check_measurable(const std::vector<Scenario>& scenarios, bool with_peers, const Wiring& wiring);

/// Predicts every scenario, then measures them: on the processor in turns, round by round, so that a change of its
/// speed meets all of them alike; on GPUs one after another. Processes that measure together each get all of it. Throws
/// UserError when they are to measure on a processor.
Validation validate_scenarios(const std::vector<Scenario>& scenarios, const ValidationOptions& options,
                              AppContext& context);

/// The scenarios that `orrery validate` runs without arguments: of the grid "single" (one device) or "parallel"
/// (several ranks), "speculation", "offload" or "gpu", or of a file like theirs; on another cluster where one is named.
/// Throws UserError when there is none.
std::vector<Scenario> validation_grid(const AppContext& context, const std::string& grid = "single",
                                      const std::string& cluster = {});

/// Of one, the plans with their intervals; of the same plans behind several calibrations, how far each is off behind
/// each, and how intervals do over all.
std::string to_text(Validations validations, const Console& console);
/// Where one plan's prediction was wrong: ops by name.
std::string worst_ops_text(const ValidatedPlan& plan, std::size_t rows);
nlohmann::json to_json(Validations validations);
/// Over the plans of all of them.
double mean_abs_error(Validations validations);

}  // namespace orrery
