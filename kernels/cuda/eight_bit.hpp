// SPDX-License-Identifier: Apache-2.0
// Operands of products in 8 bits, by the formulas of kernels/host/narrow.cpp: the largest number in two kernels,
// then the cast. The product wants both operands with k running fastest and a multiple of 16 long.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// A number of 8 bits as it lies in memory.
struct e4m3 {
  std::uint8_t bits;
};

constexpr float kLargestEightBit = 448;
/// A row of an operand begins at a multiple of so many numbers.
constexpr std::int64_t kEightBitRow = 16;
constexpr std::int64_t kLargestBlocks = 256;

/// E4M3 to the nearest, ties to even; beyond 448 that; NaN stays NaN. A number below 2⁻⁶ is a multiple of 2⁻⁹, which
/// adding 2¹⁴ rounds to.
KERNELS_GPU_INLINE std::uint8_t round_to_e4m3(float x) {
  const auto bits = reinterpret_bits<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<std::uint8_t>(sign | 0x7eu);  // 448
  if (magnitude < 0x3c800000u) {                                                 // 2⁻⁶
    const float shifted = reinterpret_bits<float>(magnitude) + 16384.0f;
    return static_cast<std::uint8_t>(sign | (reinterpret_bits<std::uint32_t>(shifted) - 0x46800000u));
  }
  return static_cast<std::uint8_t>(sign | ((magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20));
}

/// Matrices [rows, cols] with any strides.
template <class T>
struct StridedMatrices {
  std::int64_t batch, rows, cols, matrix, row, col;
  const T* at;

  KERNELS_GPU_INLINE float operator()(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return to_float(at[b * matrix + i * row + j * col]);
  }
};

/// parts[block] = max |x| over a slice of the numbers.
template <class T>
struct LargestPartsKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  StridedMatrices<T> in;
  float* parts;
  const std::int32_t* end = nullptr;  // rows that count, of one matrix; null: all

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    float most = 0;
    const std::int64_t each = in.rows * in.cols, all = end ? *end * in.cols : in.batch * each;
    for (std::int64_t i = t.block() * kThreads + t.index(); i < all; i += t.blocks() * kThreads)
      most = larger(most, fabsf(in(i / each, i % each / in.cols, i % in.cols)));
    most = block_reduce<kThreads / kWarp>(t, most, t.template shared<float>(), LargerOf{});
    if (t.index() == 0) parts[t.block()] = most;
  }
};
constexpr std::size_t kLargestShared = 8 * sizeof(float);

/// scale[0] = max of the parts / 448, 1 where all are zero. One block.
struct EightBitScaleKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  std::int64_t count;
  const float* parts;
  float* scale;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    float most = 0;
    for (std::int64_t i = t.index(); i < count; i += kThreads) most = larger(most, parts[i]);
    most = block_reduce<kThreads / kWarp>(t, most, t.template shared<float>(), LargerOf{});
    if (t.index() == 0) scale[0] = most > 0 ? most / kLargestEightBit : 1.0f;
  }
};

/// out[b, i, j] = round(in[b, i, j] / scale), with rows of `length` ≥ cols whose rest is zero. A thread writes four.
template <class T>
struct EightBitKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  StridedMatrices<T> in;
  std::int64_t length;
  const float* scale;
  std::uint32_t* out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t words = length / 4, all = in.batch * in.rows * words;
    const float s = scale[0];
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t j = w % words * 4, i = w / words % in.rows, b = w / words / in.rows;
      std::uint32_t four = 0;
      for (int n = 0; n < 4; ++n)
        if (j + n < in.cols) four |= static_cast<std::uint32_t>(round_to_e4m3(in(b, i, j + n) / s)) << 8 * n;
      out[w] = four;
    }
  }
};

template <class T>
using EightBitKernels = KernelList<LargestPartsKernel<T>, EightBitKernel<T>>;
using EightBitScaleKernels = KernelList<EightBitScaleKernel>;

}  // namespace orrery::kernels::cuda
