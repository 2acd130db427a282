// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/app/command.hpp"
#include "sim/app/scenario.hpp"
#include "sim/app/sweep/sweep_axis.hpp"
#include "sim/app/sweep/sweep_record.hpp"
#include "sim/app/what_if.hpp"

namespace orrery {

/// A scenario that is swept, before anything is changed.
struct SweptScenario {
  std::string name;
  Node document;  // merged, names of files absolute
};

/// What all points of a sweep share: all that a worker needs to know besides the values of a point.
struct SweepPlan {
  std::vector<SweptScenario> scenarios = {};
  std::vector<std::string> keys;    // of scenarios; or parameters of the hardware, whose values are "x2" or "+10%"
  bool intervals = true;            // of the times of requests
  std::string version, parameters;  // of the program, and of what it knows of hardware: those of a worker are the same

  /// Texts and digests.
  nlohmann::json to_json() const;
  static SweepPlan from_json(const nlohmann::json& document);
};

/// The digest of the parameters that come with the program: of devices, fabrics, exchanges and software.
std::string parameters_digest();

/// One point of a sweep.
struct SweepPoint {
  std::size_t scenario = 0;  // of the plan
  SweptValues values;
};

/// A point as `orrery simulate` would read it.
struct ResolvedPoint {
  Scenario scenario;
  std::vector<Change> changes;  // of parameters of the hardware
};
/// Throws UserError.
ResolvedPoint resolve(const SweepPlan& plan, const SweepPoint& point, const Locations& locations);

/// What makes a point the same as another: the resolved scenario, changes, parameters and the version.
std::string point_id(const SweepPlan& plan, const ResolvedPoint& point, const Locations& locations);
/// The same of a point that cannot be resolved, from its values.
std::string refused_id(const SweepPlan& plan, const SweepPoint& point);

/// How long the prediction of a point takes beside others: blocks of the network times passes, times the ranks that
/// are simulated; of serving, requests times blocks.
double expected_work(const Scenario& scenario);

/// What `orrery simulate` or `orrery serve` says of a point with --json, without lists and wall times. Throws as they
/// do.
nlohmann::json predict_point(const SweepPlan& plan, const ResolvedPoint& point, AppContext& context);

/// A document without lists, and without what differs from run to run.
nlohmann::json without_lists(const nlohmann::json& document);

}  // namespace orrery
