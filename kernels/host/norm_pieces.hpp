// SPDX-License-Identifier: Apache-2.0
// Norms of rows whose columns lie on several ranks: each rank has [rows, cols] of [rows, dim], and the sums of a row
// are added up over the ranks between two kernels.
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Layer norm takes the mean off and has sums[0]; RMS norm does not: its sums[0] is 0 and its mean null.
enum class NormStyle : std::uint8_t { Layer, Rms };

/// sums[0,r] = Σ_c x[r,c], sums[1,r] = Σ_c x[r,c]².
template <class T>
struct NormSumsArgs {
  NormStyle style = NormStyle::Layer;
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  T* sums = nullptr;  ///< [2,rows]
};

template <class T>
void norm_sums(const NormSumsArgs<T>& args);

/// mean = sums[0]/dim, rstd = 1/√(sums[1]/dim − mean² + epsilon), y = (x − mean)·rstd·(offset + gamma) + beta.
template <class T>
struct NormApplyArgs {
  NormStyle style = NormStyle::Layer;
  std::int64_t rows = 0, cols = 0, dim = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* sums = nullptr;   ///< [2,rows], over all ranks
  const T* gamma = nullptr;  ///< [cols]
  T offset = 0;              ///< of gamma, where there is no beta
  const T* beta = nullptr;   ///< [cols] or null (zeros)
  T* y = nullptr;
  RowStride y_stride = {};
  T* mean = nullptr;  ///< [rows] or null
  T* rstd = nullptr;  ///< [rows] or null
  T epsilon = T(1e-5);
};

template <class T>
void norm_apply(const NormApplyArgs<T>& args);

/// With x̂ = (x − mean)·rstd and g = dy·(offset + gamma): sums[0,r] = Σ_c g, sums[1,r] = Σ_c g·x̂, dgamma = Σ_rows dy·x̂,
/// dbeta = Σ_rows dy.
template <class T>
struct NormBackwardSumsArgs {
  NormStyle style = NormStyle::Layer;
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;
  T offset = 0;             ///< of gamma
  const T* mean = nullptr;  ///< [rows]; null for RMS norm
  const T* rstd = nullptr;
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* sums = nullptr;    ///< [2,rows]
  T* dgamma = nullptr;  ///< [cols] or null
  T* dbeta = nullptr;   ///< [cols] or null
  Write write_parameters = Write::Overwrite;
};

template <class T>
void norm_backward_sums(const NormBackwardSumsArgs<T>& args);

/// dx = rstd·(g − sums[0]/dim − x̂·sums[1]/dim); dx may be dy.
template <class T>
struct NormBackwardApplyArgs {
  NormStyle style = NormStyle::Layer;
  std::int64_t rows = 0, cols = 0, dim = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* gamma = nullptr;
  T offset = 0;             ///< of gamma
  const T* mean = nullptr;  ///< [rows]; null for RMS norm
  const T* rstd = nullptr;
  const T* dy = nullptr;
  RowStride dy_stride = {};
  const T* sums = nullptr;  ///< [2,rows], over all ranks
  T* dx = nullptr;
  RowStride dx_stride = {};
  Write write_dx = Write::Overwrite;
};

template <class T>
void norm_backward_apply(const NormBackwardApplyArgs<T>& args);

}  // namespace orrery::kernels
