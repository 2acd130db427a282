// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "calibrate/operands.hpp"
#include "calibrate/statistics.hpp"
#include "hw_models/host_laws.hpp"
#include "runtime/executor.hpp"
#include "sim/plan/reuse.hpp"

namespace orrery {

/// A measured work; one for all ops of a plan that have it.
struct Point {
  Work work;
  Bindings bindings;
  std::int64_t ranks = 1;  // that took part: more than one for messages only
  RobustSummary seconds;   // the mean of the ops' summaries; of none: an op of ranks that take turns on a core
  std::vector<std::vector<Observed>> samples = {};  // per op of the plan that has this work
  double weight = 1;                                // in a fit
  std::uint32_t plan = 0;                           // which plan of a suite it stands in
  std::int64_t ops = 1;                             // of the plan that have this work
  std::shared_ptr<const Reuse> reuse;               // what `bindings` refers to
};

/// What is kept of a plan that was measured.
struct MeasuredPlan {
  std::string name;
  std::vector<Point> points;
  RobustSummary seconds;         // of a whole execution
  double gap = 0;                // median time between two ops of a stream; 0 when it was not seen
  std::int64_t ranks = 1;        // of which each does the ops of `points`
  bool whole = false;            // these are all its ops, one after the other
  std::vector<double> visits;    // the middle time of an execution of each visit
  std::vector<Observed> totals;  // whole executions
};

/// What tensors of benches hold, by place: made once for the largest of those that share it.
class UsualValues {
 public:
  std::span<const double> of(const Tensor& t, const Shape& shape);

 private:
  std::vector<double> weights_, ones_, small_;
};

/// A plan on an executor of its own, and all that was measured of it so far.
class BenchRun {
 public:
  explicit BenchRun(Bench bench);
  BenchRun(Bench bench, UsualValues& values);

  /// Executes a few times, after as many that are not kept as the caches need to settle: a plan that the last cache may
  /// hold needs several, since what a cache keeps it learns from one execution to the next.
  void visit();
  /// Executes `warm_up` + `runs` times; the first ones are not kept.
  void run(int warm_up, int runs);
  /// Ops take the time they took, messages from when their last rank had arrived. Summaries are as measured.
  MeasuredPlan measured() const;
  /// Times of whole executions, from the start of the first to the end of the last op, and between neighbouring ops of
  /// a stream.
  const std::vector<Observed>& totals() const { return totals_; }
  const std::vector<Observed>& gaps() const { return gaps_; }
  /// Median over the ops of the relative error of their medians; 1 before there are three executions.
  double relative_error() const;
  const Bench& bench() const { return *bench_; }

  /// What an op of a rank takes part in: the k-th collective of a communicator, the k-th message of a pair and tag.
  using MeetingKey = std::tuple<std::size_t, std::size_t, std::int64_t, std::uint32_t>;

 private:
  void keep(const Timeline& timeline, std::span<const double> disturbed, std::uint32_t first_instance);
  void fill(const Contents& contents, RankId rank);
  bool has_time(const Work& w) const;
  double time_once();

  Caches caches_;                 // as reported
  std::unique_ptr<Bench> bench_;  // the executor keeps the plan's address
  std::unique_ptr<Executor> executor_;
  std::vector<std::map<std::uint32_t, MeetingKey>> meets_;  // per rank, by op
  std::vector<std::vector<Observed>> samples_;              // per op, seconds
  std::vector<Observed> totals_, gaps_;
  std::uint32_t runs_ = 0;  // calls of run()
};

/// Puts works into plans of their own kind of size: works of small operands stay in the caches together, as the ops of
/// a small model do. The order inside of a plan is random.
std::vector<Bench> make_benches(std::vector<Work> works, Random& random);

}  // namespace orrery
