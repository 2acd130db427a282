// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// y = a + b; y may be a or b. The same holds for the elementwise kernels below.
template <class T>
void add(std::int64_t n, const T* a, const T* b, T* y);

/// y = alpha·x
template <class T>
void scale(std::int64_t n, T alpha, const T* x, T* y);

/// y += alpha·x
template <class T>
void axpy(std::int64_t n, T alpha, const T* x, T* y);

/// y = a·b, element by element
template <class T>
void multiply(std::int64_t n, const T* a, const T* b, T* y);

template <class T>
void fill(std::int64_t n, T value, T* y);

template <class T>
void copy(std::int64_t n, const T* x, T* y);

/// dst[r,c] = src[r,c] (or +=) of [rows,cols]; with a row stride a column slice of a wider tensor.
template <class T>
struct CopyRowsArgs {
  std::int64_t rows = 0, cols = 0;
  const T* src = nullptr;
  RowStride src_stride = {};
  T* dst = nullptr;
  Write write = Write::Overwrite;
};

template <class T>
void copy_rows(const CopyRowsArgs<T>& args);

/// y[r,c] = x[r,c] + bias[c]; y may be x.
template <class T>
void bias_add(std::int64_t rows, std::int64_t cols, const T* x, const T* bias, T* y);

/// sum[c] = Σ_r x[r,c]: the gradient of a bias. Rows are added in order.
template <class T>
void column_sum(std::int64_t rows, std::int64_t cols, const T* x, T* sum, Write write = Write::Overwrite);

/// y[c,r] = x[r,c] for x[rows,cols].
template <class T>
void transpose2d(std::int64_t rows, std::int64_t cols, const T* x, T* y);

/// y[o,j,i,:] = x[o,i,j,:] for x[outer,a,b,inner]; also for int32.
template <class T>
void swap_axes(std::int64_t outer, std::int64_t a, std::int64_t b, std::int64_t inner, const T* x, T* y);

void cast(std::int64_t n, const float* x, double* y);
void cast(std::int64_t n, const double* x, float* y);

}  // namespace orrery::kernels
