// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// y[r,:] = softmax(scale·x[r,:]), scale > 0; y may be x. With positions a row takes part only in the columns that lie
/// at or before it, col_positions[c] ≤ p = row_positions[r mod period], and with a window at or behind p − window + 1;
/// the others become 0, as does a row without any.
template <class T>
struct SoftmaxArgs {
  std::int64_t rows = 0, cols = 0;
  T scale = 1;
  const T* x = nullptr;
  RowStride x_stride = {};
  T* y = nullptr;
  RowStride y_stride = {};
  std::int64_t period = 1;
  const std::int32_t* row_positions = nullptr;  ///< [period] or null: all columns are visible
  const std::int32_t* col_positions = nullptr;  ///< [cols], with row_positions
  std::int64_t window = 0;                      ///< 0: none
  bool chunked = false;                         ///< windows begin at ⌊p/window⌋·window instead
};

template <class T>
void softmax(const SoftmaxArgs<T>& args);

/// dx[r,c] = scale·y[r,c]·(dy[r,c] − Σ_j y[r,j]·dy[r,j]), with y the forward result; dx may be dy.
template <class T>
struct SoftmaxBackwardArgs {
  std::int64_t rows = 0, cols = 0;
  T scale = 1;
  const T* y = nullptr;
  RowStride y_stride = {};
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* dx = nullptr;
  RowStride dx_stride = {};
};

template <class T>
void softmax_backward(const SoftmaxBackwardArgs<T>& args);

}  // namespace orrery::kernels
