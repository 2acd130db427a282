// SPDX-License-Identifier: Apache-2.0
// How long jobs on 64 GPUs take to be scheduled under each policy. `bench_schedule [JOBS]`; default 10,000.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>

#include "sim/program/cluster/cluster_run.hpp"

using namespace orrery;

namespace {

/// Of templates that scale well and badly, small and large, one every two minutes in the mean.
JobSet many_jobs(std::int64_t count) {
  JobSet set;
  for (const double exchange : {0.01, 0.1, 0.3}) {
    JobTemplate t;
    t.name = fmt::format("exchange {}", exchange);
    t.samples = {10000, 20000}, t.batch = 32, t.gpus = std::int64_t(4) << set.templates.size();
    t.most_learning_rate = 16, t.rates = {{1, 32, 200.0}}, t.exchange = Seconds{exchange}, t.parameters = 5e7;
    t.epochs = {.kind = LengthKind::Lognormal, .mean = 30, .deviation = 17, .least = 5, .most = 69};
    set.templates.push_back(t);
  }
  set.jobs = drawn_jobs(set.templates, {.jobs = count, .gap = Seconds{120}}, 1);
  return set;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t count = argc > 1 ? std::atoll(argv[1]) : 10000;
  const JobSet jobs = many_jobs(count);
  JobFileOptions options;
  options.ones.progress = ProgressSource::Oracle;  // what learning takes does not depend on the search
  for (const ClusterPolicy& policy : cluster_policies()) {
    JobRates rates{jobs.templates, 64, 4};
    const auto start = std::chrono::steady_clock::now();
    const ClusterResult r = simulate_cluster({.options = options, .jobs = jobs, .rates = rates, .gpus = 64}, policy);
    const double wall = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{:<9} {} jobs, {} looks in {:.2f} s; GPUs held {:.1f} %, makespan {:.0f} s\n", policy.name,
               r.jobs.size(), r.looks, wall, 100 * r.utilisation(), r.makespan);
  }
}
