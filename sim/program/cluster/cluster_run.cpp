// SPDX-License-Identifier: Apache-2.0
#include "sim/program/cluster/cluster_run.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

class SimulatedClock final : public ClusterClock {
 public:
  void post(const ClusterEvent& event, std::span<const std::int64_t>) override { events_.push({event, posted_++}); }
  ClusterEvent next() override {
    if (events_.empty()) bug("jobs wait and nothing will happen");
    const ClusterEvent e = events_.top().event;
    events_.pop();
    return e;
  }
  bool is_due(double now) override { return !events_.empty() && events_.top().event.time <= now; }

 private:
  struct Entry {
    ClusterEvent event;
    std::int64_t order;
    bool operator<(const Entry& o) const {  // the queue's top is the greatest
      return event.time != o.event.time ? event.time > o.event.time : order > o.order;
    }
  };
  std::priority_queue<Entry> events_;
  std::int64_t posted_ = 0;
};

/// What the run knows of a job and the scheduler does not.
struct JobRun {
  JobState state;
  std::vector<std::int64_t> gpus;  // their numbers
  std::int64_t turn = 0;
  double from = 0, ready = 0;  // of its stay
  double settled = 0;          // until when its progress is counted
  double rate = 0, factor = 1;
  double in_epoch = 0;  // samples of the epoch under way
  double aim = 0;       // samples of the turn under way, all of it
  JobRecord record;
};

class ClusterRun {
 public:
  ClusterRun(const ClusterRequest& request, const ClusterPolicy& policy, ClusterClock& clock)
      : q_{request}, policy_{policy}, clock_{clock}, placement_(std::size_t(request.gpus), kNoJob) {
    scheduler_ = policy.make({q_.options, q_.jobs, q_.seed});
    runs_.resize(q_.jobs.jobs.size());
    for (const Job& job : q_.jobs.jobs) {
      JobRun& run = runs_[std::size_t(job.id)];
      run.state.job = run.record.job = &job;
      run.state.type = &q_.rates.type(job);
    }
  }

  ClusterResult run();

 private:
  ClusterView view() { return {now_, placement_, active_, q_.rates}; }
  void take(const ClusterEvent& event);
  void ask();
  void post_look();
  void apply(const JobPlacement& next);
  void leave(JobRun& run);
  void enter(JobRun& run, std::vector<std::int64_t> gpus, double delay);
  void settle(JobRun& run);
  void count_time(JobRun& run);
  void start_turn(JobRun& run);
  void finish_turn(JobRun& run);
  void finish_epoch(JobRun& run);
  void end(JobRun& run);
  void end_stay(JobRun& run);
  double change_seconds(const JobRun& run) const;
  void post_arrival();

  const ClusterRequest& q_;
  const ClusterPolicy& policy_;
  ClusterClock& clock_;
  std::unique_ptr<ClusterScheduler> scheduler_;
  std::vector<JobRun> runs_;
  std::vector<const JobState*> active_;
  JobPlacement placement_;
  ClusterResult result_;
  double now_ = 0;
  std::size_t arrived_ = 0;
  std::optional<double> look_;  // the next one that is posted
};

ClusterResult ClusterRun::run() {
  result_.policy = policy_.name, result_.gpus = q_.gpus;
  post_arrival();
  for (std::size_t ended = 0; ended < runs_.size();) {
    if (q_.pause) q_.pause();
    do take(clock_.next());
    while (clock_.is_due(now_));
    ask();
    ended = arrived_ - active_.size();
  }
  for (JobRun& run : runs_) result_.jobs.push_back(run.record);
  return std::move(result_);
}

/// One at a time: memory does not grow with those to come.
void ClusterRun::post_arrival() {
  if (arrived_ < q_.jobs.jobs.size())
    clock_.post({ClusterEvent::Kind::Arrival, q_.jobs.jobs[arrived_].arrival, std::int64_t(arrived_)}, {});
}

