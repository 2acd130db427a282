// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/measure.hpp"

namespace orrery {

/// A fixed product that a core's own caches hold and a fixed pass over memory that no cache holds, repeated throughout,
/// to see whether the machine keeps its speed, what others leave of its memory, and whether anything interrupts it.
class DriftProbe {
 public:
  enum class Of : std::uint8_t { Core, CoreAndMemory };
  explicit DriftProbe(Of of = Of::CoreAndMemory);
  void sample();
  /// The middle time of the product, which stays in a core, and of the pass over memory; 0 where there is none.
  double seconds() const;
  double pass_seconds() const;
  /// Relative standard deviation of the samples that nothing disturbed, and their largest difference from the median.
  double drift() const;
  double worst() const;
  /// What comes and goes slowly, of the product and of the pass over memory: the relative standard deviation of their
  /// middle over a sixth of the time, without what comes from one sample to the next.
  struct Slow {
    double core = 0, memory = 0;
  };
  Slow slow_drift() const;
  /// The part of all samples during which something else used the core.
  double disturbed() const;

 private:
  /// Product and pass together.
  std::vector<Observed> samples() const;
  std::vector<double> quiet() const;
  std::size_t taken() const;  // samples
  Observed pass(std::size_t sample) const;
  /// Times of the passes, in order, as on a core on which the fixed work takes what is expected of it now.
  std::vector<double> passes() const;

  std::unique_ptr<BenchRun> product_;
  std::vector<std::unique_ptr<BenchRun>> passes_;  // one each sample, in turns
  double told_from_;                               // seconds of the fixed work that disturbances are relative to
};

/// How much longer a probe takes now than when the laws were calibrated, relative; 0 where that is not known.
double slowdown_since(double seconds, Seconds when_calibrated);

/// A fixed product on one core and on all cores at once: whether they are there for this program. A virtual machine may
/// have fewer than it shows.
class CoresProbe {
 public:
  CoresProbe();
  void sample();
  /// How many times the work of one core all of them do.
  double cores() const;

 private:
  std::unique_ptr<BenchRun> one_, all_;
};

/// Benches that are measured in turns, in another order each round, until the time is over or all are known well
/// enough. As many as fit into some memory take their turns together; which, is random.
class Campaign {
 public:
  void add(Bench bench) { benches_.push_back(std::move(bench)); }
  /// False when the callback stopped it.
  bool measure(Seconds budget, Random& random, const CalibrateCallback& progress);
  /// In the order in which they were added.
  const std::vector<MeasuredPlan>& measured() const { return measured_; }
  const DriftProbe& probe() const { return probe_; }
  const CoresProbe& cores() const { return cores_; }

 private:
  using Runs = std::vector<std::unique_ptr<BenchRun>>;
  std::vector<std::vector<std::size_t>> batches(Random& random) const;
  bool measure(const std::vector<std::size_t>& batch, double until, Random& random);
  void keep(const std::vector<std::size_t>& batch, const Runs& runs);
  bool is_stopped(double spent) const;

  std::vector<Bench> benches_;  // moved out of when measured
  std::vector<MeasuredPlan> measured_;
  DriftProbe probe_;
  CoresProbe cores_;
  const CalibrateCallback* progress_ = nullptr;
  double start_ = 0, budget_ = 0;  // seconds
  int visits_ = 0;
};

/// Relative standard deviation of what these plans take from one visit to another.
double jitter_of(std::span<const MeasuredPlan> plans);

}  // namespace orrery
