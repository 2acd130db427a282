// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Numbers of 8 bits for products: sign, 4 bits of exponent with bias 7, 3 of mantissa, no infinity; the largest is
/// 448, the smallest above zero 2⁻⁹ ("E4M3" of Micikevicius et al., FP8 Formats for Deep Learning, 2022).
inline constexpr double kLargestEightBit = 448;
/// Numbers of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign (E2M1 of the OCP Microscaling Formats, 2023).
inline constexpr double kLargestFourBit = 6;
/// Numbers of 4 bits that share a scale (NVFP4).
inline constexpr std::int64_t kFourBitRun = 16;

/// The nearest such number, ties to even; beyond the largest one that.
double round_to_eight_bits(double x);
double round_to_four_bits(double x);

/// Matrices [rows, cols] as a product takes them that casts its operands; `out` is dense.
template <class T>
struct NarrowCast {
  std::int64_t batch = 1, rows = 0, cols = 0;
  const T* in = nullptr;
  std::int64_t row = 0, matrix = 0;  ///< from row to row, from matrix to matrix
  T* out = nullptr;
};

/// out = round(in / s), with s = max |in| / 448 over all of them, so that the largest number is used (1 where all are
/// zero). Returns s.
template <class T>
T cast_to_eight_bits(const NarrowCast<T>& cast);

/// out = round4(in / (s·r)) · r, with s = max |in| / (448·6) over all of them and r = round8(max |in| / (6·s)) over
/// runs of 16 numbers that a product adds up: those of a row, or with `down` of a column (NVFP4 of Transformer Engine,
/// without rotations and stochastic rounding). Returns s.
template <class T>
T cast_to_four_bits(const NarrowCast<T>& cast, bool down);

}  // namespace orrery::kernels
