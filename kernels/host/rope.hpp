// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Which two elements turn together, for pair i of rot_dim/2: (i, i + rot_dim/2) as in Llama, or (2i, 2i+1) as in GPT-J
/// and DeepSeek.
enum class RopeStyle { HalfSplit, Interleaved };

/// Forward turns by +θ, Inverse by −θ: the inverse of the forward, and its gradient.
enum class RopeDirection { Forward, Inverse };

/// cos[p,i] = factor·cos(p·inv_freq[i]), sin likewise, for p < positions, i < half; angles in double.
template <class T>
struct RopeTableArgs {
  std::int64_t positions = 0, half = 0;
  const double* inv_freq = nullptr;
  double factor = 1;  ///< attention factor of scaled ropes (YaRN)
  T* cos = nullptr;
  T* sin = nullptr;
};

template <class T>
void rope_table(const RopeTableArgs<T>& args);

/// (y_a, y_b) = (x_a·cos − x_b·sin, x_a·sin + x_b·cos) on the first rot_dim of head_dim elements of every head; the
/// rest is copied. Element (t,h,d) is at t·token_stride + h·head_stride + d. y may be x (same strides). Token t has
/// position positions[t], or, if null, start + t mod sequence.
template <class T>
struct RopeArgs {
  std::int64_t tokens = 0, heads = 0, head_dim = 0, rot_dim = 0;
  RopeStyle style = RopeStyle::HalfSplit;
  RopeDirection direction = RopeDirection::Forward;
  const T* x = nullptr;
  std::int64_t x_token_stride = 0, x_head_stride = 0;
  T* y = nullptr;
  std::int64_t y_token_stride = 0, y_head_stride = 0;
  const T* cos = nullptr;  ///< [max_pos, rot_dim/2]
  const T* sin = nullptr;
  const std::int32_t* positions = nullptr;  ///< [tokens] or null
  std::int64_t start = 0, sequence = 1;
};

template <class T>
void rope(const RopeArgs<T>& args);

}  // namespace orrery::kernels
