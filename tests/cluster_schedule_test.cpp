// SPDX-License-Identifier: Apache-2.0
// Policies of a cluster against brute force, arithmetic by hand, and what no schedule may do.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "sim/base/random.hpp"
#include "sim/program/cluster/ones.hpp"
#include "sim/program/cluster/paced_workers.hpp"
#include "tests/cluster_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// The least sum of completion times on one GPU by trying every job in every second: arrivals and lengths are whole.
class LeastTotal {
 public:
  explicit LeastTotal(const std::vector<Job>& jobs) : jobs_{jobs} {
    for (const Job& j : jobs) left_.push_back(int(j.epochs));
  }
  double from(int now = 0) {
    const auto [at, fresh] = known_.try_emplace({now, left_}, 1e300);
    if (!fresh) return at->second;
    double best = 1e300;
    bool any = false, all_done = true;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      all_done = all_done && left_[i] == 0;
      if (left_[i] == 0 || jobs_[i].arrival > now) continue;
      any = true;
      --left_[i];
      best = std::min(best, from(now + 1) + (left_[i] == 0 ? now + 1 - jobs_[i].arrival : 0));
      ++left_[i];
    }
    if (all_done) best = 0;
    if (!any && !all_done) best = from(now + 1);
    return known_[{now, left_}] = best;
  }

 private:
  std::vector<Job> jobs_;
  std::vector<int> left_;
  std::map<std::pair<int, std::vector<int>>, double> known_;
};

const std::vector<std::string_view> kAll = {"fifo", "srtf", "tiresias", "optimus", "ones"};

std::map<std::int64_t, std::int64_t> counts_of(const JobPlacement& p) {
  std::map<std::int64_t, std::int64_t> counts;
  for (const std::int64_t job : p) ++counts[job];
  return counts;
}

JobFileOptions quick_ones() {
  JobFileOptions o;
  o.ones.passes = 2;
  return o;
}

}  // namespace

TEST_CASE("SRTF on one GPU has the least mean completion time of all schedules where preemption is free") {
  Random random{5};
  for (int trial = 0; trial < 30; ++trial) {
    JobSet set{{linear_template()}, {}};
    double arrival = 0;
    for (int i = 0; i < 5; ++i) {
      set.jobs.push_back(plain_job(i, arrival, 1 + double(random.below(5))));
      arrival += double(random.below(3));
    }
    INFO(trial);
    CHECK(total_jct(scheduled("srtf", set, 1)) == Approx(LeastTotal{set.jobs}.from()).epsilon(1e-9));
  }
}

TEST_CASE("FIFO starts jobs in order of arrival, each when its GPUs are free") {
  Random random{6};
  JobSet set{{linear_template()}, {}};
  double arrival = 0;
  for (int i = 0; i < 60; ++i) {
    set.jobs.push_back(plain_job(i, arrival, 1 + double(random.below(30)), 1 + std::int64_t(random.below(8))));
    arrival += random.exponential(3);
  }
  const ClusterResult r = scheduled("fifo", set, 8);
  std::vector<std::pair<double, std::int64_t>> running;  // end, GPUs
  double start = 0;
  for (const Job& job : set.jobs) {
    start = std::max(start, job.arrival);
    for (;;) {
      std::erase_if(running, [&](const auto& x) { return x.first <= start + 1e-9; });
      std::int64_t held = 0;
      for (const auto& x : running) held += x.second;
      if (held + job.gpus <= 8) break;
      start = std::min_element(running.begin(), running.end())->first;
    }
    running.emplace_back(start + job.epochs / double(job.gpus), job.gpus);
    CHECK(r.jobs[std::size_t(job.id)].end == Approx(running.back().first).epsilon(1e-9));
    CHECK(r.jobs[std::size_t(job.id)].changes == 1);
  }
}

