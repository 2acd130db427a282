// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace orrery {

/// Counts of positive numbers in fixed bins: 128 of equal width in each octave from 2^-34 to 2^30. A quantile is the
/// middle of its bin, at most 0.4 % off, and never outside of what was added; the mean is exact. Memory does not grow
/// with what is added.
class Histogram {
 public:
  /// The value, so many times.
  void add(double value, std::int64_t times = 1);
  std::int64_t count() const { return count_; }
  double mean() const { return count_ > 0 ? sum_ / double(count_) : 0; }
  double least() const { return count_ > 0 ? least_ : 0; }
  double most() const { return most_; }
  /// The value below which this part of all lies; 0 of nothing.
  double quantile(double part) const;

 private:
  static constexpr int kFirst = -34, kOctaves = 64, kBins = 128;
  std::vector<std::int64_t> bins_;  // made by the first value
  std::int64_t count_ = 0;
  double sum_ = 0, least_ = 0, most_ = 0;
};

}  // namespace orrery
