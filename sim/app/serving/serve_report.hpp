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
  std::vector<std::string> unread;  // as `unread_keys` tells
  ServingResult result;
  std::vector<ServingResult> others;  // of `other_runs`; none where intervals were not asked for
  StepDoubt doubt;
  std::array<double, kRequestTimes> multiples{};  // of each `RequestTime`
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
  /// Each answer; where intervals are asked for with those of its times, which takes 48 bytes of memory a request.
  std::function<void(const Answer&, const std::array<ServedInterval, kRequestTimes>* intervals)> on_answer = {};
  std::function<void(const ServedStep&)> on_step = {};
  std::function<void()> check = {};
};
ServeReport serve_scenario(const ServeRequest& request);

nlohmann::json to_json(const ServeReport& report);
std::string to_text(const ServeReport& report, const Console& console);

}  // namespace orrery
