// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

namespace orrery {

/// How long a fixed work takes on a core that nobody else uses: the middle of the samples that are about as short as
/// the shortest ones (17 %). Not the very shortest themselves: clocks go with the load and with what neighbours do, by
/// 15 % on a Sapphire Rapids. Samples from 0.1 µs to 1 ms, told apart by steps of 0.25 %.
class QuietCore {
 public:
  void note(double seconds);
  double seconds() const;

 private:
  static constexpr double kShortest = 1e-7, kStep = 0.0025;  // seconds, and the steps of its logarithm
  static constexpr std::size_t kSteps = 3700, kQuietSteps = 64, kOutliers = 32;

  std::array<std::size_t, kSteps> counts_{};  // samples per step
};

}  // namespace orrery
