// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/narrow.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace orrery::kernels {
namespace {

constexpr int kE4m3Least = -6, kE4m3Mantissa = 3;

/// Numbers between 2^e and 2^(e+1) are multiples of 2^(e−mantissa), those below 2^least of 2^(least−mantissa).
double round_to(double x, double largest, int least_exponent, int mantissa) {
  if (!(std::abs(x) < largest)) return std::isnan(x) ? x : std::copysign(largest, x);
  if (x == 0) return x;
  const int exponent = std::max(std::ilogb(x), least_exponent);
  return std::copysign(
      std::min(largest, std::abs(std::ldexp(std::nearbyint(std::ldexp(x, mantissa - exponent)), exponent - mantissa))),
      x);
}

template <class T, class F>
void for_each(const NarrowCast<T>& c, F f) {
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < c.rows; ++i)
      for (std::int64_t j = 0; j < c.cols; ++j) f(b, i, j, c.in[b * c.matrix + i * c.row + j]);
}

/// What the largest of them, divided by it, becomes `largest`; 1 where all are zero.
template <class T>
T scale_of(const NarrowCast<T>& c, double largest) {
  T most = 0;
  for_each(c, [&](auto, auto, auto, T x) { most = std::max(most, std::abs(x)); });
  return most > 0 ? T(static_cast<float>(most) / static_cast<float>(largest)) : T(1);
}

}  // namespace

double round_to_eight_bits(double x, EightBits format) {
  return format == EightBits::E4M3 ? round_to(x, largest_of(format), kE4m3Least, kE4m3Mantissa)
                                   : round_to(x, largest_of(format), -14, 2);
}
double round_to_four_bits(double x) { return round_to(x, kLargestFourBit, 0, 1); }

/// 4 bits of exponent e + 7 and 3 of m − 8, of m·2^(e−3); below 2⁻⁶ the exponent is 0 and all of m stands there.
std::uint8_t e4m3_code(double x) {
  const unsigned sign = std::signbit(x) ? 0x80u : 0u;
  if (std::isnan(x)) return static_cast<std::uint8_t>(sign | 0x7fu);
  const int exponent = std::max(std::ilogb(x), kE4m3Least);
  const auto mantissa = static_cast<unsigned>(std::ldexp(std::abs(x), kE4m3Mantissa - exponent));
  return static_cast<std::uint8_t>(sign | ((static_cast<unsigned>(exponent - kE4m3Least) << kE4m3Mantissa) + mantissa));
}
double e4m3_value(std::uint8_t code) {
  const int exponent = code >> kE4m3Mantissa & 0xf, mantissa = code & 0x7;
  double x = exponent == 0 ? std::ldexp(mantissa, kE4m3Least - kE4m3Mantissa)
                           : std::ldexp(mantissa + 8, exponent - 1 + kE4m3Least - kE4m3Mantissa);
  if ((code & 0x7fu) == 0x7fu) x = std::numeric_limits<double>::quiet_NaN();
  return (code & 0x80u) != 0 ? -x : x;
}

template <class T>
T cast_to_eight_bits(const NarrowCast<T>& c, EightBits format) {
  const T scale = scale_of(c, largest_of(format));
  T* out = c.out;
  for_each(c, [&](auto, auto, auto, T x) { *out++ = T(round_to_eight_bits(static_cast<double>(x / scale), format)); });
  return scale;
}

template <class T>
T cast_to_four_bits(const NarrowCast<T>& c, bool down) {
  const T scale = scale_of(c, largest_of(EightBits::E4M3) * kLargestFourBit);
  const std::int64_t lines = down ? c.cols : c.rows, length = down ? c.rows : c.cols;
  const std::int64_t step = down ? c.row : 1, out_step = down ? c.cols : 1;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t line = 0; line < lines; ++line) {
      const T* in = c.in + b * c.matrix + line * (down ? 1 : c.row);
      T* out = c.out + b * c.rows * c.cols + line * (down ? 1 : c.cols);
      for (std::int64_t first = 0; first < length; first += kFourBitRun) {
        const std::int64_t last = std::min(length, first + kFourBitRun);
        T most = 0;
        for (std::int64_t i = first; i < last; ++i) most = std::max(most, std::abs(in[i * step]));
        const double run = round_to_eight_bits(static_cast<double>(most / scale) / kLargestFourBit, EightBits::E4M3);
        for (std::int64_t i = first; i < last; ++i)
          out[i * out_step] =
              run > 0 ? T(round_to_four_bits(static_cast<double>(in[i * step] / scale) / run) * run) : T(0);
      }
    }
  return scale;
}

template float cast_to_eight_bits(const NarrowCast<float>&, EightBits);
template double cast_to_eight_bits(const NarrowCast<double>&, EightBits);
template float cast_to_four_bits(const NarrowCast<float>&, bool);
template double cast_to_four_bits(const NarrowCast<double>&, bool);

}  // namespace orrery::kernels
