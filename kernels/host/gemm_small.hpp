// SPDX-License-Identifier: Apache-2.0
// Products with few rows of A, limited by the bandwidth with which B is read once. For sources of this folder.
#pragma once

#include "kernels/host/gemm.hpp"

namespace orrery::kernels {

constexpr std::int64_t kSmallRows = 8;

/// Row stride of the packed A: a cache line more than k, so that rows of 2^n elements do not share the sets of a cache.
template <class T>
constexpr std::int64_t packed_stride(std::int64_t k) {
  return k + 64 / static_cast<std::int64_t>(sizeof(T));
}

/// c[m,n] = alpha·op(a)·op(b) (+ c) (+ bias) with m ≤ kSmallRows (any m if k is 0).
template <class T>
struct FewRowsArgs {
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::No, transpose_b = Transpose::No;
  const T* a = nullptr;
  std::int64_t lda = 0;
  const T* b = nullptr;
  std::int64_t ldb = 0;
  T* c = nullptr;
  std::int64_t ldc = 0;
  T alpha = 1;
  Write write = Write::Overwrite;
  const T* bias = nullptr;
  T* packed_a = nullptr;  ///< m·packed_stride(k) elements
};

template <class T>
void multiply_few_rows(const FewRowsArgs<T>& args);

}  // namespace orrery::kernels
