// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/normalization.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

template <class T>
void layer_norm_row(const LayerNormArgs<T>& a, std::int64_t r) {
  const T* x = a.x + r * a.x_stride.value_or(a.cols);
  T* y = a.y + r * a.y_stride.value_or(a.cols);
  const T n = static_cast<T>(a.cols);
  const T mean = reduce_add<T>(a.cols, [&](auto at) { return at(x); }) / n;
  const T variance = reduce_add<T>(a.cols,
                                   [&](auto at) {
                                     const auto d = at.ahead(x, a.cols) - mean;
                                     return d * d;
                                   }) /
                     n;
  const T rstd = T(1) / std::sqrt(variance + a.epsilon);
  const auto xhat = [&](auto at) {
    at.claim(y, a.cols);
    return (at(x) - mean) * rstd;
  };
  if (a.gamma && a.beta)
    map(a.cols, y, [&](auto at) { return xhat(at) * at(a.gamma) + at(a.beta); });
  else if (a.gamma)
    map(a.cols, y, [&](auto at) { return xhat(at) * at(a.gamma); });
  else if (a.beta)
    map(a.cols, y, [&](auto at) { return xhat(at) + at(a.beta); });
  else
    map(a.cols, y, xhat);
  if (a.mean) a.mean[r] = mean;
  if (a.rstd) a.rstd[r] = rstd;
}

template <class T>
void rms_norm_row(const RmsNormArgs<T>& a, std::int64_t r) {
  const T* x = a.x + r * a.x_stride.value_or(a.cols);
  T* y = a.y + r * a.y_stride.value_or(a.cols);
  const T squares = reduce_add<T>(a.cols, [&](auto at) { return at(x) * at(x); });
  const T rstd = T(1) / std::sqrt(squares / static_cast<T>(a.cols) + a.epsilon);
  const auto xhat = [&](auto at) {
    at.claim(y, a.cols);
    return at.ahead(x, a.cols) * rstd;
  };
  if (a.gamma && a.offset != T(0))
    map(a.cols, y, [&](auto at) { return xhat(at) * (at(a.gamma) + a.offset); });
  else if (a.gamma)
    map(a.cols, y, [&](auto at) { return xhat(at) * at(a.gamma); });
  else
    map(a.cols, y, xhat);
  if (a.rstd) a.rstd[r] = rstd;
}

/// One row of either backward. Layer norm: x̂ = (x − mean)·rstd and the mean of g is removed; RMS norm: mean = 0 and
/// not.
template <class T>
struct BackwardRow {
  std::int64_t cols;
  const T *x, *dy, *gamma;
  T offset, mean, rstd;
  bool centred;
  T *dx, *dgamma, *dbeta;
  Write write_dx;
};

/// dx = rstd·(g − mean_g − x̂·mean_gx) with g(at) and a fixed way to write, so that the loop has no branches.
template <class T, class Gradient>
void normalized_gradient(const BackwardRow<T>& s, Gradient&& g) {
  const auto xhat = [&](auto at) { return (at(s.x) - s.mean) * s.rstd; };
  const T n = static_cast<T>(s.cols);
  const T mean_gx = reduce_add<T>(s.cols, [&](auto at) { return g(at) * xhat(at); }) / n;
  const T mean_g = s.centred ? reduce_add<T>(s.cols, [&](auto at) { return g(at); }) / n : T(0);
  const auto gradient = [&](auto at) {
    at.fetch(s.x, s.cols);
    at.fetch(s.dy, s.cols);
    at.claim(s.dx, s.cols);
    return s.rstd * (g(at) - mean_g - xhat(at) * mean_gx);
  };
  if (s.dgamma) map(s.cols, s.dgamma, [&](auto at) { return at(s.dgamma) + at(s.dy) * xhat(at); });
  if (s.dbeta) map(s.cols, s.dbeta, [&](auto at) { return at(s.dbeta) + at(s.dy); });
  if (s.write_dx == Write::Accumulate)
    map(s.cols, s.dx, [&](auto at) { return at(s.dx) + gradient(at); });
  else
    map(s.cols, s.dx, gradient);
}

template <class T>
void backward_row(const BackwardRow<T>& s) {
  if (s.gamma && s.offset != T(0))
    normalized_gradient(s, [&](auto at) { return at(s.dy) * (at(s.gamma) + s.offset); });
  else if (s.gamma)
    normalized_gradient(s, [&](auto at) { return at(s.dy) * at(s.gamma); });
  else
    normalized_gradient(s, [&](auto at) { return at(s.dy); });
}

template <class T>
void start(std::int64_t n, T* sum, Write write) {
  if (sum && write == Write::Overwrite) std::fill(sum, sum + n, T(0));
}

}  // namespace

template <class T>
void layer_norm(const LayerNormArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) layer_norm_row(args, r);
}

template <class T>
void rms_norm(const RmsNormArgs<T>& args) {
  for (std::int64_t r = 0; r < args.rows; ++r) rms_norm_row(args, r);
}

template <class T>
void layer_norm_backward(const LayerNormBackwardArgs<T>& a) {
  start(a.cols, a.dgamma, a.write_parameters);
  start(a.cols, a.dbeta, a.write_parameters);
  for (std::int64_t r = 0; r < a.rows; ++r)
    backward_row<T>({.cols = a.cols,
                     .x = a.x + r * a.x_stride.value_or(a.cols),
                     .dy = a.dy + r * a.dy_stride.value_or(a.cols),
                     .gamma = a.gamma,
                     .offset = 0,
                     .mean = a.mean[r],
                     .rstd = a.rstd[r],
                     .centred = true,
                     .dx = a.dx + r * a.dx_stride.value_or(a.cols),
                     .dgamma = a.dgamma,
                     .dbeta = a.dbeta,
                     .write_dx = a.write_dx});
}

template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& a) {
  start(a.cols, a.dgamma, a.write_parameters);
  for (std::int64_t r = 0; r < a.rows; ++r)
    backward_row<T>({.cols = a.cols,
                     .x = a.x + r * a.x_stride.value_or(a.cols),
                     .dy = a.dy + r * a.dy_stride.value_or(a.cols),
                     .gamma = a.gamma,
                     .offset = a.offset,
                     .mean = 0,
                     .rstd = a.rstd[r],
                     .centred = false,
                     .dx = a.dx + r * a.dx_stride.value_or(a.cols),
                     .dgamma = a.dgamma,
                     .dbeta = nullptr,
                     .write_dx = a.write_dx});
}

template void layer_norm<float>(const LayerNormArgs<float>&);
template void layer_norm<double>(const LayerNormArgs<double>&);
template void layer_norm_backward<float>(const LayerNormBackwardArgs<float>&);
template void layer_norm_backward<double>(const LayerNormBackwardArgs<double>&);
template void rms_norm<float>(const RmsNormArgs<float>&);
template void rms_norm<double>(const RmsNormArgs<double>&);
template void rms_norm_backward<float>(const RmsNormBackwardArgs<float>&);
template void rms_norm_backward<double>(const RmsNormBackwardArgs<double>&);

}  // namespace orrery::kernels
