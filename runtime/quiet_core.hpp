// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <mutex>

namespace orrery {

/// How long a fixed work takes on a core that nobody else uses: the middle of the samples that are about as short as
/// the shortest ones (8 %). Not the very shortest themselves: clocks of virtual machines jump now and then, and a quiet
/// core scatters by some percent. Samples from 1 µs to 1 ms, told apart by steps of 0.25 %; any thread may note one.
class QuietCore {
 public:
  void note(double seconds);
  double seconds() const;

 private:
  static constexpr double kShortest = 1e-6, kStep = 0.0025;  // seconds, and the steps of its logarithm
  static constexpr std::size_t kSteps = 2800, kQuietSteps = 32, kOutliers = 32;

  mutable std::mutex mutex_;
  std::array<std::size_t, kSteps> counts_{};  // samples per step
};

}  // namespace orrery
