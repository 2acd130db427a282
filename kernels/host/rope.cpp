// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/rope.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

/// Turns one head; `sign` is ±1.
template <class T>
void turn_halves(std::int64_t half, const T* x, const T* cos, const T* sin, T sign, T* y) {
  each<T>(half, [&](auto at, std::int64_t i) {
    const auto a = at(x), b = at(x + half), c = at(cos), s = sign * at(sin);
    put(y, i, a * c - b * s);
    put(y + half, i, a * s + b * c);
  });
}

template <class T>
void turn_pairs(std::int64_t half, const T* x, const T* cos, const T* sin, T sign, T* y) {
  for (std::int64_t i = 0; i < half; ++i) {
    const T a = x[2 * i], b = x[2 * i + 1], c = cos[i], s = sign * sin[i];
    y[2 * i] = a * c - b * s;
    y[2 * i + 1] = a * s + b * c;
  }
}

}  // namespace

template <class T>
void rope_table(const RopeTableArgs<T>& a) {
  for (std::int64_t p = 0; p < a.positions; ++p)
    for (std::int64_t i = 0; i < a.half; ++i) {
      const double angle = static_cast<double>(p) * a.inv_freq[i];
      a.cos[p * a.half + i] = static_cast<T>(a.factor * std::cos(angle));
      a.sin[p * a.half + i] = static_cast<T>(a.factor * std::sin(angle));
    }
}

template <class T>
void rope(const RopeArgs<T>& a) {
  const std::int64_t half = a.rot_dim / 2;
  const T sign = a.direction == RopeDirection::Forward ? T(1) : T(-1);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t position = a.positions ? a.positions[t] : a.start + t % a.sequence;
    const T *cos = a.cos + position * half, *sin = a.sin + position * half;
    for (std::int64_t h = 0; h < a.heads; ++h) {
      const T* x = a.x + t * a.x_token_stride + h * a.x_head_stride;
      T* y = a.y + t * a.y_token_stride + h * a.y_head_stride;
      if (a.style == RopeStyle::HalfSplit)
        turn_halves(half, x, cos, sin, sign, y);
      else
        turn_pairs(half, x, cos, sin, sign, y);
      if (x != y) std::copy(x + a.rot_dim, x + a.head_dim, y + a.rot_dim);
    }
  }
}

template void rope_table<float>(const RopeTableArgs<float>&);
template void rope_table<double>(const RopeTableArgs<double>&);
template void rope<float>(const RopeArgs<float>&);
template void rope<double>(const RopeArgs<double>&);

}  // namespace orrery::kernels
