// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/measure.hpp"

namespace orrery {

/// A fixed product and a fixed pass over memory that no cache holds, repeated throughout, to see whether the machine
/// keeps its speed and whether anything interrupts it.
class DriftProbe {
 public:
  DriftProbe();
  void sample();
  /// The middle time of a sample.
  double seconds() const { return median(samples_); }
  /// Relative standard deviation of the samples, and the largest difference from their median.
  double drift() const;
  double worst() const;
  /// The part of the samples that took much longer than the middle one: something else ran at that time.
  double disturbed() const;

 private:
  std::unique_ptr<BenchRun> run_;
  std::vector<double> samples_;
};

/// Benches that are measured in turns, in another order each round, until the time is over or all are known well
/// enough.
class Campaign {
 public:
  void add(Bench bench) { runs_.push_back(std::make_unique<BenchRun>(std::move(bench))); }
  /// False when the callback stopped it.
  bool measure(Seconds budget, Random& random, const CalibrateCallback& progress);
  const std::vector<std::unique_ptr<BenchRun>>& runs() const { return runs_; }
  const DriftProbe& probe() const { return probe_; }
  /// Relative standard deviation of the median of a few visits of one plan from one time to another: between the first
  /// and the second half of the campaign, over these plans.
  double drift(std::size_t first, std::size_t last) const;

 private:
  bool is_enough(int rounds) const;

  std::vector<std::unique_ptr<BenchRun>> runs_;
  DriftProbe probe_;
};

}  // namespace orrery
