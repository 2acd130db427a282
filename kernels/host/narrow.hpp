// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Numbers of 8 bits for products (Micikevicius et al., FP8 Formats for Deep Learning, 2022). E4M3, for values and
/// weights: sign, 4 bits of exponent with bias 7, 3 of mantissa; the largest is 448, the smallest above zero 2⁻⁹. E5M2,
/// for gradients: 5 bits of exponent with bias 15, 2 of mantissa; from 2⁻¹⁶ to 57344.
enum class EightBits : std::uint8_t { E4M3, E5M2 };
constexpr double largest_of(EightBits format) { return format == EightBits::E4M3 ? 448 : 57344; }
/// Numbers of 4 bits: 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign (E2M1 of the OCP Microscaling Formats, 2023).
inline constexpr double kLargestFourBit = 6;
/// Numbers of 4 bits that share a scale (NVFP4).
inline constexpr std::int64_t kFourBitRun = 16;

/// The nearest such number, ties to even; beyond the largest one that.
double round_to_eight_bits(double x, EightBits format);
double round_to_four_bits(double x);

/// Such a number of E4M3 as it lies in memory, and back.
std::uint8_t e4m3_code(double x);
double e4m3_value(std::uint8_t code);

/// Matrices [rows, cols] as a product takes them that casts its operands; `out` is dense.
template <class T>
struct NarrowCast {
  std::int64_t batch = 1, rows = 0, cols = 0;
  const T* in = nullptr;
  std::int64_t row = 0, matrix = 0;  ///< from row to row, from matrix to matrix
  T* out = nullptr;
};

/// out = round(in / s), with s = max |in| / largest over all of them, so that the largest number is used (1 where all
/// are zero). Returns s.
template <class T>
T cast_to_eight_bits(const NarrowCast<T>& cast, EightBits format);

/// out = round4(in / (s·r)) · r, with s = max |in| / (448·6) over all of them and r = e4m3(max |in| / (6·s)) over
/// runs of 16 numbers that a product adds up: those of a row, or with `down` of a column (NVFP4 of Transformer Engine,
/// without rotations and stochastic rounding). Returns s.
template <class T>
T cast_to_four_bits(const NarrowCast<T>& cast, bool down);

}  // namespace orrery::kernels
