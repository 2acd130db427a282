// SPDX-License-Identifier: Apache-2.0
// ONES, arXiv 2108.03645, by what its published artifact does. Where this differs: prediction sees the logarithm of an
// epoch's samples as learning does; a job that is too young to be stopped stays in every schedule; the running schedule
// is one of the candidates; GPUs that a schedule grants are those a job has already, where it has some.
#include "sim/program/cluster/ones.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "sim/base/error.hpp"
#include "sim/program/arrivals.hpp"

namespace orrery {
namespace {

/// A schedule: the index of the job on each GPU among those under way, or −1.
using Genome = std::vector<std::int32_t>;

/// A job as one search step sees it.
struct Seen {
  const JobState* state = nullptr;
  bool is_old = false;                 // old enough to be stopped or rescaled
  double work = 0;                     // samples that it lacks, as drawn
  double order = 0;                    // seconds that these take on one GPU
  std::int64_t allowed = 1, hard = 1;  // GPUs: offered, and at most
};

ProgressRecord record_of(const JobState& s) {
  const double initial = s.type->loss;
  return {double(s.job->samples), initial, s.samples / double(s.job->samples), s.loss(), s.accuracy(), 0};
}

/// What a job that trained on one GPU logged at the end of each epoch.
std::vector<ProgressRecord> history_of(const Job& job, const JobTemplate& type) {
  JobState s{.job = &job, .type = &type};
  std::vector<ProgressRecord> records;
  for (double e = 1; e <= job.epochs; e += 1) {
    s.samples = e * double(job.samples), s.progress = e;
    records.push_back(record_of(s));
    records.back().done = s.done();
  }
  return records;
}

class Ones final : public ClusterScheduler {
 public:
  explicit Ones(const PolicyInputs& in) : o_{in.options.ones}, random_{in.seed, 10} {
    if (o_.progress == ProgressSource::Oracle) return;
    predictor_ = std::make_unique<ProgressPredictor>(o_, in.seed);
    const std::vector<Job> past =
        drawn_jobs(in.jobs.templates, {.jobs = o_.history, .arrival = Arrival::AllAtOnce}, in.seed ^ 0x4f4e4553ull);
    for (const Job& job : past) predictor_->add(history_of(job, in.jobs.templates[job.type]));
    predictor_->learn();
  }

  JobPlacement decide(const ClusterView& view) override {
    log(view);
    if (view.now + 1e-9 < next_) return filled(view, {});
    next_ = o_.interval.base() * (std::floor(view.now / o_.interval.base() + 1e-9) + 1);
    return search(view);
  }
  std::optional<double> next_look(const ClusterView& view) override { return std::max(view.now, next_); }

  void ended(const JobState& s) override {
    most_.erase(s.job->id);
    const auto logged = logs_.extract(s.job->id);
    if (!predictor_ || logged.empty()) return;
    std::vector<ProgressRecord> records = logged.mapped();
    for (ProgressRecord& r : records) r.done = std::min(1.0, r.epochs * double(s.job->samples) / s.samples);
    predictor_->add(records);
    predictor_->learn();
  }

 private:
  void log(const ClusterView& view);
  double drawn_progress(const JobState& s);
  void look_at_jobs(const ClusterView& view);
  void grow_and_shrink(const ClusterView& view);
  JobPlacement search(const ClusterView& view);
  std::vector<Genome> candidates(const ClusterView& view);
  Genome genome_of(const JobPlacement& placement) const;
  void trim(Genome& genome) const;
  void cross(Genome& a, Genome& b);
  void mutate(Genome& genome);
  void keep_young(Genome& genome, std::vector<std::int64_t>& counts) const;
  void pad(Genome& genome) const;
  Genome in_order(const Genome& genome, const std::vector<std::int32_t>& order) const;
  double score(const Genome& genome) const;
  JobPlacement adopted(const ClusterView& view, const std::vector<std::int64_t>& counts);
  JobPlacement filled(const ClusterView& view, const std::vector<std::int64_t>& counts) const;
  std::vector<std::int64_t> counts_of(const Genome& genome) const;
  std::vector<std::int32_t> usual_order(const ClusterView& view) const;

