// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm_small.hpp"

#include <algorithm>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

// What is kept in registers: half as much where there are 16 of them, not 32.
constexpr int kRegisters = kVectorBytes == 64 ? 2 : 1;

/// c = 0 or c, plus bias: what the products are added to.
template <class T>
void start_rows(const FewRowsArgs<T>& s) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    T* c = s.c + i * s.ldc;
    if (s.write == Write::Overwrite) std::fill(c, c + s.n, T(0));
    if (s.bias) map(s.n, c, [&](auto at) { return at(c) + at(s.bias); });
  }
}

/// c[i,:] += Σ_q a[i,q]·b[q,:] for `Cols` vectors (or scalars) V of Depth rows of b, all read side by side.
template <class V, int Rows, int Depth, int Cols>
[[gnu::always_inline]] inline void add_rows_at(const FewRowsArgs<ScalarOf<V>>& s, const ScalarOf<V>* a,
                                               const ScalarOf<V>* b, ScalarOf<V>* c) {
  constexpr std::int64_t kStep = sizeof(V) / sizeof(ScalarOf<V>);
  const std::int64_t lda = packed_stride<ScalarOf<V>>(s.k);
  V x[Depth][Cols];
#pragma GCC unroll 8
  for (int q = 0; q < Depth; ++q)
#pragma GCC unroll 2
    for (int j = 0; j < Cols; ++j) x[q][j] = load<V>(b + q * s.ldb + j * kStep);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    V y[Cols];
#pragma GCC unroll 2
    for (int j = 0; j < Cols; ++j) y[j] = load<V>(c + i * s.ldc + j * kStep);
#pragma GCC unroll 8
    for (int q = 0; q < Depth; ++q)
#pragma GCC unroll 2
      for (int j = 0; j < Cols; ++j) y[j] += a[i * lda + q] * x[q][j];
#pragma GCC unroll 2
    for (int j = 0; j < Cols; ++j) store<V>(c + i * s.ldc + j * kStep, y[j]);
  }
}

template <class T, int Rows, int Depth>
void add_rows(const FewRowsArgs<T>& s, const T* a, const T* b, T* c) {
  std::int64_t j = 0;
  constexpr std::int64_t kStep = kRegisters * kLanes<T>;
  for (; j + kStep <= s.n; j += kStep) add_rows_at<Vec<T>, Rows, Depth, kRegisters>(s, a, b + j, c + j);
  for (; j < s.n; ++j) add_rows_at<T, Rows, Depth, 1>(s, a, b + j, c + j);
}

/// B as [k,n]: eight rows of b at a time.
template <class T, int Rows>
void stream_rows(const FewRowsArgs<T>& s, const T* a, T* c) {
  constexpr int kDepth = 8;
  std::int64_t p = 0;
  for (; p + kDepth <= s.k; p += kDepth) add_rows<T, Rows, kDepth>(s, a + p, s.b + p * s.ldb, c);
  for (; p < s.k; ++p) add_rows<T, Rows, 1>(s, a + p, s.b + p * s.ldb, c);
}

/// c[i,j] += a[i,:]·b[j,:] for Rows × Cols dots of length k.
template <class T, int Rows, int Cols>
void add_dots(const FewRowsArgs<T>& s, const T* a, const T* b, T* c) {
  const std::int64_t lda = packed_stride<T>(s.k);
  Vec<T> sum[Rows][Cols] = {};
  std::int64_t p = 0;
  for (; p + kLanes<T> <= s.k; p += kLanes<T>) {
    Vec<T> x[Cols];
#pragma GCC unroll 8
    for (int j = 0; j < Cols; ++j) x[j] = load<Vec<T>>(b + j * s.ldb + p);
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const Vec<T> y = load<Vec<T>>(a + i * lda + p);
#pragma GCC unroll 8
      for (int j = 0; j < Cols; ++j) sum[i][j] += y * x[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < Cols; ++j) {
      T dot = sum_lanes<T>(sum[i][j]);
      for (std::int64_t q = p; q < s.k; ++q) dot += a[i * lda + q] * b[j * s.ldb + q];
      c[i * s.ldc + j] += dot;
    }
}

/// B as [n,k]: up to four rows of b at a time.
template <class T, int Rows>
void stream_dots(const FewRowsArgs<T>& s, const T* a, T* c) {
  constexpr int kCols = (Rows > 4 ? 1 : 2) * kRegisters;
  std::int64_t j = 0;
  for (; j + kCols <= s.n; j += kCols) add_dots<T, Rows, kCols>(s, a, s.b + j * s.ldb, c + j);
  for (; j < s.n; ++j) add_dots<T, Rows, 1>(s, a, s.b + j * s.ldb, c + j);
}

/// alpha·op(a) as [m,k] with the packed stride.
template <class T>
void pack_rows(const FewRowsArgs<T>& s) {
  const bool no = s.transpose_a == Transpose::No;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t p = 0; p < s.k; ++p)
      s.packed_a[i * packed_stride<T>(s.k) + p] = s.alpha * (no ? s.a[i * s.lda + p] : s.a[p * s.lda + i]);
}

template <class T, int Rows>
void multiply_rows(const FewRowsArgs<T>& s) {
  if constexpr (Rows > 0) {
    if (s.m < Rows) return multiply_rows<T, Rows - 1>(s);
    if (s.transpose_b == Transpose::No)
      stream_rows<T, Rows>(s, s.packed_a, s.c);
    else
      stream_dots<T, Rows>(s, s.packed_a, s.c);
  }
}

}  // namespace

template <class T>
void multiply_few_rows(const FewRowsArgs<T>& s) {
  start_rows(s);
  if (s.k == 0) return;
  pack_rows(s);
  multiply_rows<T, kSmallRows>(s);
}

template void multiply_few_rows<float>(const FewRowsArgs<float>&);
template void multiply_few_rows<double>(const FewRowsArgs<double>&);

}  // namespace orrery::kernels
