// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/norm_pieces.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {

template <class T>
void norm_sums(const NormSumsArgs<T>& a) {
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.x_stride.value_or(a.cols);
    a.sums[r] = a.style == NormStyle::Layer ? reduce_add<T>(a.cols, [&](auto at) { return at(x); }) : T(0);
    a.sums[a.rows + r] = reduce_add<T>(a.cols, [&](auto at) { return at(x) * at(x); });
  }
}

/// Rounding can make the variance of a row of equal values negative.
template <class T>
void norm_apply(const NormApplyArgs<T>& a) {
  const T share = T(1) / static_cast<T>(a.dim), offset = a.offset;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.x_stride.value_or(a.cols);
    T* y = a.y + r * a.y_stride.value_or(a.cols);
    const T mean = a.style == NormStyle::Layer ? a.sums[r] * share : T(0);
    const T variance = std::max(T(0), a.sums[a.rows + r] * share - mean * mean);
    const T rstd = T(1) / std::sqrt(variance + a.epsilon);
    if (a.beta)
      map(a.cols, y, [&](auto at) { return (at(x) - mean) * rstd * at(a.gamma) + at(a.beta); });
    else
      map(a.cols, y, [&](auto at) { return (at(x) - mean) * rstd * (at(a.gamma) + offset); });
    if (a.mean) a.mean[r] = mean;
    if (a.rstd) a.rstd[r] = rstd;
  }
}

template <class T>
void norm_backward_sums(const NormBackwardSumsArgs<T>& a) {
  const T offset = a.offset;
  for (T* sum : {a.dgamma, a.dbeta})
    if (sum && a.write_parameters == Write::Overwrite) std::fill(sum, sum + a.cols, T(0));
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.x_stride.value_or(a.cols);
    const T* dy = a.dy + r * a.dy_stride.value_or(a.cols);
    const T mean = a.style == NormStyle::Layer ? a.mean[r] : T(0), rstd = a.rstd[r];
    const auto g = [&](auto at) { return at(dy) * (at(a.gamma) + offset); };
    const auto xhat = [&](auto at) { return (at(x) - mean) * rstd; };
    a.sums[r] = a.style == NormStyle::Layer ? reduce_add<T>(a.cols, g) : T(0);
    a.sums[a.rows + r] = reduce_add<T>(a.cols, [&](auto at) { return g(at) * xhat(at); });
    if (a.dgamma) map(a.cols, a.dgamma, [&](auto at) { return at(a.dgamma) + at(dy) * xhat(at); });
    if (a.dbeta) map(a.cols, a.dbeta, [&](auto at) { return at(a.dbeta) + at(dy); });
  }
}

template <class T>
void norm_backward_apply(const NormBackwardApplyArgs<T>& a) {
  const T share = T(1) / static_cast<T>(a.dim), offset = a.offset;
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.x_stride.value_or(a.cols);
    const T* dy = a.dy + r * a.dy_stride.value_or(a.cols);
    T* dx = a.dx + r * a.dx_stride.value_or(a.cols);
    const bool centred = a.style == NormStyle::Layer;
    const T mean = centred ? a.mean[r] : T(0), mean_g = centred ? a.sums[r] * share : T(0);
    const T rstd = a.rstd[r], mean_gx = a.sums[a.rows + r] * share;
    const auto gradient = [&](auto at) {
      return rstd * (at(dy) * (at(a.gamma) + offset) - mean_g - (at(x) - mean) * rstd * mean_gx);
    };
    if (a.write_dx == Write::Accumulate)
      map(a.cols, dx, [&](auto at) { return at(dx) + gradient(at); });
    else
      map(a.cols, dx, gradient);
  }
}

#define KERNELS_INSTANTIATE(T)                                         \
  template void norm_sums<T>(const NormSumsArgs<T>&);                  \
  template void norm_apply<T>(const NormApplyArgs<T>&);                \
  template void norm_backward_sums<T>(const NormBackwardSumsArgs<T>&); \
  template void norm_backward_apply<T>(const NormBackwardApplyArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