TEST_CASE("a job that is stopped pays for its checkpoint and goes on where it was") {
  // One GPU. The long job starts in 2 s, computes 3 of 10 epochs to t = 5, when the short one comes: 2 s + 1 epoch to
  // t = 8. The long one reads a checkpoint: 2 s, and 2·4e6·12/4.8e7 = 2 s; 7 epochs are over at 19.
  JobSet set{{linear_template()}, {plain_job(0, 0, 10), plain_job(1, 5, 1)}};
  set.templates[0].parameters = 4e6;
  JobFileOptions o = no_overheads();
  o.overheads.process = Seconds{1.5}, o.overheads.communicator = Seconds{0.5};
  o.overheads.checkpoint = BytesPerSecond{4.8e7};
  const ClusterResult r = scheduled("srtf", set, 1, o);
  CHECK(r.jobs[1].end == Approx(8));
  CHECK(r.jobs[0].end == Approx(19));
  CHECK(r.jobs[0].changes == 2);
  CHECK(r.jobs[0].queueing() == Approx(3));
  CHECK(r.jobs[0].overhead == Approx(2 + 4));
  CHECK(r.utilisation() == Approx(1));
  // In place: two communicators, 4 bytes of 4e6 parameters at 3.2e7 B/s, and 0.25 s.
  o.overheads.broadcast = BytesPerSecond{3.2e7}, o.overheads.rebuild = Seconds{0.25};
  CHECK(rescale_seconds(o.overheads, set.templates[0]) == Approx(1 + 0.5 + 0.25));
}

TEST_CASE("Tiresias lets new jobs pass one that had its share") {
  // The first job has 4 s of one GPU and is then behind the second, which came at 1 and has 4 s, too; then the first.
  JobSet set{{linear_template()}, {plain_job(0, 0, 10), plain_job(1, 1, 6)}};
  JobFileOptions o = no_overheads();
  o.tiresias.threshold = Seconds{4};
  const ClusterResult r = scheduled("tiresias", set, 1, o);
  CHECK(r.jobs[0].end == Approx(14));  // 4 s, from 8 on 6 s
  CHECK(r.jobs[1].end == Approx(16));  // 4 to 8, then behind the first in the second queue
}

TEST_CASE("Optimus gives out GPUs so that remaining times add up to the least") {
  JobSet set = mixed_jobs(3, 4, 1e-3);
  JobFileOptions o = no_overheads();
  JobRates rates{set.templates, 7, 7};
  std::vector<JobState> states;
  std::vector<const JobState*> jobs;
  for (const Job& j : set.jobs) states.push_back({.job = &j, .type = &set.templates[j.type]});
  for (const JobState& s : states) jobs.push_back(&s);
  const JobPlacement empty(7, kNoJob);
  const auto optimus = find_cluster_policy("optimus").make({o, set, 1});
  auto counts = counts_of(optimus->decide({0, empty, jobs, rates}));
  const auto total = [&](std::int64_t a, std::int64_t b, std::int64_t c) {
    double sum = 0;
    std::size_t i = 0;
    for (const std::int64_t n : {a, b, c}) {
      const Job& j = set.jobs[i++];
      sum += j.epochs / rates.epochs_per_second(j, n, elastic_batch(set.templates[j.type], j.gpus));
    }
    return sum;
  };
  double best = 1e300;
  for (std::int64_t a = 1; a < 6; ++a)
    for (std::int64_t b = 1; a + b < 7; ++b)
      for (std::int64_t c = 1; a + b + c <= 7; ++c) best = std::min(best, total(a, b, c));
  CHECK(total(counts[0], counts[1], counts[2]) == Approx(best));
}

TEST_CASE("no GPU has two jobs, none is left idle for nothing, and all jobs end") {
  const JobSet set = mixed_jobs(60, 3);
  const std::int64_t gpus = 24;
  for (const std::string_view policy : kAll) {
    INFO(policy);
    JobRates rates{set.templates, gpus, 4};
    const JobFileOptions o = quick_ones();
    ClusterRequest q{.options = o, .jobs = set, .rates = rates, .gpus = gpus};
    std::int64_t idle_while_waiting = 0, views = 0;
    q.check = [&](const ClusterView& view) {
      ++views;
      auto counts = counts_of(view.placement);
      const std::int64_t free = counts[kNoJob];
      std::int64_t held = 0;
      bool is_first = true;
      for (const JobState* s : view.jobs) {
        CHECK(counts[s->job->id] == s->gpus);
        held += s->gpus;
        if (s->gpus > 0) continue;
        const bool fits = policy == "ones" ? free > 0 : s->job->gpus <= free;
        idle_while_waiting += policy == "optimus" ? 0 : policy == "fifo" ? is_first && fits : fits;
        is_first = false;
      }
      CHECK(held + free == gpus);
    };
    std::vector<std::vector<std::pair<double, double>>> busy(gpus);
    double stayed = 0;
    q.on_stay = [&](const JobStay& s) {
      for (const std::int64_t g : s.gpus) busy[std::size_t(g)].emplace_back(s.from, s.to);
      CHECK((s.from <= s.ready && s.ready <= s.to));
      stayed += (s.to - s.from) * double(s.gpus.size());
    };
    const ClusterResult r = simulate_cluster(q, find_cluster_policy(policy));
    CHECK(views > 60);
    CHECK(idle_while_waiting == 0);
    CHECK(stayed == Approx(r.held));
    for (auto& spans : busy) {
      std::sort(spans.begin(), spans.end());
      for (std::size_t i = 1; i < spans.size(); ++i) CHECK(spans[i].first >= spans[i - 1].second - 1e-9);
    }
    for (const JobRecord& job : r.jobs) {
      CHECK(job.queueing() >= -1e-9);
      CHECK(job.end <= r.makespan);
    }
  }
}

