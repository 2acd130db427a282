// SPDX-License-Identifier: Apache-2.0
// Operands of products in 8 bits, by the formulas of kernels/host/narrow.cpp: the largest number in two kernels,
// then the cast. The product wants both operands with k running fastest and a multiple of 16 long.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// Numbers of 8 bits as they lie in memory. Below 2^least they are multiples of 2^(least − mantissa).
struct e4m3 {
  static constexpr int kMantissa = 3, kLeast = -6;
  static constexpr float kLargest = 448;
  static constexpr std::uint8_t kLargestBits = 0x7e, kNan = 0x7f;
  std::uint8_t bits;
};
/// For gradients.
struct e5m2 {
  static constexpr int kMantissa = 2, kLeast = -14;
  static constexpr float kLargest = 57344;
  static constexpr std::uint8_t kLargestBits = 0x7b, kNan = 0x7f;
  std::uint8_t bits;
};

/// A row of an operand begins at a multiple of so many numbers.
constexpr std::int64_t kEightBitRow = 16;
constexpr std::int64_t kLargestBlocks = 256;

/// To the nearest, ties to even; beyond the largest that; NaN stays NaN. Adding the number whose last bit is the least
/// step rounds one that is below 2^least.
template <class N>
KERNELS_GPU_INLINE N round_to_eight_bits(float x) {
  constexpr int kFloatMantissa = 23, kFloatBias = 127, kDropped = kFloatMantissa - N::kMantissa;
  constexpr std::uint32_t kStepped = std::uint32_t{N::kLeast - N::kMantissa + kFloatMantissa + kFloatBias}
                                     << kFloatMantissa;
  constexpr std::uint32_t kLeast = std::uint32_t{N::kLeast + kFloatBias} << kFloatMantissa;
  const auto bits = reinterpret_bits<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
  const auto with_sign = [&](std::uint32_t code) { return N{static_cast<std::uint8_t>(sign | code)}; };
  if (magnitude > 0x7f800000u) return with_sign(N::kNan);
  const auto size = reinterpret_bits<float>(magnitude);
  if (size >= N::kLargest) return with_sign(N::kLargestBits);
  if (magnitude < kLeast)
    return with_sign(reinterpret_bits<std::uint32_t>(size + reinterpret_bits<float>(kStepped)) - kStepped);
  const std::uint32_t last = magnitude >> kDropped & 1u, half = (1u << (kDropped - 1)) - 1;
  return with_sign((magnitude - kLeast + (1u << kFloatMantissa) + half + last) >> kDropped);
}

KERNELS_GPU_INLINE float to_float(e4m3 x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
  if (magnitude == e4m3::kNan) return reinterpret_bits<float>(sign | 0x7fc00000u);
  constexpr std::uint32_t kMore = 127u - 7u;  // in the exponent of a float
  const float value = magnitude < 8u ? static_cast<float>(magnitude) * 0x1p-9f
                                     : reinterpret_bits<float>((magnitude << 20) + (kMore << 23));
  return reinterpret_bits<float>(reinterpret_bits<std::uint32_t>(value) | sign);
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

/// scale[0] = max of the parts / largest, 1 where all are zero. One block.
struct EightBitScaleKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  std::int64_t count;
  float largest;
  const float* parts;
  float* scale;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    float most = 0;
    for (std::int64_t i = t.index(); i < count; i += kThreads) most = larger(most, parts[i]);
    most = block_reduce<kThreads / kWarp>(t, most, t.template shared<float>(), LargerOf{});
    if (t.index() == 0) scale[0] = most > 0 ? most / largest : 1.0f;
  }
};

/// out[b, i, j] = round(in[b, i, j] / scale), with rows of `length` ≥ cols whose rest is zero; no scale: 1. A thread
/// writes four.
template <class T, class N>
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
    const float s = scale ? scale[0] : 1.0f;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t j = w % words * 4, i = w / words % in.rows, b = w / words / in.rows;
      std::uint32_t four = 0;
      for (int n = 0; n < 4; ++n)
        if (j + n < in.cols)
          four |= static_cast<std::uint32_t>(round_to_eight_bits<N>(in(b, i, j + n) / s).bits) << 8 * n;
      out[w] = four;
    }
  }
};

/// out = the words of `in` from row *first on, of rows of `row` words; null: from the first on.
struct WordsFromKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t row, words;
  const std::int32_t* first;
  const std::uint32_t* in;
  std::uint32_t* out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::uint32_t* from = first ? in + *first * row : in;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < words; w += t.blocks() * kThreads) out[w] = from[w];
  }
};

template <class T>
using EightBitKernels = KernelList<LargestPartsKernel<T>, EightBitKernel<T, e4m3>, EightBitKernel<T, e5m2>>;
using EightBitScaleKernels = KernelList<EightBitScaleKernel, EightBitKernel<e4m3, e4m3>, WordsFromKernel>;

}  // namespace orrery::kernels::cuda
