// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/eight_bit.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::kernels {

/// Numbers between 2^e and 2^(e+1) are multiples of 2^(e−3), those below 2⁻⁶ of 2⁻⁹.
double round_to_eight_bits(double x) {
  constexpr int kLeastExponent = -6, kMantissa = 3;
  if (!(std::abs(x) < kLargestEightBit)) return std::isnan(x) ? x : std::copysign(kLargestEightBit, x);
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), kLeastExponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, kMantissa - exponent)), exponent - kMantissa);
}

template <class T>
T cast_to_eight_bits(const EightBitCast<T>& c) {
  T largest = 0;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < c.rows; ++i)
      for (std::int64_t j = 0; j < c.cols; ++j)
        largest = std::max(largest, std::abs(c.in[b * c.matrix + i * c.row + j]));
  const T scale = largest > 0 ? T(static_cast<float>(largest) / static_cast<float>(kLargestEightBit)) : T(1);
  T* out = c.out;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < c.rows; ++i)
      for (std::int64_t j = 0; j < c.cols; ++j)
        *out++ = T(round_to_eight_bits(static_cast<double>(c.in[b * c.matrix + i * c.row + j] / scale)));
  return scale;
}

template float cast_to_eight_bits(const EightBitCast<float>&);
template double cast_to_eight_bits(const EightBitCast<double>&);

}  // namespace orrery::kernels
