// SPDX-License-Identifier: Apache-2.0
#include "runtime/quiet_core.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace orrery {

void QuietCore::note(double seconds) {
  const double step = std::log(seconds / kShortest) / kStep;
  ++counts_[static_cast<std::size_t>(std::clamp(step, 0.0, double(kSteps - 1)))];
}

double QuietCore::seconds() const {
  std::size_t first = 0, below = counts_[0];
  while (below < kOutliers && first + 1 < kSteps) below += counts_[++first];
  const std::size_t end = std::min(kSteps, first + kQuietSteps);
  const auto begin = counts_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto all = std::accumulate(begin, counts_.begin() + static_cast<std::ptrdiff_t>(end), std::size_t{0});
  std::size_t middle = first;
  for (std::size_t sum = counts_[first]; 2 * sum < all; sum += counts_[++middle]) {
  }
  return kShortest * std::exp(kStep * (double(middle) + 0.5));
}

}  // namespace orrery
