// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sim/app/schedule/schedule_case.hpp"

namespace orrery {

/// Seconds over jobs.
struct JobTimes {
  double mean = 0, median = 0, p90 = 0, max = 0;
};
JobTimes job_times(const ClusterResult& result, double (JobRecord::*seconds)() const);
double mean_jct(const ClusterResult& result);

/// What workers that are held for modelled times came to, beside the simulation.
struct PacedComparison {
  ClusterResult result;
  bool is_same_order = false;  // of decisions
  double worst = 0;            // relative difference of a job's completion time
};

struct PolicyOutcome {
  ClusterResult result;
  std::optional<PacedComparison> paced;
  double wall_seconds = 0;
};

struct ScheduleReport {
  const ScheduleCase& jobs;
  std::vector<PolicyOutcome> policies;
};
nlohmann::json to_json(const ScheduleReport& report);
std::string to_text(const ScheduleReport& report);

}  // namespace orrery
