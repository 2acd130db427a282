// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/softmax.hpp"

#include <algorithm>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

/// Hides what is not visible: y = x there, −∞ elsewhere.
template <class T>
void copy_visible(const SoftmaxArgs<T>& a, std::int32_t position, const T* x, T* y) {
  const T hidden = -std::numeric_limits<T>::infinity();
  const std::int64_t first =
      a.window > 0 ? window_start(position, a.window, a.chunked) : std::numeric_limits<std::int32_t>::min();
  for (std::int64_t c = 0; c < a.cols; ++c)
    y[c] = a.col_positions[c] <= position && a.col_positions[c] >= first ? x[c] : hidden;
}

template <class T>
void softmax_row(std::int64_t cols, T scale, const T* x, T* y) {
  const T max = reduce_max<T>(cols, [&](auto at) { return at(x); });
  if (max == -std::numeric_limits<T>::infinity()) return std::fill(y, y + cols, T(0));
  const T sum = reduce_add<T>(cols, [&](auto at) {
    const auto e = exp((at.ahead(x, cols) - max) * scale);
    put(y, at.i, e);
    return e;
  });
  const T inverse = T(1) / sum;
  map(cols, y, [&](auto at) { return at(y) * inverse; });
}

}  // namespace

template <class T>
void softmax(const SoftmaxArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.x_stride.value_or(a.cols);
    T* y = a.y + r * a.y_stride.value_or(a.cols);
    if (a.row_positions) copy_visible(a, a.row_positions[r % a.period], x, y);
    softmax_row(a.cols, a.scale, a.row_positions ? y : x, y);
  }
}

template <class T>
void softmax_backward(const SoftmaxBackwardArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* y = a.y + r * a.y_stride.value_or(a.cols);
    const T* dy = a.dy + r * a.dy_stride.value_or(a.cols);
    const T dot = reduce_add<T>(a.cols, [&](auto at) { return at(y) * at(dy); });
    map(a.cols, a.dx + r * a.dx_stride.value_or(a.cols), [&](auto at) { return a.scale * at(y) * (at(dy) - dot); });
  }
}

template void softmax<float>(const SoftmaxArgs<float>&);
template void softmax<double>(const SoftmaxArgs<double>&);
template void softmax_backward<float>(const SoftmaxBackwardArgs<float>&);
template void softmax_backward<double>(const SoftmaxBackwardArgs<double>&);

}  // namespace orrery::kernels
