// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

enum class Transpose : bool { No, Yes };

struct GemmDims {
  std::int64_t m = 0, n = 0, k = 0;
};

/// C[b] = alpha · op(A[b]) · op(B[b]) + beta · C[b] + 1·biasᵀ for every b in batch.
///
/// op(A) is [m,k] and op(B) is [k,n]; lda, ldb, ldc are the row strides of the matrices as stored ([m,k] or [k,m], …).
/// A batch stride of 0 uses the same matrix for every b; stride_c must not be 0 when batch > 1.
template <class T>
struct GemmArgs {
  GemmDims dims;
  Transpose transpose_a = Transpose::No, transpose_b = Transpose::No;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;
  std::int64_t ldb = 0;
  T* c = nullptr;
  std::int64_t ldc = 0;
  std::int64_t batch = 1, stride_a = 0, stride_b = 0, stride_c = 0;
  T alpha = 1;
  Write write = Write::Overwrite;  ///< beta: Overwrite is 0 (C is not read), Accumulate is 1
  const T* bias = nullptr;         ///< [n] or null
  void* workspace = nullptr;       ///< gemm_workspace(dims, sizeof(T)) bytes
};

/// Bytes of workspace: packed blocks of A and B, bounded by about 1.5 MiB (float) or 3 MiB (double).
std::size_t gemm_workspace(GemmDims dims, std::size_t element_size);

template <class T>
void gemm(const GemmArgs<T>& args);

/// Rows of x split into `groups` by offsets[groups+1]: group g holds rows offsets[g] … offsets[g+1]−1.
/// The rows [0, offsets[0]) and those after offsets[groups] are not touched.
template <class T>
struct GroupedGemmArgs {
  std::int64_t groups = 0, k = 0, n = 0;
  const std::int32_t* offsets = nullptr;
  const T* x = nullptr;  ///< forward and dW: x[rows,k]; dX: dy[rows,n]
  const T* w = nullptr;  ///< forward and dX: weights [groups,k,n]; dW: dy[rows,n]
  T* y = nullptr;        ///< forward: [rows,n]; dX: [rows,k]; dW: [groups,k,n]
  Write write = Write::Overwrite;
  const T* bias = nullptr;    ///< [groups,n] or null; forward only
  void* workspace = nullptr;  ///< grouped_gemm_workspace(rows, k, n, sizeof(T)) bytes
};

/// Enough for forward, dX and dW when no group has more than `rows` rows.
std::size_t grouped_gemm_workspace(std::int64_t rows, std::int64_t k, std::int64_t n, std::size_t element_size);

/// y[r,:] = x[r,:] · W[g(r)] + bias[g(r)]
template <class T>
void grouped_gemm(const GroupedGemmArgs<T>& args);

/// dx[r,:] = dy[r,:] · W[g(r)]ᵀ
template <class T>
void grouped_gemm_input_gradient(const GroupedGemmArgs<T>& args);

/// dW[g] = x_gᵀ · dy_g; an empty group gives zeros (or leaves dW[g] when accumulating).
template <class T>
void grouped_gemm_weight_gradient(const GroupedGemmArgs<T>& args);

}  // namespace orrery::kernels