void ClusterRun::take(const ClusterEvent& event) {
  now_ = std::max(now_, event.time);
  if (event.kind == ClusterEvent::Kind::Look) {
    if (look_ && event.time >= *look_) look_.reset();
    return;
  }
  JobRun& run = runs_[std::size_t(event.job)];
  if (event.kind == ClusterEvent::Kind::Arrival) {
    active_.push_back(&run.state);
    ++arrived_;
    return post_arrival();
  }
  if (event.turn == run.turn) finish_turn(run);
}

void ClusterRun::ask() {
  if (active_.empty()) return;
  for (const JobState* s : active_) count_time(runs_[std::size_t(s->job->id)]);
  ++result_.looks;
  apply(scheduler_->decide(view()));
  if (q_.check) q_.check(view());
  post_look();
}

void ClusterRun::post_look() {
  const std::optional<double> at = scheduler_->next_look(view());
  if (!at || (look_ && *look_ <= *at && *look_ > now_)) return;
  look_ = std::max(*at, now_);
  clock_.post({ClusterEvent::Kind::Look, *look_}, {});
}

void ClusterRun::apply(const JobPlacement& next) {
  if (next.size() != placement_.size()) bug("a placement of another cluster");
  if (next == placement_) return;
  struct Change {
    std::vector<std::int64_t> gpus;
    double delay = 0;
  };
  std::map<std::int64_t, Change> changes;
  for (std::size_t g = 0; g < next.size(); ++g)
    if (next[g] != placement_[g])
      for (const std::int64_t job : {next[g], placement_[g]})
        if (job != kNoJob) changes[job];
  for (std::size_t g = 0; g < next.size(); ++g)
    if (const auto it = changes.find(next[g]); it != changes.end()) it->second.gpus.push_back(std::int64_t(g));
  placement_ = next;
  for (auto& [job, change] : changes) {  // all let go before others take their GPUs
    JobRun& run = runs_[std::size_t(job)];
    change.delay = change_seconds(run);
    leave(run);
    if (change.gpus.empty() && q_.on_decision) q_.on_decision({now_, job, 0});
  }
  for (auto& [job, change] : changes)
    if (!change.gpus.empty()) enter(runs_[std::size_t(job)], std::move(change.gpus), change.delay);
}

double ClusterRun::change_seconds(const JobRun& run) const {
  if (!run.state.started) return start_seconds(q_.options.overheads);
  return run.gpus.empty() || policy_.rescaling == Rescaling::Restart
             ? restart_seconds(q_.options.overheads, *run.state.type)
             : rescale_seconds(q_.options.overheads, *run.state.type);
}

void ClusterRun::leave(JobRun& run) {
  JobState& s = run.state;
  if (std::find(active_.begin(), active_.end(), &s) == active_.end()) bug("GPUs for a job that is not there");
  if (run.gpus.empty()) return;
  settle(run);
  clock_.release(run.gpus);
  end_stay(run);
  if (2 * run.in_epoch >= double(s.job->samples)) finish_epoch(run);
  run.in_epoch = 0;
  run.gpus.clear();
  s.gpus = s.batch = s.epochs_since = 0;
  ++run.turn;
}

void ClusterRun::enter(JobRun& run, std::vector<std::int64_t> gpus, double delay) {
  JobState& s = run.state;
  run.gpus = std::move(gpus);
  s.gpus = std::ssize(run.gpus);
  if (q_.on_decision) q_.on_decision({now_, s.job->id, s.gpus});
  s.started = true;
  s.batch = elastic_batch(*s.type, policy_.batches == Batches::Elastic ? s.gpus : s.job->gpus);
  run.rate = q_.rates.samples_per_second(s.job->type, s.gpus, s.batch);
  run.factor = epochs_factor(*s.type, s.batch) * double(s.job->samples);
  run.from = now_, run.ready = now_ + delay;
  ++run.record.changes;
  start_turn(run);
}

