// SPDX-License-Identifier: Apache-2.0
// ONES, arXiv 2108.03645: how much earlier jobs end on 64 GPUs than under Optimus and Tiresias, by the per-job results
// of its published artifact. Those are of jobs in another order than the trace that comes with them, and of baselines
// that do not: compared are reductions and orders, of jobs drawn like the trace, over several seeds. Assumed are which
// logged rate is whose, how long jobs train (drawn as logged), that batches up to the cap cost no epochs, what starting
// and rescaling take, Tiresias' threshold, Optimus' interval, and that Optimus knows remaining times.
#include <fmt/format.h>

#include "sim/app/reproduction.hpp"
#include "sim/app/schedule/schedule_report.hpp"

namespace orrery {
namespace {

constexpr const char* kArtifact = "arXiv 2108.03645, results in the artifact";
constexpr int kSeeds = 3;

/// Seconds in the mean over jobs and seeds.
struct PolicyMeans {
  double jct = 0, execution = 0, queueing = 0;
};

/// What a policy's jobs come to, for each seed.
struct PolicyRuns {
  std::vector<PolicyMeans> seeds;

  PolicyMeans mean() const {
    PolicyMeans m;
    for (const PolicyMeans& s : seeds) m.jct += s.jct, m.execution += s.execution, m.queueing += s.queueing;
    const double n = double(seeds.size());
    return {m.jct / n, m.execution / n, m.queueing / n};
  }
};

using Change = std::function<void(ScheduleCase&)>;

PolicyRuns runs_of(const Reproducer& r, std::string_view policy, int seeds, const Change& change = {}) {
  PolicyRuns runs;
  for (int seed = 1; seed <= seeds; ++seed) {
    ScheduleCase c = load_schedule("ones_64", {.cluster = {}, .seed = seed}, r.wiring.locations());
    if (change) change(c);
    JobRates rates = rates_of(c, r);
    const ClusterResult result = simulate_cluster({.options = c.options,
                                                   .jobs = c.jobs,
                                                   .rates = rates,
                                                   .gpus = c.cluster.num_ranks(),
                                                   .seed = c.seed,
                                                   .pause = r.pause},
                                                  find_cluster_policy(policy));
    const double jct = mean_jct(result), queueing = job_times(result, &JobRecord::queueing).mean;
    runs.seeds.push_back({jct, jct - queueing, queueing});
  }
  return runs;
}

double less(double ours, double other) { return 100 * (1 - ours / other); }

/// Share of the seeds in which the first policy's jobs end earlier in the mean.
double share_earlier(const PolicyRuns& a, const PolicyRuns& b) {
  double earlier = 0;
  for (std::size_t i = 0; i < a.seeds.size(); ++i) earlier += a.seeds[i].jct < b.seeds[i].jct;
  return 100 * earlier / double(a.seeds.size());
}

/// A published reduction of one of the times.
struct Reduction {
  const char *time, *than;
  double PolicyMeans::*member;
  double paper;
};
constexpr Reduction kReductions[] = {
    {"completion", "Optimus", &PolicyMeans::jct, 52.8},      {"completion", "Tiresias", &PolicyMeans::jct, 57.3},
    {"execution", "Optimus", &PolicyMeans::execution, 50.9}, {"execution", "Tiresias", &PolicyMeans::execution, 67.7},
    {"queueing", "Optimus", &PolicyMeans::queueing, 55.3},   {"queueing", "Tiresias", &PolicyMeans::queueing, 19.1}};

void scale_overheads(ScheduleCase& c, double factor) {
  OverheadOptions& o = c.options.overheads;
  o.process *= factor, o.communicator *= factor, o.rebuild *= factor;
  o.broadcast = o.broadcast / factor, o.checkpoint = o.checkpoint / factor;
}

/// Batches cost epochs: the noise scale of gradients is so many batches of one GPU.
void set_noise(ScheduleCase& c, double batches) {
  for (JobTemplate& t : c.jobs.templates) t.noise_scale = batches * double(t.batch);
}

Ablation ablation(const Reproducer& r, std::string inputs, const Change& change) {
  constexpr int kFewSeeds = 1;
  std::vector<std::optional<double>> values;
  for (const char* policy : {"ones", "optimus", "tiresias", "srtf", "fifo"})
    values.emplace_back(runs_of(r, policy, kFewSeeds, change).mean().jct);
  values.emplace_back(less(*values[0], *values[1])), values.emplace_back(less(*values[0], *values[2]));
  return {std::move(inputs), values};
}

}  // namespace

Reproduction reproduce_ones(const Reproducer& r) {
  Reproduction out{{}, {"ONES, s", "Optimus", "Tiresias", "SRTF", "FIFO", "less than Optimus, %", "than Tiresias"}, {}};
  const PolicyRuns ones = runs_of(r, "ones", kSeeds), optimus = runs_of(r, "optimus", kSeeds),
                   tiresias = runs_of(r, "tiresias", kSeeds);
  for (const Reduction& x : kReductions) {
    const PolicyMeans other = (x.than[0] == 'O' ? optimus : tiresias).mean();
    out.claims.push_back({fmt::format("less {} time than {}", x.time, x.than), kArtifact, x.paper,
                          less(ones.mean().*x.member, other.*x.member), "%", 0.25,
                          fmt::format("50 jobs, {} seeds", kSeeds)});
  }
  out.claims.push_back({"jobs end earlier by ONES than by Optimus", kArtifact, 100, share_earlier(ones, optimus),
                        "% of seeds", 0.001, "in the mean"});
  out.claims.push_back({"jobs end earlier by ONES than by Tiresias", kArtifact, 100, share_earlier(ones, tiresias),
                        "% of seeds", 0.001, "in the mean"});
  out.claims.push_back({"jobs end earlier by Optimus than by Tiresias", kArtifact, 100,
                        share_earlier(optimus, tiresias), "% of seeds", 0.001, "in the mean"});
  out.ablations = {
      ablation(r, "one of the seeds", {}),
      ablation(r, "ONES knows the progress", [](auto& c) { c.options.ones.progress = ProgressSource::Oracle; }),
      ablation(r, "ONES gives no more GPUs than asked", [](auto& c) { c.options.ones.most_requests = 1; }),
      ablation(r, "noise scale 16 batches of one GPU", [](auto& c) { set_noise(c, 16); }),
      ablation(r, "overheads three times", [](auto& c) { scale_overheads(c, 3); }),
      ablation(r, "Optimus' interval 600 s", [](auto& c) { c.options.optimus.interval = Seconds{600}; }),
  };
  return out;
}

}  // namespace orrery
