// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "sim/app/console.hpp"
#include "sim/app/scenario.hpp"
#include "sim/app/serving/step_times.hpp"

namespace orrery {

/// A simulation of serving with what surrounds it.
struct ServeReport {
  std::string scenario;
  ServeOptions options;
  ReplicaMemory memory;
  ServingResult result;
  /// The same traffic where all steps are shorter or longer by as much as nine in ten will be at most; nothing where
  /// that was not asked for.
  std::optional<ServingResult> fast, slow;
  double deviation = 0;        // of a step, relative
  double first_deviation = 0;  // of the time to the first token
  double wall_seconds = 0;
  std::int64_t templates = 0, ranks = 1;

  bool fits() const { return memory.blocks > 0; }
};

/// How a scenario is served. Throws UserError when its workload is another one, when there are more replicas than the
/// cluster has room for, or for traffic that makes no sense.
struct ServeRequest {
  const Scenario& scenario;
  const Wiring& wiring;
  bool interval = true;
  std::function<void(const Answer&)> on_answer = {};
  std::function<void(const ServedStep&)> on_step = {};
  std::function<void()> check = {};
};
ServeReport serve_scenario(const ServeRequest& request);

nlohmann::json to_json(const ServeReport& report);
std::string to_text(const ServeReport& report, const Console& console);

}  // namespace orrery
