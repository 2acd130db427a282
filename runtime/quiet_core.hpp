// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace orrery {

/// How long a fixed work takes on a core that nobody else uses: the middle of the samples that are about as short as
/// the shortest ones (8 %), one in a hundred left out: clocks of virtual machines jump now and then, a core has a
/// faster clock for moments, and a quiet one scatters by some percent. Samples from 0.1 µs to 1 ms, told apart by steps
/// of 0.25 %; any thread may note one.
class QuietCore {
 public:
  void note(double seconds);
  double seconds() const;

 private:
  static constexpr double kShortest = 1e-7, kStep = 0.0025;  // seconds, and the steps of its logarithm
  static constexpr std::size_t kSteps = 3700, kQuietSteps = 32, kOutliers = 32, kSamplesPerOutlier = 100;

  mutable std::mutex mutex_;
  std::array<std::size_t, kSteps> counts_{};  // samples per step
};

}  // namespace orrery
