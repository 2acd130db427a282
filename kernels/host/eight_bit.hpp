// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Numbers of 8 bits for products: sign, 4 bits of exponent with bias 7, 3 of mantissa, no infinity; the largest is
/// 448, the smallest above zero 2⁻⁹ ("E4M3" of Micikevicius et al., FP8 Formats for Deep Learning, 2022).
inline constexpr double kLargestEightBit = 448;

/// The nearest such number, ties to even; beyond the largest one that.
double round_to_eight_bits(double x);

/// Matrices [rows, cols] as a product takes them that casts its operands: out = round(in / s), with s = max |in| / 448
/// over all of them, so that the largest number is used (1 where all are zero). `out` is dense. Returns s.
template <class T>
struct EightBitCast {
  std::int64_t batch = 1, rows = 0, cols = 0;
  const T* in = nullptr;
  std::int64_t row = 0, matrix = 0;  ///< from row to row, from matrix to matrix
  T* out = nullptr;
};
template <class T>
T cast_to_eight_bits(const EightBitCast<T>& cast);

}  // namespace orrery::kernels
