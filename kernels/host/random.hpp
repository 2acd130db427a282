// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"
#include "kernels/philox.hpp"

namespace orrery::kernels {

/// Where a shard [rows,cols] lies in a global row-major tensor: element (r,c) has the global index
/// (row + r)·global_cols + col + c, which alone (with the key) decides its random number.
struct ShardWindow {
  std::int64_t row = 0, col = 0, global_cols = 0;
};

/// y = x/(1−p) where the element's uniform number is ≥ p, else 0. The backward is the same call on dy. y may be x. With
/// row_ids local row r is global row row_ids[r] instead of window.row + r. `mask` becomes 1 where a number is kept.
template <class T>
struct DropoutArgs {
  std::int64_t rows = 0, cols = 0;
  ShardWindow window;
  PhiloxKey key;
  double p = 0;
  const std::int32_t* row_ids = nullptr;  ///< [rows] or null
  const T* x = nullptr;
  T* y = nullptr;
  std::uint8_t* mask = nullptr;  ///< [rows,cols] or null
};

template <class T>
void dropout(const DropoutArgs<T>& args);

/// y = x/(1−p) where the mask is not 0, else 0.
template <class T>
void masked(std::int64_t n, double p, const T* x, const std::uint8_t* mask, T* y);

/// Random initial values of a shard. Float and double draw the same numbers, up to rounding.
template <class T>
struct RandomFillArgs {
  std::int64_t rows = 0, cols = 0;
  ShardWindow window;
  PhiloxKey key;
  T* y = nullptr;
};

/// y uniform in [low, high)
template <class T>
void fill_uniform(const RandomFillArgs<T>& args, double low, double high);

/// y normal: Box–Muller on pairs of global elements, √(−2 ln u₀)·(cos 2πu₁, sin 2πu₁)·stddev + mean
template <class T>
void fill_normal(const RandomFillArgs<T>& args, double mean, double stddev);

}  // namespace orrery::kernels
