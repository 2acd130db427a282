// SPDX-License-Identifier: Apache-2.0
// Policies that ONES is compared with.
#include <algorithm>
#include <cmath>
#include <map>

#include "sim/base/error.hpp"
#include "sim/program/cluster/cluster_scheduler.hpp"

namespace orrery {
namespace {

constexpr ClusterPolicy kPolicies[] = {
    {"fifo", "in order of arrival, each the GPUs it asks for; the first that finds too few keeps all behind it waiting",
     Rescaling::Restart, Batches::Requested, make_fifo},
    {"srtf", "least remaining time first, which it knows; running jobs are stopped for others", Rescaling::Restart,
     Batches::Requested, make_srtf},
    {"tiresias",
     "two queues by GPUs times time that a job had so far, in order of arrival in each; nothing is known of "
     "its end",
     Rescaling::Restart, Batches::Requested, make_tiresias},
    {"optimus", "now and then, GPU by GPU to the job whose remaining time, which it knows, falls most by it",
     Rescaling::Restart, Batches::Requested, make_optimus_jct},
    {"ones", "evolutionary search over schedules, with batches that follow the GPUs, by predicted progress",
     Rescaling::InPlace, Batches::Elastic, make_ones},
};

/// Grants to jobs in this order what they ask for, as far as there are GPUs; those that find too few are passed over.
JobPlacement in_order(const ClusterView& view, const std::vector<const JobState*>& order) {
  std::int64_t free = std::ssize(view.placement);
  std::vector<Grant> grants;
  for (const JobState* s : order)
    if (s->job->gpus <= free) {
      free -= s->job->gpus;
      grants.emplace_back(s->job->id, s->job->gpus);
    }
  return placed(view.placement, grants);
}

class Fifo final : public ClusterScheduler {
 public:
  JobPlacement decide(const ClusterView& view) override {
    std::int64_t free = std::ssize(view.placement);
    std::vector<Grant> grants;
    for (const JobState* s : view.jobs) {
      if (s->job->gpus > free) break;
      free -= s->job->gpus;
      grants.emplace_back(s->job->id, s->job->gpus);
    }
    return placed(view.placement, grants);
  }
};

class Srtf final : public ClusterScheduler {
 public:
  JobPlacement decide(const ClusterView& view) override {
    std::map<std::int64_t, double> left;
    for (const JobState* s : view.jobs)
      left[s->job->id] =
          s->remaining() / view.rates.epochs_per_second(*s->job, s->job->gpus, elastic_batch(*s->type, s->job->gpus));
    std::vector<const JobState*> order{view.jobs.begin(), view.jobs.end()};
    std::stable_sort(order.begin(), order.end(),
                     [&](const JobState* a, const JobState* b) { return left[a->job->id] < left[b->job->id]; });
    return in_order(view, order);
  }
};

/// Discretised two-dimensional least attained service, Tiresias (NSDI 2019) without promotion of starved jobs.
class Tiresias final : public ClusterScheduler {
 public:
  explicit Tiresias(double threshold) : threshold_{threshold} {}

  JobPlacement decide(const ClusterView& view) override {
    std::vector<const JobState*> order{view.jobs.begin(), view.jobs.end()};
    std::stable_partition(order.begin(), order.end(), [&](const JobState* s) { return !is_demoted(*s); });
    return in_order(view, order);
  }

  /// When the first running job of the first queue has had what that gives.
  std::optional<double> next_look(const ClusterView& view) override {
    std::optional<double> first;
    for (const JobState* s : view.jobs)
      if (s->gpus > 0 && !is_demoted(*s)) {
        const double t = view.now + (threshold_ - s->attained) / double(s->gpus);
        if (!first || t < *first) first = t;
      }
    return first;
  }

 private:
  bool is_demoted(const JobState& s) const { return s.attained >= threshold_ * (1 - 1e-9); }

  double threshold_;
};

/// Optimus (EuroSys 2018): one GPU for each job, then each further one to whose remaining time falls most by it. Here
/// the remaining time is known, and GPUs are not told apart into workers and parameter servers.
class Optimus final : public ClusterScheduler {
 public:
  explicit Optimus(double interval) : interval_{interval} {}

