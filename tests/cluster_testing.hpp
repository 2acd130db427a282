// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/program/cluster/cluster_run.hpp"

namespace orrery::testing {

/// A template of which one GPU trains an epoch a second and n train n; nothing takes time beside that.
inline JobTemplate linear_template(std::string name = "linear", double most_growth = 1e9) {
  JobTemplate t;
  t.name = std::move(name), t.samples = {100}, t.batch = 10, t.most_learning_rate = most_growth;
  t.rates = {{1, 10, 100.0}};
  return t;
}

inline JobFileOptions no_overheads() {
  JobFileOptions o;
  o.overheads.process = o.overheads.communicator = o.overheads.rebuild = Seconds{0};
  return o;
}

inline Job plain_job(std::int64_t id, double arrival, double epochs, std::int64_t gpus = 1) {
  return {.id = id, .arrival = arrival, .gpus = gpus, .samples = 100, .epochs = epochs};
}

/// What one policy comes to.
inline ClusterResult scheduled(std::string_view policy, const JobSet& jobs, std::int64_t gpus,
                               const JobFileOptions& options = no_overheads()) {
  JobRates rates{jobs.templates, gpus, gpus};
  return simulate_cluster({.options = options, .jobs = jobs, .rates = rates, .gpus = gpus},
                          find_cluster_policy(policy));
}

inline double total_jct(const ClusterResult& r) {
  double sum = 0;
  for (const JobRecord& job : r.jobs) sum += job.jct();
  return sum;
}

/// Jobs of three templates that scale well, badly, and hardly, and that lose by large batches.
inline JobSet mixed_jobs(std::int64_t count, std::uint64_t seed, double gap = 8) {
  JobSet set;
  for (const double exchange : {0.0, 0.02, 0.2}) {
    JobTemplate t = linear_template("by" + std::to_string(set.templates.size()), 16);
    t.samples = {1000, 2000}, t.batch = 32, t.gpus = std::int64_t(1) << (2 * set.templates.size());
    t.rates = {{1, 32, 200.0}}, t.exchange = Seconds{exchange}, t.parameters = 1e7, t.noise_scale = 400;
    t.epochs = {.kind = LengthKind::Lognormal, .mean = 12, .deviation = 6, .least = 3, .most = 40};
    set.templates.push_back(t);
  }
  set.jobs = drawn_jobs(set.templates, {.jobs = count, .gap = Seconds{gap}}, seed);
  return set;
}

}  // namespace orrery::testing
