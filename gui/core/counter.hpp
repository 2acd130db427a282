// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gui/core/buckets.hpp"
#include "gui/core/time_range.hpp"

namespace orrery::gui {

/// A number over time: it keeps its value until the next sample.
struct Counter {
  /// A bucket of time.
  struct Sum {
    float mean = 0, most = 0;
  };

  std::string name, unit;  // "device memory", "B"
  std::uint32_t owner = 0;
  std::vector<std::int64_t> at;
  std::vector<double> value;
  double most = 0;
  Buckets<Sum> sums;  // from the first sample to the last

  /// Finds `most` and `sums`; to be called when all samples are there.
  void sum_up();

  /// Means and maxima of as many pixels as there is room for, over which the time goes. A pixel of many samples knows
  /// the maximum of the buckets that it touches, which are no wider than itself.
  void sample(TimeRange time, std::span<float> means, std::span<float> peaks) const;

 private:
  void sample_exactly(TimeRange time, std::span<float> means, std::span<float> peaks, std::size_t from) const;
};

}  // namespace orrery::gui
