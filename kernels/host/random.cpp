// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/random.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace orrery::kernels {
namespace {

constexpr std::int64_t kBlocks = 64;

/// The words of kBlocks consecutive Philox blocks, lane by lane so that the compiler vectorises over blocks.
void philox_blocks(PhiloxKey key, std::uint64_t first, std::uint32_t* words) {
  for (std::int64_t i = 0; i < kBlocks; ++i) {
    const PhiloxWords w = philox(key, first + static_cast<std::uint64_t>(i));
    for (int j = 0; j < 4; ++j) words[4 * i + j] = w.word[j];
  }
}

/// Calls body(i, words, offset, n) for pieces of one row: elements i … i+n−1 have the random words words[offset …];
/// words starts at an even global element.
template <class Body>
void for_pieces(PhiloxKey key, std::uint64_t first, std::int64_t count, Body&& body) {
  std::uint32_t words[4 * kBlocks];
  for (std::int64_t i = 0; i < count;) {
    const std::uint64_t element = first + static_cast<std::uint64_t>(i);
    const std::int64_t offset = static_cast<std::int64_t>(element % 4);
    const std::int64_t n = std::min(count - i, 4 * kBlocks - offset);
    philox_blocks(key, element / 4, words);
    body(i, words, offset, n);
    i += n;
  }
}

std::uint64_t global_index(const ShardWindow& w, std::int64_t row) {
  return static_cast<std::uint64_t>((w.row + row) * w.global_cols + w.col);
}

}  // namespace

template <class T>
void dropout(const DropoutArgs<T>& a) {
  // kept where (word + ½)·2⁻³² ≥ p, that is where word ≥ p·2³² − ½
  const double threshold = std::ceil(std::max(0.0, a.p * 0x1p32 - 0.5));
  const bool none = threshold > 4294967295.0;
  const std::uint32_t least = none ? 0u : static_cast<std::uint32_t>(threshold);
  const T factor = static_cast<T>(1 / (1 - a.p));
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.cols;
    T* y = a.y + r * a.cols;
    const auto keep = [&](std::int64_t i, const std::uint32_t* words, std::int64_t offset, std::int64_t n) {
      for (std::int64_t j = 0; j < n; ++j) {
        const T scaled = x[i + j] * factor;
        y[i + j] = !none && words[offset + j] >= least ? scaled : T(0);
      }
      if (a.mask)
        for (std::int64_t j = 0; j < n; ++j) a.mask[r * a.cols + i + j] = !none && words[offset + j] >= least;
    };
    for_pieces(a.key, global_index(a.window, a.row_ids ? a.row_ids[r] - a.window.row : r), a.cols, keep);
  }
}

template <class T>
void masked(std::int64_t n, double p, const T* x, const std::uint8_t* mask, T* y) {
  const T factor = static_cast<T>(1 / (1 - p));
  for (std::int64_t i = 0; i < n; ++i) y[i] = mask[i] ? x[i] * factor : T(0);
}

template <class T>
void fill_uniform(const RandomFillArgs<T>& a, double low, double high) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    T* y = a.y + r * a.cols;
    for_pieces(a.key, global_index(a.window, r), a.cols,
               [&](std::int64_t i, const std::uint32_t* words, std::int64_t offset, std::int64_t n) {
                 for (std::int64_t j = 0; j < n; ++j)
                   y[i + j] = static_cast<T>(low + (high - low) * philox_uniform(words[offset + j]));
               });
  }
}

template <class T>
void fill_normal(const RandomFillArgs<T>& a, double mean, double stddev) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    T* y = a.y + r * a.cols;
    const auto normals = [&](std::int64_t i, const std::uint32_t* words, std::int64_t offset, std::int64_t n) {
      for (std::int64_t j = offset / 2 * 2; j < offset + n; j += 2) {
        const double radius = std::sqrt(-2 * std::log(philox_uniform(words[j]))) * stddev;
        const double angle = 2 * std::numbers::pi * philox_uniform(words[j + 1]);
        if (j >= offset) y[i + j - offset] = static_cast<T>(mean + radius * std::cos(angle));
        if (j + 1 < offset + n) y[i + j + 1 - offset] = static_cast<T>(mean + radius * std::sin(angle));
      }
    };
    for_pieces(a.key, global_index(a.window, r), a.cols, normals);
  }
}

template void dropout<float>(const DropoutArgs<float>&);
template void dropout<double>(const DropoutArgs<double>&);
template void masked<float>(std::int64_t, double, const float*, const std::uint8_t*, float*);
template void masked<double>(std::int64_t, double, const double*, const std::uint8_t*, double*);
template void fill_uniform<float>(const RandomFillArgs<float>&, double, double);
template void fill_uniform<double>(const RandomFillArgs<double>&, double, double);
template void fill_normal<float>(const RandomFillArgs<float>&, double, double);
template void fill_normal<double>(const RandomFillArgs<double>&, double, double);

}  // namespace orrery::kernels
