// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "sim/base/random.hpp"

namespace orrery {

/// An integer between low and high, evenly on a logarithmic scale.
inline std::int64_t log_integer(Random& r, std::int64_t low, std::int64_t high) {
  return static_cast<std::int64_t>(std::llround(std::exp(r.uniform(std::log(double(low)), std::log(double(high))))));
}

/// A width of a matrix: two in three are multiples of 64 as models have them, the others any number.
inline std::int64_t width(Random& r, std::int64_t low, std::int64_t high) {
  const std::int64_t n = log_integer(r, low, high);
  return n < 64 || r.below(3) == 0 ? n : (n + 32) / 64 * 64;
}

/// One of several.
template <class T, std::size_t N>
T one_of(Random& r, const T (&choices)[N]) {
  return choices[r.below(N)];
}

}  // namespace orrery
