// SPDX-License-Identifier: Apache-2.0
#include "sim/app/schedule/schedule_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "calibrate/statistics.hpp"
#include "sim/app/report.hpp"
#include "sim/base/table.hpp"

namespace orrery {
namespace {

nlohmann::json times_json(const JobTimes& t) {
  return {{"mean", t.mean}, {"median", t.median}, {"p90", t.p90}, {"max", t.max}};
}

std::int64_t num_changes(const ClusterResult& r) {
  std::int64_t all = 0;
  for (const JobRecord& job : r.jobs) all += job.changes;
  return all;
}

double held_seconds(const ClusterResult& r) {
  double all = 0;
  for (const JobRecord& job : r.jobs) all += job.held;
  return all;
}

nlohmann::json policy_json(const PolicyOutcome& p) {
  const ClusterResult& r = p.result;
  nlohmann::json j = {{"policy", r.policy},
                      {"jct", times_json(job_times(r, &JobRecord::jct))},
                      {"queueing", times_json(job_times(r, &JobRecord::queueing))},
                      {"execution", {{"mean", held_seconds(r) / double(r.jobs.size())}}},
                      {"makespan", r.makespan},
                      {"utilisation", r.utilisation()},
                      {"overhead", r.held > 0 ? r.overhead / r.held : 0},
                      {"changes", num_changes(r)},
                      {"looks", r.looks},
                      {"wall_seconds", p.wall_seconds}};
  if (p.paced)
    j["paced"] = {{"jct", times_json(job_times(p.paced->result, &JobRecord::jct))},
                  {"same_order", p.paced->is_same_order},
                  {"worst_difference", p.paced->worst}};
  return j;
}

std::string seconds_text(double s) { return fmt::format("{:.1f} s", s); }

std::string paced_text(const ScheduleReport& r) {
  Table table{
      {{"paced"}, {"mean JCT", Align::Right}, {"simulated", Align::Right}, {"worst job", Align::Right}, {"decisions"}}};
  for (const PolicyOutcome& p : r.policies)
    if (p.paced)
      table.add({std::string{p.result.policy}, seconds_text(mean_jct(p.paced->result)),
                 seconds_text(mean_jct(p.result)), fmt::format("{:.2f} %", 100 * p.paced->worst),
                 p.paced->is_same_order ? "in the same order" : "in another order"});
  return table.num_rows() > 0 ? "\n" + table.text() : "";
}

}  // namespace

JobTimes job_times(const ClusterResult& result, double (JobRecord::*seconds)() const) {
  std::vector<double> all;
  for (const JobRecord& job : result.jobs) all.push_back((job.*seconds)());
  if (all.empty()) return {};
  std::sort(all.begin(), all.end());
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  return {sum / double(all.size()), median(all), quantile(all, 0.9), all.back()};
}
double mean_jct(const ClusterResult& result) { return job_times(result, &JobRecord::jct).mean; }

nlohmann::json to_json(const ScheduleReport& r) {
  nlohmann::json policies = nlohmann::json::array();
  for (const PolicyOutcome& p : r.policies) policies.push_back(policy_json(p));
  return {{"schema_version", kSchemaVersion},
          {"workload", r.jobs.name},
          {"cluster", r.jobs.cluster_name},
          {"gpus", r.jobs.cluster.num_ranks()},
          {"nodes", r.jobs.cluster.num_nodes()},
          {"jobs", r.jobs.jobs.jobs.size()},
          {"seed", r.jobs.seed},
          {"policies", policies}};
}

std::string to_text(const ScheduleReport& r) {
  std::int64_t asked = 0;
  for (const Job& job : r.jobs.jobs.jobs) asked += job.gpus;
  const std::vector<Job>& jobs = r.jobs.jobs.jobs;
  std::string text = fmt::format("{} jobs in {} on {} GPUs of {}, seed {}; together they ask for {} GPUs\n\n",
                                 jobs.size(), seconds_text(jobs.back().arrival), r.jobs.cluster.num_ranks(),
                                 r.jobs.cluster_name, r.jobs.seed, asked);
  Table table{{{"policy"},
               {"mean JCT", Align::Right},
               {"median", Align::Right},
               {"p90", Align::Right},
               {"max", Align::Right},
               {"execution", Align::Right},
               {"queueing", Align::Right},
               {"makespan", Align::Right},
               {"GPUs held", Align::Right},
               {"starting", Align::Right},
               {"changes", Align::Right}}};
  for (const PolicyOutcome& p : r.policies) {
    const ClusterResult& c = p.result;
    const JobTimes jct = job_times(c, &JobRecord::jct);
    table.add({std::string{c.policy}, seconds_text(jct.mean), seconds_text(jct.median), seconds_text(jct.p90),
               seconds_text(jct.max), seconds_text(held_seconds(c) / double(c.jobs.size())),
               seconds_text(job_times(c, &JobRecord::queueing).mean), seconds_text(c.makespan),
               fmt::format("{:.1f} %", 100 * c.utilisation()),
               fmt::format("{:.1f} %", c.held > 0 ? 100 * c.overhead / c.held : 0), fmt::format("{}", num_changes(c))});
  }
  return text + table.text() + paced_text(r);
}

}  // namespace orrery