/// Lets its GPUs work to the end of its epoch, or of the job where that comes first.
void ClusterRun::start_turn(JobRun& run) {
  JobState& s = run.state;
  run.settled = std::max(now_, run.ready);
  run.aim = std::min(double(s.job->samples) - run.in_epoch, s.remaining() * run.factor);
  clock_.post({ClusterEvent::Kind::Milestone, run.settled + run.aim / run.rate, s.job->id, ++run.turn}, run.gpus);
}

/// Seconds with GPUs up to now.
void ClusterRun::count_time(JobRun& run) {
  if (run.gpus.empty()) return;
  const double more = run.record.held + (now_ - run.from) - run.state.held;
  run.state.held += more;
  run.state.attained += more * double(run.state.gpus);
}

/// Counts what was computed of the turn up to now.
void ClusterRun::settle(JobRun& run) {
  if (run.gpus.empty() || now_ <= run.settled) return;
  const double samples = std::min(run.aim, (now_ - run.settled) * run.rate);
  run.settled = now_;
  run.aim -= samples, run.in_epoch += samples;
  run.state.samples += samples, run.state.progress += samples / run.factor;
}

void ClusterRun::finish_turn(JobRun& run) {
  JobState& s = run.state;
  const bool is_last = run.aim >= s.remaining() * run.factor * (1 - 1e-12);
  s.samples += run.aim, s.progress += run.aim / run.factor, run.in_epoch += run.aim;
  run.aim = 0;
  if (is_last) return end(run);
  finish_epoch(run);
  run.in_epoch = 0;
  start_turn(run);
}

void ClusterRun::finish_epoch(JobRun& run) {
  JobState& s = run.state;
  ++s.epochs, ++s.epochs_since;
  auto at = std::lower_bound(s.measured.begin(), s.measured.end(), std::pair{s.gpus, 0.0});
  if (at == s.measured.end() || at->first != s.gpus) s.measured.insert(at, {s.gpus, run.rate});
}

void ClusterRun::end_stay(JobRun& run) {
  const double ready = std::min(run.ready, now_), seconds = now_ - run.from;
  count_time(run);
  run.record.held = run.state.held, run.record.overhead += ready - run.from;
  result_.held += seconds * double(run.state.gpus);
  result_.overhead += (ready - run.from) * double(run.state.gpus);
  if (q_.on_stay) q_.on_stay({run.state.job->id, run.from, ready, now_, run.gpus});
}

void ClusterRun::end(JobRun& run) {
  JobState& s = run.state;
  s.progress = s.job->epochs;
  clock_.release(run.gpus);
  end_stay(run);
  for (const std::int64_t g : run.gpus) placement_[std::size_t(g)] = kNoJob;
  run.gpus.clear();
  s.gpus = 0;
  run.record.end = now_, result_.makespan = now_;
  active_.erase(std::find(active_.begin(), active_.end(), &s));
  scheduler_->ended(s);
}

}  // namespace

std::unique_ptr<ClusterClock> simulated_clock() { return std::make_unique<SimulatedClock>(); }

ClusterResult run_cluster(const ClusterRequest& request, const ClusterPolicy& policy, ClusterClock& clock) {
  return ClusterRun{request, policy, clock}.run();
}

ClusterResult simulate_cluster(const ClusterRequest& request, const ClusterPolicy& policy) {
  return run_cluster(request, policy, *simulated_clock());
}

bool is_same_order(const std::vector<ClusterDecision>& a, const std::vector<ClusterDecision>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const ClusterDecision& x, const ClusterDecision& y) {
    return x.job == y.job && x.gpus == y.gpus;
  });
}

double start_seconds(const OverheadOptions& o) { return o.process.base() + o.communicator.base(); }

double restart_seconds(const OverheadOptions& o, const JobTemplate& type) {
  return start_seconds(o) + 2 * type.parameters * o.kept / o.checkpoint.base();
}

double rescale_seconds(const OverheadOptions& o, const JobTemplate& type) {
  return 2 * o.communicator.base() + type.parameters * o.sent / o.broadcast.base() + o.rebuild.base();
}

}  // namespace orrery
