// SPDX-License-Identifier: Apache-2.0
// ONES, arXiv 2108.03645: how much earlier jobs end on 64 GPUs than under Optimus and Tiresias, by the per-job results
// of its published artifact. Those are of jobs in another order than the trace that comes with them, and of baselines
// that do not: compared are ratios, of jobs drawn like the trace, over several seeds. Assumed are which
// logged rate is whose, how long jobs train (drawn as logged), that batches up to the cap cost no epochs, what starting
// and rescaling take, Tiresias' threshold, Optimus' interval, and that Optimus knows remaining times.
#include <fmt/format.h>

#include <map>

#include "sim/app/reproduce/reproduction.hpp"
#include "sim/app/schedule/schedule_report.hpp"

namespace orrery::papers::ones {
namespace {

constexpr const char* kArtifact = "arXiv 2108.03645, results in the artifact";
constexpr int kSeeds = 3;

/// Seconds in the mean over jobs, and seeds.
struct PolicyMeans {
  double jct = 0, execution = 0, queueing = 0;
};

using Change = std::function<void(ScheduleCase&)>;

/// Jobs of a seed under a policy; as stated, each once.
class PolicyRuns {
 public:
  explicit PolicyRuns(const Reproducer& r) : r_{r} {}

  PolicyMeans run(const std::string& policy, int seed, const Change& change = {}) {
    if (change) return simulate(policy, seed, change);
    const auto [known, is_new] = known_.try_emplace({policy, seed});
    if (is_new) known->second = simulate(policy, seed, {});
    return known->second;
  }
  PolicyMeans mean(const std::string& policy) {
    PolicyMeans m;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const PolicyMeans s = run(policy, seed);
      m.jct += s.jct, m.execution += s.execution, m.queueing += s.queueing;
    }
    return {m.jct / kSeeds, m.execution / kSeeds, m.queueing / kSeeds};
  }

 private:
  PolicyMeans simulate(const std::string& policy, int seed, const Change& change) const {
    ScheduleCase c = load_schedule("ones_64", {.cluster = {}, .seed = seed}, r_.wiring.locations());
    if (change) change(c);
    JobRates rates = rates_of(c, r_);
    const ClusterResult result = simulate_cluster({.options = c.options,
                                                   .jobs = c.jobs,
                                                   .rates = rates,
                                                   .gpus = c.cluster.num_ranks(),
                                                   .seed = c.seed,
                                                   .pause = r_.pause},
                                                  find_cluster_policy(policy));
    const double jct = mean_jct(result), queueing = job_times(result, &JobRecord::queueing).mean;
    return {jct, jct - queueing, queueing};
  }

  const Reproducer& r_;
  std::map<std::pair<std::string, int>, PolicyMeans> known_;
};

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

/// The first of the seeds.
Ablation ablation(PolicyRuns& runs, std::string inputs, const Change& change) {
  std::vector<std::optional<double>> values;
  for (const char* policy : {"ones", "optimus", "tiresias", "srtf", "fifo"})
    values.emplace_back(runs.run(policy, 1, change).jct);
  values.emplace_back(*values[0] / *values[1]), values.emplace_back(*values[0] / *values[2]);
  return {std::move(inputs), values};
}

}  // namespace

Reproduction reproduce(const Reproducer& r) {
  Reproduction out{{}, {"ONES, s", "Optimus", "Tiresias", "SRTF", "FIFO", "ONES over Optimus", "over Tiresias"}, {}};
  PolicyRuns runs{r};
  const std::map<std::string_view, PolicyMeans> means{
      {"ONES", runs.mean("ones")}, {"Optimus", runs.mean("optimus")}, {"Tiresias", runs.mean("tiresias")}};
  for (const Ratio& x : kRatios)
    out.claims.push_back({fmt::format("{} time, {} over {}", x.time, x.of, x.over), kArtifact, x.paper,
                          means.at(x.of).*x.member / means.at(x.over).*x.member, "x", 0.25,
                          fmt::format("50 jobs, {} seeds", kSeeds)});
  out.ablations = {
      ablation(runs, "one of the seeds", {}),
      ablation(runs, "ONES knows the progress", [](auto& c) { c.options.ones.progress = ProgressSource::Oracle; }),
      ablation(runs, "ONES gives no more GPUs than asked", [](auto& c) { c.options.ones.most_requests = 1; }),
      ablation(runs, "noise scale 16 batches of one GPU", [](auto& c) { set_noise(c, 16); }),
      ablation(runs, "overheads three times", [](auto& c) { scale_overheads(c, 3); }),
      ablation(runs, "Optimus' interval 600 s", [](auto& c) { c.options.optimus.interval = Seconds{600}; }),
  };
  return out;
}

}  // namespace orrery::papers::ones
