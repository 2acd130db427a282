// SPDX-License-Identifier: Apache-2.0
#include "sim/program/cluster/paced_workers.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <queue>
#include <thread>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

using SteadyClock = std::chrono::steady_clock;

class PacedWorkers final : public ClusterClock {
 public:
  PacedWorkers(std::int64_t gpus, double factor) : factor_{factor}, workers_(std::size_t(gpus)) {
    for (Worker& w : workers_) w.thread = std::thread{[this, &w] { work(w); }};
  }
  ~PacedWorkers() override {
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    for (Worker& w : workers_) w.wake.notify_one();
    for (Worker& w : workers_) w.thread.join();
  }

  void post(const ClusterEvent& event, std::span<const std::int64_t> gpus) override {
    const std::lock_guard lock{mutex_};
    if (!start_) start_ = SteadyClock::now();
    if (gpus.empty()) return timers_.push({event, posted_++});
    give_up(gpus);
    const std::int64_t task = posted_++;
    tasks_[task] = {event, std::int64_t(gpus.size())};
    for (const std::int64_t g : gpus) {
      Worker& w = workers_[std::size_t(g)];
      w.task = task, w.until = wall(event.time);
      w.wake.notify_one();
    }
  }

  void release(std::span<const std::int64_t> gpus) override {
    const std::lock_guard lock{mutex_};
    give_up(gpus);
  }

  ClusterEvent next() override {
    std::unique_lock lock{mutex_};
    for (;;) {
      ClusterEvent event;
      if (!over_.empty()) {
        event = over_.front();
        over_.pop_front();
      } else if (!timers_.empty() && wall(timers_.top().event.time) <= SteadyClock::now()) {
        event = timers_.top().event;
        timers_.pop();
      } else {
        if (timers_.empty())
          happened_.wait(lock);
        else
          happened_.wait_until(lock, wall(timers_.top().event.time));
        continue;
      }
      // Never before it was due: the clock's ticks are rounded.
      event.time = std::max(event.time, std::chrono::duration<double>(SteadyClock::now() - *start_).count() / factor_);
      return event;
    }
  }

  bool is_due(double now) override {
    const std::lock_guard lock{mutex_};
    return !over_.empty() || (!timers_.empty() && timers_.top().event.time <= now);
  }

 private:
  static constexpr std::int64_t kIdle = -1;
  struct Worker {
    std::thread thread;
    std::condition_variable wake;
    std::int64_t task = kIdle;
    SteadyClock::time_point until;
  };
  struct Task {
    ClusterEvent event;
    std::int64_t left = 0;  // workers that are not through
  };
  struct Timer {
    ClusterEvent event;
    std::int64_t order;
    bool operator<(const Timer& o) const {  // the queue's top is the greatest
      return event.time != o.event.time ? event.time > o.event.time : order > o.order;
    }
  };

  SteadyClock::time_point wall(double time) const {
    return *start_ + std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(time * factor_));
  }

  void give_up(std::span<const std::int64_t> gpus) {
    for (const std::int64_t g : gpus) {
      Worker& w = workers_[std::size_t(g)];
      if (w.task == kIdle) continue;
      tasks_.erase(w.task);
      w.task = kIdle;
      w.wake.notify_one();
    }
  }

  void work(Worker& w) {
    std::unique_lock lock{mutex_};
    while (!is_over_) {
      if (w.task == kIdle) {
        w.wake.wait(lock);
        continue;
      }
      const std::int64_t task = w.task;
      if (w.wake.wait_until(lock, w.until, [&] { return is_over_ || w.task != task; })) continue;
      w.task = kIdle;
      const auto at = tasks_.find(task);
      if (at == tasks_.end() || --at->second.left > 0) continue;
      over_.push_back(at->second.event);
      tasks_.erase(at);
      happened_.notify_one();
    }
  }

  const double factor_;
  std::mutex mutex_;
  std::condition_variable happened_;
  std::optional<SteadyClock::time_point> start_;  // when the first event was posted
  std::priority_queue<Timer> timers_;
  std::deque<ClusterEvent> over_;
  std::map<std::int64_t, Task> tasks_;
  std::int64_t posted_ = 0;
  bool is_over_ = false;
  std::vector<Worker> workers_;
};

}  // namespace

std::unique_ptr<ClusterClock> paced_workers(std::int64_t gpus, double factor) {
  return std::make_unique<PacedWorkers>(gpus, factor);
}

}  // namespace orrery
