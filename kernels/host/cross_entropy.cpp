// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/cross_entropy.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

template <class T>
T maximum(std::int64_t n, const T* x) {
  return reduce_max<T>(n, [&](auto at) { return at(x); });
}

template <class T>
T sum_exp(std::int64_t n, const T* x, T max) {
  return reduce_add<T>(n, [&](auto at) { return exp(at(x) - max); });
}

}  // namespace

template <class T>
void cross_entropy(const CrossEntropyArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.logits + r * a.vocab;
    const T max = maximum(a.vocab, x);
    a.lse[r] = max + std::log(sum_exp(a.vocab, x, max));
    a.loss[r] = a.targets[r] == kIgnoreIndex ? T(0) : a.lse[r] - x[a.targets[r]];
  }
}

template <class T>
void mean_loss(std::int64_t rows, const T* loss, double count, T* mean) {
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) sum += static_cast<double>(loss[r]);
  *mean = count == 0 ? T(0) : static_cast<T>(sum / count);
}

template <class T>
void cross_entropy_backward(const CrossEntropyBackwardArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.logits + r * a.vocab;
    T* dx = a.dlogits + r * a.vocab;
    const T lse = a.lse[r], factor = a.targets[r] == kIgnoreIndex ? T(0) : a.scale;
    if (factor == T(0)) {
      std::fill(dx, dx + a.vocab, T(0));
      continue;
    }
    map(a.vocab, dx, [&](auto at) { return factor * exp(at(x) - lse); });
    const std::int64_t target = a.targets[r] - a.first;
    if (target >= 0 && target < a.vocab) dx[target] -= factor;
  }
}

template <class T>
void row_max(std::int64_t rows, std::int64_t cols, const T* x, T* max) {
  for (std::int64_t r = 0; r < rows; ++r) max[r] = maximum(cols, x + r * cols);
}

template <class T>
void row_sum_exp(std::int64_t rows, std::int64_t cols, const T* x, const T* max, T* sum) {
  for (std::int64_t r = 0; r < rows; ++r) sum[r] = sum_exp(cols, x + r * cols, max[r]);
}

template <class T>
void target_logit(const TargetLogitArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const std::int64_t c = a.targets[r] - a.first;
    a.out[r] = a.targets[r] != kIgnoreIndex && c >= 0 && c < a.cols ? a.x[r * a.cols + c] : T(0);
  }
}

template <class T>
void cross_entropy_combine(const CrossEntropyCombineArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    a.lse[r] = a.max[r] + std::log(a.sum[r]);
    a.loss[r] = a.targets[r] == kIgnoreIndex ? T(0) : a.lse[r] - a.target[r];
  }
}

template <class T>
void softmax(std::int64_t rows, std::int64_t cols, const T* x, T inverse_temperature, T* y) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols) {
    const T max = maximum(cols, x);
    const T sum = reduce_add<T>(cols, [&](auto at) {
      const auto e = exp((at(x) - max) * inverse_temperature);
      put(y, at.i, e);
      return e;
    });
    const T inverse = T(1) / sum;
    map(cols, y, [&](auto at) { return at(y) * inverse; });
  }
}

template <class T>
void softmax_backward(std::int64_t rows, std::int64_t cols, const T* y, const T* dy, T* dx) {
  for (std::int64_t r = 0; r < rows; ++r, y += cols, dy += cols, dx += cols) {
    const T dot = reduce_add<T>(cols, [&](auto at) { return at(y) * at(dy); });
    map(cols, dx, [&](auto at) { return at(y) * (at(dy) - dot); });
  }
}

#define KERNELS_INSTANTIATE(T)                                                      \
  template void cross_entropy<T>(const CrossEntropyArgs<T>&);                       \
  template void mean_loss<T>(std::int64_t, const T*, double, T*);                   \
  template void cross_entropy_backward<T>(const CrossEntropyBackwardArgs<T>&);      \
  template void row_max<T>(std::int64_t, std::int64_t, const T*, T*);               \
  template void row_sum_exp<T>(std::int64_t, std::int64_t, const T*, const T*, T*); \
  template void target_logit<T>(const TargetLogitArgs<T>&);                         \
  template void cross_entropy_combine<T>(const CrossEntropyCombineArgs<T>&);        \
  template void softmax<T>(std::int64_t, std::int64_t, const T*, T, T*);            \
  template void softmax_backward<T>(std::int64_t, std::int64_t, const T*, const T*, T*);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