  const OnesOptions o_;
  Random random_;
  std::unique_ptr<ProgressPredictor> predictor_;
  std::map<std::int64_t, std::int64_t> most_;                 // GPUs that a job may have
  std::map<std::int64_t, std::vector<ProgressRecord>> logs_;  // of each epoch
  std::vector<JobPlacement> population_;
  std::vector<Seen> seen_;
  std::vector<std::int32_t> by_order_;  // old jobs, least work first
  double next_ = 0;
};

void Ones::log(const ClusterView& view) {
  if (!predictor_) return;
  for (const JobState* s : view.jobs)
    if (auto& records = logs_[s->job->id]; s->epochs > std::ssize(records)) {
      const std::size_t missing = std::size_t(s->epochs) - records.size();
      records.insert(records.end(), missing, record_of(*s));
    }
}

double Ones::drawn_progress(const JobState& s) {
  double done = s.done();
  if (predictor_) {
    const ProgressRecord now = record_of(s);
    done = draw_beta(now.epochs, predictor_->beta(now), random_);
  }
  return std::clamp(done, 1e-3, 1 - 1e-6);
}

void Ones::look_at_jobs(const ClusterView& view) {
  const std::int64_t all = std::ssize(view.placement);
  seen_.clear(), by_order_.clear();
  for (const JobState* s : view.jobs) {
    Seen job{.state = s, .is_old = s->epochs >= o_.epochs};
    job.hard = std::min(all, o_.most_requests * s->job->gpus);
    if (job.is_old) {
      job.allowed = std::min(most_.try_emplace(s->job->id, 1).first->second, job.hard);
      job.work = s->samples * (1 / drawn_progress(*s) - 1);
      job.order = job.work / estimated_rate(*s, 1);
      by_order_.push_back(std::int32_t(seen_.size()));
    } else {
      job.allowed = job.hard = 1;
    }
    seen_.push_back(job);
  }
  std::stable_sort(by_order_.begin(), by_order_.end(), [&](std::int32_t a, std::int32_t b) {
    return seen_[std::size_t(a)].order < seen_[std::size_t(b)].order;
  });
}

/// Jobs that have what they may have may have twice as much; the largest, where it has half of all and ran for longer
/// than the median, is to have 2·n/(t/median + 1), an even number.
void Ones::grow_and_shrink(const ClusterView& view) {
  const std::int64_t all = std::ssize(view.placement);
  std::vector<double> times;
  const JobState* largest = nullptr;
  for (const JobState* s : view.jobs) {
    if (s->gpus == 0) continue;
    times.push_back(s->held);
    if (!largest || s->gpus > largest->gpus) largest = s;
    if (s->epochs < o_.epochs) continue;
    std::int64_t& most = most_.try_emplace(s->job->id, 1).first->second;
    if (s->gpus == most) most = std::min(all, 2 * most);
  }
  if (!largest || 2 * largest->gpus < all || largest->epochs < o_.epochs) return;
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  if (largest->held <= *middle || *middle <= 0) return;
  const double size = 2 * double(largest->gpus) / (largest->held / *middle + 1);
  most_[largest->job->id] = 2 * std::max<std::int64_t>(1, std::llround(std::ceil(size / 2)));
}

Genome Ones::genome_of(const JobPlacement& placement) const {
  Genome genome(placement.size(), -1);
  for (std::size_t g = 0; g < placement.size(); ++g) {
    const auto at = std::lower_bound(seen_.begin(), seen_.end(), placement[g],
                                     [](const Seen& s, std::int64_t id) { return s.state->job->id < id; });
    if (at != seen_.end() && at->state->job->id == placement[g]) genome[g] = std::int32_t(at - seen_.begin());
  }
  return genome;
}

std::vector<std::int64_t> Ones::counts_of(const Genome& genome) const {
  std::vector<std::int64_t> counts(seen_.size(), 0);
  for (const std::int32_t job : genome)
    if (job >= 0) ++counts[std::size_t(job)];
  return counts;
}

void Ones::trim(Genome& genome) const {
  std::vector<std::int64_t> counts(seen_.size(), 0);
  for (std::int32_t& job : genome)
    if (job >= 0 && ++counts[std::size_t(job)] > seen_[std::size_t(job)].allowed) job = -1;
}

void Ones::cross(Genome& a, Genome& b) {
  for (std::size_t g = 0; g < a.size(); ++g)
    if (random_.bernoulli(o_.crossover)) std::swap(a[g], b[g]);
  trim(a), trim(b);
}

void Ones::mutate(Genome& genome) {
  std::vector<char> is_out(seen_.size(), 0);
  for (std::size_t j = 0; j < seen_.size(); ++j) is_out[j] = seen_[j].is_old && random_.bernoulli(o_.mutation);
  for (std::int32_t& job : genome)
    if (job >= 0 && is_out[std::size_t(job)]) job = -1;
}

/// A young job that runs and got lost has a free GPU, or one of the largest job.
void Ones::keep_young(Genome& genome, std::vector<std::int64_t>& counts) const {
  for (std::size_t j = 0; j < seen_.size(); ++j) {
    if (seen_[j].is_old || seen_[j].state->gpus == 0 || counts[j] > 0) continue;
    auto at = std::find(genome.begin(), genome.end(), -1);
    if (at == genome.end()) {
      const auto largest = std::max_element(counts.begin(), counts.end()) - counts.begin();
      at = std::find(genome.begin(), genome.end(), std::int32_t(largest));
      --counts[std::size_t(largest)];
    }
    *at = std::int32_t(j);
    ++counts[j];
  }
}

/// Free GPUs: one for each new job in order of arrival; then up to what the others may have, those that lack least
/// first; then up to their most.
void Ones::pad(Genome& genome) const {
  std::vector<std::int64_t> counts = counts_of(genome);
  keep_young(genome, counts);
  std::size_t g = 0;
  const auto give = [&](std::int32_t job, std::int64_t upto) {
    for (; counts[std::size_t(job)] < upto; ++counts[std::size_t(job)]) {
      while (g < genome.size() && genome[g] >= 0) ++g;
      if (g == genome.size()) return;
      genome[g] = job;
    }
  };
  for (std::size_t j = 0; j < seen_.size(); ++j)
    if (!seen_[j].is_old) give(std::int32_t(j), 1);
  for (const std::int32_t job : by_order_) give(job, seen_[std::size_t(job)].allowed);
  for (const std::int32_t job : by_order_) give(job, seen_[std::size_t(job)].hard);
}

/// Jobs that have GPUs, in their order, then the others.
std::vector<std::int32_t> Ones::usual_order(const ClusterView& view) const {
  std::vector<std::int32_t> order;
  std::vector<char> is_in(seen_.size(), 0);
  const auto add = [&](std::int32_t job) {
    if (job >= 0 && !std::exchange(is_in[std::size_t(job)], 1)) order.push_back(job);
  };
  for (const std::int32_t job : genome_of(view.placement)) add(job);
  for (std::size_t j = 0; j < seen_.size(); ++j) add(std::int32_t(j));
  return order;
}

Genome Ones::in_order(const Genome& genome, const std::vector<std::int32_t>& order) const {
  const std::vector<std::int64_t> counts = counts_of(genome);
  Genome next;
  for (const std::int32_t job : order) next.insert(next.end(), std::size_t(counts[std::size_t(job)]), job);
  next.resize(genome.size(), -1);
  return next;
}

/// GPU-seconds that the jobs of a schedule lack.
double Ones::score(const Genome& genome) const {
  const std::vector<std::int64_t> counts = counts_of(genome);
  double sum = 0;
  for (const std::int32_t j : by_order_)
    if (const std::int64_t n = counts[std::size_t(j)]; n > 0)
      sum += double(n) * seen_[std::size_t(j)].work / estimated_rate(*seen_[std::size_t(j)].state, n);
  return sum;
}

/// The running schedule, those that were kept, children of pairs of them, and mutants.
std::vector<Genome> Ones::candidates(const ClusterView& view) {
  population_.resize(std::size_t(o_.population), JobPlacement(view.placement.size(), kNoJob));
  std::vector<Genome> kept;
  for (const JobPlacement& p : population_) trim(kept.emplace_back(genome_of(p)));
  std::vector<Genome> all{genome_of(view.placement)};
  all.insert(all.end(), kept.begin(), kept.end());
  for (std::size_t pair = 0; pair < kept.size() / 2; ++pair) {
    Genome a = kept[random_.below(kept.size())], b = kept[random_.below(kept.size())];
    cross(a, b);
    all.push_back(std::move(a)), all.push_back(std::move(b));
  }
  for (const Genome& g : kept) mutate(all.emplace_back(g));
  return all;
}

JobPlacement Ones::search(const ClusterView& view) {
  grow_and_shrink(view);
  look_at_jobs(view);
  const std::vector<std::int32_t> order = usual_order(view);
  std::vector<Genome> all = candidates(view);
  std::vector<double> scores;
  for (Genome& g : all) {
    pad(g);
    g = in_order(g, order);
    scores.push_back(score(g));
  }
  std::vector<std::size_t> ranked(all.size());
  std::iota(ranked.begin(), ranked.end(), 0u);
  std::stable_sort(ranked.begin(), ranked.end(), [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  for (std::size_t k = 0; k < population_.size(); ++k)
    for (std::size_t g = 0; g < view.placement.size(); ++g) {
      const std::int32_t job = all[ranked[k]][g];
      population_[k][g] = job < 0 ? kNoJob : seen_[std::size_t(job)].state->job->id;
    }
  return adopted(view, counts_of(all[ranked.front()]));
}

/// The schedule, where every running job that it changes has finished an epoch since it was last changed; else what of
/// it only needs GPUs that are free.
JobPlacement Ones::adopted(const ClusterView& view, const std::vector<std::int64_t>& counts) {
  bool is_changed = false;
  std::vector<Grant> grants;
  for (std::size_t j = 0; j < seen_.size(); ++j) {
    const JobState& s = *seen_[j].state;
    if (counts[j] != s.gpus) {
      is_changed = true;
      if (s.gpus > 0 && s.epochs_since < 1) return filled(view, counts);
    }
    if (counts[j] > 0) grants.emplace_back(s.job->id, counts[j]);
  }
  if (!is_changed) return view.placement;
  for (std::size_t j = 0; j < seen_.size(); ++j)
    if (seen_[j].is_old && seen_[j].state->gpus == 0 && counts[j] == 0) {
      std::int64_t& most = most_[seen_[j].state->job->id];
      most = std::max<std::int64_t>(1, most / 2);
    }
  return placed(view.placement, grants);
}

/// The running schedule, and waiting jobs on free GPUs: new ones on one each, then others on as many as `counts` has
/// for them, or one.
JobPlacement Ones::filled(const ClusterView& view, const std::vector<std::int64_t>& counts) const {
  std::int64_t free = std::ssize(view.placement);
  std::vector<Grant> grants;
  for (const JobState* s : view.jobs)
    if (s->gpus > 0) {
      free -= s->gpus;
      grants.emplace_back(s->job->id, s->gpus);
    }
  for (const bool started : {false, true})
    for (std::size_t j = 0; j < view.jobs.size() && free > 0; ++j) {
      const JobState& s = *view.jobs[j];
      if (s.gpus > 0 || s.started != started) continue;
      const std::int64_t wanted = started && !counts.empty() ? std::max<std::int64_t>(1, counts[j]) : 1;
      grants.emplace_back(s.job->id, std::min(wanted, free));
      free -= grants.back().second;
    }
  return placed(view.placement, grants);
}

}  // namespace

double estimated_rate(const JobState& job, std::int64_t gpus) {
  const auto& m = job.measured;
  if (m.empty()) return 0;
  std::pair<std::int64_t, double> low{0, 0.0}, high = m.front();
  for (std::size_t i = 1; i < m.size() && high.first < gpus; ++i) low = m[i - 1], high = m[i];
  const double slope = (high.second - low.second) / double(high.first - low.first);
  return std::max(high.second * 1e-3, low.second + slope * double(gpus - low.first));
}

std::unique_ptr<ClusterScheduler> make_ones(const PolicyInputs& in) { return std::make_unique<Ones>(in); }

}  // namespace orrery
