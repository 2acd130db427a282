// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// y = (x − mean)·rstd·gamma + beta per row of x[rows,cols]; rstd = 1/√(var + epsilon), var with divisor cols.
template <class T>
struct LayerNormArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;  ///< [cols] or null (ones)
  const T* beta = nullptr;   ///< [cols] or null (zeros)
  T* y = nullptr;
  RowStride y_stride = {};
  T* mean = nullptr;  ///< [rows] or null
  T* rstd = nullptr;  ///< [rows] or null
  T epsilon = T(1e-5);
};

template <class T>
void layer_norm(const LayerNormArgs<T>& args);

/// With x̂ = (x − mean)·rstd and g = dy·gamma: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), dgamma = Σ_rows dy·x̂,
/// dbeta = Σ_rows dy.
template <class T>
struct LayerNormBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;  ///< [cols] or null (ones)
  const T* mean = nullptr;
  const T* rstd = nullptr;
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* dx = nullptr;
  RowStride dx_stride = {};
  T* dgamma = nullptr;  ///< [cols] or null
  T* dbeta = nullptr;   ///< [cols] or null
  Write write_dx = Write::Overwrite, write_parameters = Write::Overwrite;
};

template <class T>
void layer_norm_backward(const LayerNormBackwardArgs<T>& args);

/// y = x·rstd·(offset + gamma) per row; rstd = 1/√(mean(x²) + epsilon).
template <class T>
struct RmsNormArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;  ///< [cols] or null (ones)
  T offset = 0;              ///< of gamma, where there is one
  T* y = nullptr;
  RowStride y_stride = {};
  T* rstd = nullptr;  ///< [rows] or null
  T epsilon = T(1e-6);
};

template <class T>
void rms_norm(const RmsNormArgs<T>& args);

/// With x̂ = x·rstd and g = dy·(offset + gamma): dx = rstd·(g − x̂·mean(g·x̂)), dgamma = Σ_rows dy·x̂.
template <class T>
struct RmsNormBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;  ///< [cols] or null (ones)
  T offset = 0;              ///< of gamma, where there is one
  const T* rstd = nullptr;
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* dx = nullptr;
  RowStride dx_stride = {};
  T* dgamma = nullptr;  ///< [cols] or null
  Write write_dx = Write::Overwrite, write_parameters = Write::Overwrite;
};

template <class T>
void rms_norm_backward(const RmsNormBackwardArgs<T>& args);

}  // namespace orrery::kernels
