// SPDX-License-Identifier: Apache-2.0
// ONES, arXiv 2108.03645: how much earlier jobs end on 64 GPUs than under Optimus and Tiresias, by the per-job results
// of its published artifact. Those are of jobs in another order than the trace that comes with them, and of baselines
// that do not: compared are ratios, of jobs drawn like the trace, over several seeds. Assumed are which
// logged rate is whose, how long jobs train (drawn as logged), that batches up to the cap cost no epochs, what starting
// and rescaling take, Tiresias' threshold, Optimus' interval, and that Optimus knows remaining times.
#include <fmt/format.h>

#include <map>

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

/// A published time of one policy over that of another.
struct Ratio {
  const char *time, *of, *over;
  double PolicyMeans::*member;
  double paper;
};
constexpr Ratio kRatios[] = {{"completion", "ONES", "Optimus", &PolicyMeans::jct, 0.472},
                             {"completion", "ONES", "Tiresias", &PolicyMeans::jct, 0.427},
                             {"completion", "Optimus", "Tiresias", &PolicyMeans::jct, 0.903},
                             {"execution", "ONES", "Optimus", &PolicyMeans::execution, 0.491},
                             {"execution", "ONES", "Tiresias", &PolicyMeans::execution, 0.323},
                             {"queueing", "ONES", "Optimus", &PolicyMeans::queueing, 0.447},
                             {"queueing", "ONES", "Tiresias", &PolicyMeans::queueing, 0.809}};

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
  values.emplace_back(*values[0] / *values[1]), values.emplace_back(*values[0] / *values[2]);
  return {std::move(inputs), values};
}

}  // namespace

Reproduction reproduce_ones(const Reproducer& r) {
  Reproduction out{{}, {"ONES, s", "Optimus", "Tiresias", "SRTF", "FIFO", "ONES over Optimus", "over Tiresias"}, {}};
  const std::map<std::string_view, PolicyMeans> means{{"ONES", runs_of(r, "ones", kSeeds).mean()},
                                                      {"Optimus", runs_of(r, "optimus", kSeeds).mean()},
                                                      {"Tiresias", runs_of(r, "tiresias", kSeeds).mean()}};
  for (const Ratio& x : kRatios)
    out.claims.push_back({fmt::format("{} time, {} over {}", x.time, x.of, x.over), kArtifact, x.paper,
                          means.at(x.of).*x.member / means.at(x.over).*x.member, "x", 0.25,
                          fmt::format("50 jobs, {} seeds", kSeeds)});
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
