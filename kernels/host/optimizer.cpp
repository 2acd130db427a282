// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/optimizer.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

inline float square_root(float x) { return std::sqrt(x); }
inline double square_root(double x) { return std::sqrt(x); }

/// √ of every lane; the loop over lanes becomes one instruction.
template <class V>
inline V square_root(V x) {
  return by_lane(x, [](auto v) { return std::sqrt(v); });
}

}  // namespace

template <class T>
void sum_of_squares(std::int64_t n, const T* x, double* sum) {
  constexpr std::int64_t kStep = 32;
  double part[kStep] = {};
  std::int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    fetch_lines(x + i + kFetchAhead<T>, kStep);
    for (std::int64_t j = 0; j < kStep; ++j) part[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  for (std::int64_t j = 0; i < n; ++i, ++j) part[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  for (std::int64_t half = kStep / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) part[j] += part[j + half];
  *sum += part[0];
}

double clip_factor(double sum_of_squares, double max_norm) {
  return std::min(1.0, max_norm / (std::sqrt(sum_of_squares) + 1e-6));
}

template <class T>
void sgd(const SgdArgs<T>& a) {
  const T rate = static_cast<T>(a.rate), momentum = static_cast<T>(a.momentum);
  const T decay = static_cast<T>(a.weight_decay), factor = static_cast<T>(a.gradient_scale);
  T* w = a.weights;
  const auto gradient = [&](auto at) { return at(a.gradient) * factor + decay * at(w); };
  if (!a.velocity) return map(a.n, w, [&](auto at) { return at(w) - rate * gradient(at); });
  const T own = a.nesterov ? T(1) : T(0), carried = a.nesterov ? momentum : T(1);
  map(a.n, w, [&](auto at) {
    const auto g = gradient(at);
    const auto u = momentum * at(a.velocity) + g;
    put(a.velocity, at.i, u);
    return at(w) - rate * (own * g + carried * u);
  });
}

template <class T>
void adamw(const AdamWArgs<T>& a) {
  const double step = static_cast<double>(a.step);
  const T beta1 = static_cast<T>(a.beta1), beta2 = static_cast<T>(a.beta2), factor = static_cast<T>(a.gradient_scale);
  const T keep1 = static_cast<T>(1 - a.beta1), keep2 = static_cast<T>(1 - a.beta2);
  const T rate = static_cast<T>(a.rate / (1 - std::pow(a.beta1, step)));
  const T correction = static_cast<T>(1 / std::sqrt(1 - std::pow(a.beta2, step)));
  const T epsilon = static_cast<T>(a.epsilon), shrink = static_cast<T>(1 - a.rate * a.weight_decay);
  map(a.n, a.weights, [&](auto at) {
    const auto g = at.ahead(a.gradient) * factor;
    const auto m = beta1 * at.ahead(a.m) + keep1 * g;
    const auto v = beta2 * at.ahead(a.v) + keep2 * g * g;
    put(a.m, at.i, m);
    put(a.v, at.i, v);
    return at.ahead(a.weights) * shrink - rate * m / (square_root(v) * correction + epsilon);
  });
}

#define KERNELS_INSTANTIATE(T)                                      \
  template void sum_of_squares<T>(std::int64_t, const T*, double*); \
  template void sgd<T>(const SgdArgs<T>&);                          \
  template void adamw<T>(const AdamWArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