TEST_CASE("each job trains exactly the epochs that its batches take") {
  // Stays without overheads, times the speed at their number of GPUs, are the job's epochs.
  const JobSet set = mixed_jobs(30, 9);
  for (const std::string_view policy : kAll) {
    JobRates rates{set.templates, 16, 4};
    JobFileOptions o = quick_ones();
    ClusterRequest q{.options = o, .jobs = set, .rates = rates, .gpus = 16};
    std::map<std::int64_t, double> trained;
    const ClusterPolicy& p = find_cluster_policy(policy);
    q.on_stay = [&](const JobStay& s) {
      const Job& job = set.jobs[std::size_t(s.job)];
      const std::int64_t n = std::ssize(s.gpus);
      const std::int64_t batch = elastic_batch(rates.type(job), p.batches == Batches::Elastic ? n : job.gpus);
      trained[s.job] += (s.to - s.ready) * rates.epochs_per_second(job, n, batch);
    };
    simulate_cluster(q, p);
    INFO(policy);
    for (const Job& job : set.jobs) CHECK(trained[job.id] == Approx(job.epochs).epsilon(1e-9));
  }
}

TEST_CASE("schedules are the same each time, in another thread, too") {
  const JobSet set = mixed_jobs(30, 11);
  for (const std::string_view policy : kAll) {
    const ClusterResult once = scheduled(policy, set, 16, quick_ones());
    ClusterResult again;
    std::thread{[&] { again = scheduled(policy, set, 16, quick_ones()); }}.join();
    CHECK(once.looks == again.looks);
    for (std::size_t i = 0; i < set.jobs.size(); ++i) CHECK(once.jobs[i].end == again.jobs[i].end);
  }
}

TEST_CASE("ONES lets a job that is alone grow to four times what it asked for") {
  JobSet set{{linear_template()}, {plain_job(0, 0, 400, 2)}};
  JobFileOptions o = no_overheads();
  o.ones.progress = ProgressSource::Oracle;
  std::int64_t most = 0;
  JobRates rates{set.templates, 16, 4};
  ClusterRequest q{.options = o, .jobs = set, .rates = rates, .gpus = 16};
  q.on_decision = [&](const ClusterDecision& d) { most = std::max(most, d.gpus); };
  const ClusterResult r = simulate_cluster(q, find_cluster_policy("ones"));
  CHECK(most == 8);
  CHECK(r.jobs[0].end < 400.0 / 8 + 8);
  CHECK(r.jobs[0].end > 400.0 / 8);
}

TEST_CASE("workers that are really held give the decisions and times of the simulation") {
  // Events are at least 0.5 modelled seconds apart, 30 ms of real time.
  JobSet set{{linear_template()}, {}};
  const double arrivals[] = {0, 1.5, 2.2, 6.7}, epochs[] = {7, 4, 1, 2};
  for (int i = 0; i < 4; ++i) set.jobs.push_back(plain_job(i, arrivals[i], epochs[i], i == 1 ? 2 : 1));
  for (const std::string_view policy : {"fifo", "srtf"}) {
    INFO(policy);
    const JobFileOptions o = no_overheads();
    JobRates rates{set.templates, 2, 2};
    ClusterRequest q{.options = o, .jobs = set, .rates = rates, .gpus = 2};
    std::vector<ClusterDecision> simulated, really;
    q.on_decision = [&](const ClusterDecision& d) { simulated.push_back(d); };
    const ClusterResult r = simulate_cluster(q, find_cluster_policy(policy));
    q.on_decision = [&](const ClusterDecision& d) { really.push_back(d); };
    const ClusterResult p = run_cluster(q, find_cluster_policy(policy), *paced_workers(2, 0.06));
    CHECK(simulated.size() >= 4);
    CHECK(is_same_order(simulated, really));
    for (std::size_t i = 0; i < set.jobs.size(); ++i) {
      CHECK(p.jobs[i].end >= r.jobs[i].end - 1e-6);
      CHECK(p.jobs[i].end < r.jobs[i].end + 0.5);
    }
  }
}
