// SPDX-License-Identifier: Apache-2.0
#include "sim/program/serving/histogram.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {

void Histogram::add(double value, std::int64_t times) {
  if (bins_.empty()) bins_.resize(kOctaves * kBins);
  least_ = count_ == 0 ? value : std::min(least_, value);
  most_ = count_ == 0 ? value : std::max(most_, value);
  count_ += times;
  sum_ += value * double(times);
  int exponent = 0;
  const double mantissa = std::frexp(std::max(value, 1e-300), &exponent);  // in [0.5, 1)
  const int octave = std::clamp(exponent - 1 - kFirst, 0, kOctaves - 1);
  const int bin = static_cast<int>((mantissa - 0.5) * 2 * kBins);
  bins_[static_cast<std::size_t>(octave * kBins + std::clamp(bin, 0, kBins - 1))] += times;
}

double Histogram::quantile(double part) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<std::int64_t>(std::ceil(part * double(count_)));
  std::int64_t seen = 0;
  for (std::size_t i = 0; i < bins_.size(); ++i) {
    seen += bins_[i];
    if (seen < std::max<std::int64_t>(1, wanted)) continue;
    const int octave = static_cast<int>(i) / kBins + kFirst, bin = static_cast<int>(i) % kBins;
    return std::clamp(std::ldexp(1 + (bin + 0.5) / kBins, octave), least_, most_);
  }
  return most_;
}

}  // namespace orrery