  JobPlacement decide(const ClusterView& view) override {
    if (view.now + 1e-9 < next_) {
      std::vector<Grant> same;
      for (const JobState* s : view.jobs)
        if (s->gpus > 0) same.emplace_back(s->job->id, s->gpus);
      return placed(view.placement, same);
    }
    next_ = interval_ * (std::floor(view.now / interval_ + 1e-9) + 1);
    return placed(view.placement, distribute(view));
  }
  std::optional<double> next_look(const ClusterView& view) override { return std::max(view.now, next_); }

 private:
  static double remaining(const ClusterView& view, const JobState& s, std::int64_t gpus) {
    return s.remaining() / view.rates.epochs_per_second(*s.job, gpus, elastic_batch(*s.type, s.job->gpus));
  }

  static std::vector<Grant> distribute(const ClusterView& view) {
    const std::int64_t all = std::ssize(view.placement);
    const std::size_t chosen = std::min(view.jobs.size(), view.placement.size());
    std::vector<Grant> grants;
    std::vector<double> gain;
    const auto gain_of = [&](std::size_t i) {
      const auto [job, gpus] = grants[i];
      return gpus < all ? remaining(view, *view.jobs[i], gpus) - remaining(view, *view.jobs[i], gpus + 1) : 0;
    };
    for (std::size_t i = 0; i < chosen; ++i) {
      grants.emplace_back(view.jobs[i]->job->id, 1);
      gain.push_back(gain_of(i));
    }
    for (std::int64_t free = all - std::int64_t(chosen); free > 0 && chosen > 0; --free) {
      const auto best = std::size_t(std::max_element(gain.begin(), gain.end()) - gain.begin());
      if (gain[best] <= 0) break;
      ++grants[best].second;
      gain[best] = gain_of(best);
    }
    return grants;
  }

  double interval_, next_ = 0;
};

}  // namespace

std::span<const ClusterPolicy> cluster_policies() { return kPolicies; }

const ClusterPolicy& find_cluster_policy(std::string_view name) {
  std::vector<std::string> known;
  for (const ClusterPolicy& p : kPolicies) {
    if (p.name == name) return p;
    known.emplace_back(p.name);
  }
  throw unknown_name("policy", name, known);
}

JobPlacement placed(const JobPlacement& now, const std::vector<Grant>& grants) {
  std::map<std::int64_t, std::int64_t> missing{grants.begin(), grants.end()};
  JobPlacement next(now.size(), kNoJob);
  for (std::size_t g = 0; g < now.size(); ++g)
    if (const auto it = missing.find(now[g]); it != missing.end() && it->second > 0) {
      next[g] = now[g];
      --it->second;
    }
  std::size_t g = 0;
  for (const auto& [job, gpus] : grants)
    for (std::int64_t& left = missing[job]; left > 0; --left) {
      while (g < next.size() && next[g] != kNoJob) ++g;
      if (g == next.size()) bug("more GPUs are granted than there are");
      next[g] = job;
    }
  return next;
}

double JobState::loss() const { return type->loss * (0.1 + 0.9 * std::exp(-job->pace * done())); }
double JobState::accuracy() const { return type->accuracy * std::expm1(-job->pace * done()) / std::expm1(-job->pace); }

std::unique_ptr<ClusterScheduler> make_fifo(const PolicyInputs&) { return std::make_unique<Fifo>(); }
std::unique_ptr<ClusterScheduler> make_srtf(const PolicyInputs&) { return std::make_unique<Srtf>(); }
std::unique_ptr<ClusterScheduler> make_tiresias(const PolicyInputs& in) {
  return std::make_unique<Tiresias>(in.options.tiresias.threshold.base());
}
std::unique_ptr<ClusterScheduler> make_optimus_jct(const PolicyInputs& in) {
  return std::make_unique<Optimus>(in.options.optimus.interval.base());
}

}  // namespace orrery
