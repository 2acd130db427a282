// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace orrery {

/// Who has which point of a sweep: pure bookkeeping, without processes, connections or clocks. Points are numbered from
/// 0 and given out longest first; the number of points given at once shrinks as fewer are left.
class SweepDispatcher {
 public:
  using WorkerKey = int;

  /// `work`: how long each point takes, in any unit. A point is given up when it failed `most_failures` times.
  SweepDispatcher(const std::vector<double>& work, int most_failures);

  /// A worker that has so many points in work at once.
  void join(WorkerKey worker, std::size_t slots);
  /// Points for a worker with idle slots. When all are given out, such that another worker alone has and that are not
  /// done yet: whose result comes first counts. None where there is nothing left to do.
  std::vector<std::size_t> take(WorkerKey worker, std::size_t idle);
  /// A worker has the result of a point. False where it is not the first one.
  bool finish(WorkerKey worker, std::size_t point);
  /// A worker has failed at a point. True when it is given up with that.
  bool fail(WorkerKey worker, std::size_t point);
  /// A worker is gone: its points are given again, and those that it was at have failed. Gives those given up with
  /// that.
  std::vector<std::size_t> leave(WorkerKey worker);

  /// The points that a worker is at, as far as is known: those it was given first.
  std::vector<std::size_t> held_first(WorkerKey worker) const;
  int failures(std::size_t point) const { return points_[point].failures; }
  std::size_t ended() const { return ended_; }
  bool is_over() const { return ended_ == points_.size(); }

 private:
  struct Point {
    bool ended = false;
    int failures = 0, holders = 0;
  };
  struct Worker {
    std::size_t slots = 1;
    std::vector<std::size_t> held;  // in the order in which they were given
  };
  bool drop(Worker& worker, std::size_t point);  // whether it held it
  bool count_failure(std::size_t point);
  void end(std::size_t point);
  std::size_t chunk(const Worker& worker, std::size_t idle) const;

  std::vector<Point> points_;
  std::vector<std::size_t> waiting_;  // the next one last
  std::map<WorkerKey, Worker> workers_;
  std::size_t ended_ = 0;
  int most_failures_;
};

}  // namespace orrery
