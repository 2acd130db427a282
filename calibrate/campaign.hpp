// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "calibrate/measure.hpp"

namespace orrery {

/// A fixed product that is repeated throughout, to see whether the machine keeps its speed.
class DriftProbe {
 public:
  DriftProbe();
  void sample();
  /// Relative: σ of the samples about their median, robust.
  double drift() const;
  /// Relative distance of the most distant sample.
  double worst() const;

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

 private:
  bool is_enough(int rounds) const;

  std::vector<std::unique_ptr<BenchRun>> runs_;
  DriftProbe probe_;
};

}  // namespace orrery
