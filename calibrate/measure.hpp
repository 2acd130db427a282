// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/operands.hpp"
#include "calibrate/statistics.hpp"
#include "runtime/executor.hpp"

namespace orrery {

/// One measured op.
struct Point {
  Work work;
  Bindings bindings;
  std::int64_t ranks = 1;  // that took part: more than one for messages only
  RobustSummary seconds;
  double weight = 1;       // in a fit
  std::uint32_t plan = 0;  // which plan of a suite it stands in
};

/// A plan to measure, with what its persistent tensors hold.
struct Bench {
  Plan plan;
  std::vector<Contents> contents;
  Bindings bindings;
  double weight = 1;
};

/// A plan on an executor of its own, and all that was measured of it so far.
class BenchRun {
 public:
  explicit BenchRun(Bench bench);

  /// Executes `warm_up` + `runs` times; the first ones are not kept.
  void run(int warm_up, int runs);
  /// One point per op: the time it took, messages from when their last rank had arrived.
  std::vector<Point> points() const;
  /// Times of whole executions, from the start of the first to the end of the last op, and between neighbouring ops of
  /// a stream.
  const std::vector<double>& totals() const { return totals_; }
  const std::vector<double>& gaps() const { return gaps_; }
  /// Median over the ops of the relative error of their medians; 1 before there are three executions.
  double relative_error() const;
  const Bench& bench() const { return *bench_; }

 private:
  void keep(const Timeline& timeline, std::uint32_t first_instance);

  std::unique_ptr<Bench> bench_;  // the executor keeps the plan's address
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<double>> samples_;  // per op, seconds
  std::vector<double> totals_, gaps_;
};

/// Puts works into plans of their own kind of size: works of small operands stay in the caches together, as the ops of
/// a small model do. The order inside of a plan is random.
std::vector<Bench> make_benches(std::vector<Work> works, Random& random);

}  // namespace orrery
