// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/gemm_small.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

// What is kept in registers: half as much where there are 16 of them, not 32.
constexpr int kRegisters = kVectorBytes == 64 ? 2 : 1;

constexpr std::int64_t kRowsInCache = 16384;  // bytes of a that stay near while b passes
constexpr std::int64_t kTile = 131072;        // bytes of b that wait in a second-level cache, while as many are fetched

/// c = 0 or c, plus bias: what the products are added to.
template <class T>
void start_rows(const FewRowsArgs<T>& s) {
  for (std::int64_t i = 0; i < s.m; ++i) {
    T* c = s.c + i * s.ldc;
    if (s.write == Write::Overwrite) std::fill(c, c + s.n, T(0));
    if (s.bias) map(s.n, c, [&](auto at) { return at(c) + at(s.bias); });
  }
}

/// Elements between what is read of b and what is fetched into the second-level cache: enough groups of rows to outlast
/// memory's latency. Of long rows 2 KB, as hardware runs ahead there by itself. Without it rows of 1 to 4 KB come from
/// memory at half its rate, and ever slower the more rows of a are to be multiplied.
template <class T>
std::int64_t look_ahead(std::int64_t group) {
  constexpr std::int64_t kSize = sizeof(T), kLeast = 16384 / kSize, kMost = 131072 / kSize, kWithin = 2048 / kSize;
  return group > kMost ? kWithin : round_up(kLeast, group);
}

/// c[i,:] += Σ_q a[i,q]·b[q,:] for `Cols` vectors (or scalars) V of Depth rows of b, all read side by side.
template <class V, int Rows, int Depth, int Cols>
[[gnu::always_inline]] inline void add_rows_at(const FewRowsArgs<ScalarOf<V>>& s, std::int64_t ahead,
                                               const ScalarOf<V>* a, const ScalarOf<V>* b, ScalarOf<V>* c) {
  constexpr std::int64_t kStep = sizeof(V) / sizeof(ScalarOf<V>);
  const std::int64_t lda = packed_stride<ScalarOf<V>>(s.k);
  V x[Depth][Cols];
#pragma GCC unroll 8
  for (int q = 0; q < Depth; ++q)
#pragma GCC unroll 2
    for (int j = 0; j < Cols; ++j) {
      x[q][j] = load<V>(b + q * s.ldb + j * kStep);
      if constexpr (kStep > 1) fetch_line(b + q * s.ldb + j * kStep + ahead);
    }
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
void add_rows(const FewRowsArgs<T>& s, std::int64_t ahead, const T* a, const T* b, T* c) {
  std::int64_t j = 0;
  constexpr std::int64_t kStep = kRegisters * kLanes<T>;
  for (; j + kStep <= s.n; j += kStep) add_rows_at<Vec<T>, Rows, Depth, kRegisters>(s, ahead, a, b + j, c + j);
  if constexpr (kRegisters > 1)
    if (j + kLanes<T> <= s.n) add_rows_at<Vec<T>, Rows, Depth, 1>(s, ahead, a, b + j, c + j), j += kLanes<T>;
  for (; j < s.n; ++j) add_rows_at<T, Rows, Depth, 1>(s, ahead, a, b + j, c + j);
}

/// B as [k,n]: eight rows of b at a time.
template <class T, int Rows>
void stream_rows(const FewRowsArgs<T>& s, const T* a, T* c) {
  constexpr int kDepth = 8;
  const std::int64_t ahead = look_ahead<T>(kDepth * s.ldb);
  std::int64_t p = 0;
  for (; p + kDepth <= s.k; p += kDepth) add_rows<T, Rows, kDepth>(s, ahead, a + p, s.b + p * s.ldb, c);
  for (; p < s.k; ++p) add_rows<T, Rows, 1>(s, ahead, a + p, s.b + p * s.ldb, c);
}

/// c[j] += the sum of the lanes of x[j].
template <class T, int Cols>
[[gnu::always_inline]] inline void add_sums(const Vec<T> (&x)[Cols], T* c) {
  if constexpr (Cols == 4) {
    auto sums = sum_lanes_of_four<T>(x), before = sums;
    std::memcpy(&before, c, sizeof before);
    sums += before;
    std::memcpy(c, &sums, sizeof sums);
  } else {
    for (int j = 0; j < Cols; ++j) c[j] += sum_lanes<T>(x[j]);
  }
}

/// sum[i][j] += a[i,at:]·x_of(row j of b), lane by lane; rows of a are k apart.
template <class T, int Rows, int Cols, class XOf>
[[gnu::always_inline]] inline void add_vectors(const FewRowsArgs<T>& s, std::int64_t ahead, std::int64_t k, const T* a,
                                               const T* b, XOf&& x_of, Vec<T> (&sum)[Rows][Cols]) {
  Vec<T> x[Cols];
#pragma GCC unroll 4
  for (int j = 0; j < Cols; ++j) {
    x[j] = in_register(x_of(b + j * s.ldb));
    fetch_line(b + j * s.ldb + ahead);
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
    const Vec<T> y = in_register(load<Vec<T>>(a + i * k));
#pragma GCC unroll 4
    for (int j = 0; j < Cols; ++j) sum[i][j] += y * x[j];
  }
}

/// c[i,j] += a[i,:]·b[j,:] for Rows × Cols dots of length k, a with its rows k apart. What does not fill a vector is
/// read as the last one of the row, without the lanes that are done.
template <class T, int Rows, int Cols>
void add_dots(const FewRowsArgs<T>& s, std::int64_t ahead, std::int64_t k, const T* a, const T* b, T* c) {
  if (k < kLanes<T>) {
    for (int i = 0; i < Rows; ++i)
      for (int j = 0; j < Cols; ++j)
        for (std::int64_t p = 0; p < k; ++p) c[i * s.ldc + j] += a[i * k + p] * b[j * s.ldb + p];
    return;
  }
  Vec<T> sum[Rows][Cols] = {};
  std::int64_t p = 0;
  for (; p + kLanes<T> <= k; p += kLanes<T>) add_vectors<T, Rows, Cols>(s, ahead, k, a + p, b + p, load<Vec<T>>, sum);
  if (const std::int64_t left = k - p; left > 0)
    add_vectors<T, Rows, Cols>(
        s, ahead, k, a + k - kLanes<T>, b + k, [&](const T* end) { return last_lanes<T>(end, left); }, sum);
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) add_sums<T, Cols>(sum[i], c + i * s.ldc);
}

/// Of each row of a as much as leaves m of them in half of a first-level cache.
template <class T>
std::int64_t block_depth(std::int64_t m, std::int64_t k) {
  const std::int64_t most = kRowsInCache / (m * static_cast<std::int64_t>(sizeof(T))), blocks = (k + most - 1) / most;
  return round_up((k + blocks - 1) / blocks, kLanes<T>);
}

/// B as [n,k]: up to four rows of b at a time, two where sums with seven or eight rows of a would not fit in registers.
/// Where a does not stay near, of some rows of b, which lie together, first one block of k, then the next, while the
/// rows behind them are fetched.
template <class T, int Rows>
void stream_dots(const FewRowsArgs<T>& s, const T* a, T* c) {
  constexpr int kCols = (Rows > (kRegisters == 2 ? 6 : 4) ? 1 : 2) * kRegisters;
  const std::int64_t depth = block_depth<T>(s.m, s.k), group = kCols * s.ldb;
  const std::int64_t groups = kTile / (static_cast<std::int64_t>(sizeof(T)) * group);
  const bool tiled = depth < s.k && groups > 0;
  const std::int64_t tile = tiled ? groups * kCols : s.n, ahead = tiled ? groups * group : look_ahead<T>(group);
  for (std::int64_t j0 = 0; j0 < s.n; j0 += tile) {
    const std::int64_t end = std::min(j0 + tile, s.n);
    for (std::int64_t p = 0; p < s.k; p += depth) {
      const std::int64_t k = std::min(depth, s.k - p);
      const T* b = s.b + p;
      std::int64_t j = j0;
      for (; j + kCols <= end; j += kCols) add_dots<T, Rows, kCols>(s, ahead, k, a + p * Rows, b + j * s.ldb, c + j);
      for (; j < end; ++j) add_dots<T, Rows, 1>(s, ahead, k, a + p * Rows, b + j * s.ldb, c + j);
    }
  }
}

/// alpha·op(a)[i,p:p + count] to `out`.
template <class T>
void pack_row(const FewRowsArgs<T>& s, std::int64_t i, std::int64_t p, std::int64_t count, T* out) {
  const bool no = s.transpose_a == Transpose::No;
  for (std::int64_t q = p; q < p + count; ++q) *out++ = s.alpha * (no ? s.a[i * s.lda + q] : s.a[q * s.lda + i]);
}

/// alpha·op(a): rows with the packed stride, or with b as [n,k] one behind the other within each block of k. Rows a
/// power of two apart would share a few sets of the first-level cache with those of b.
template <class T>
void pack_rows(const FewRowsArgs<T>& s) {
  const bool blocks = s.transpose_b == Transpose::Yes;
  const std::int64_t depth = blocks ? block_depth<T>(s.m, s.k) : s.k, stride = packed_stride<T>(s.k);
  for (std::int64_t p = 0; p < s.k; p += depth) {
    const std::int64_t count = std::min(depth, s.k - p);
    for (std::int64_t i = 0; i < s.m; ++i)
      pack_row(s, i, p, count, s.packed_a + (blocks ? p * s.m + i * count : i * stride));
  }
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
  if (s.k == 0 || s.m == 0) return;
  pack_rows(s);
  multiply_rows<T, kSmallRows>(s);
}

template void multiply_few_rows<float>(const FewRowsArgs<float>&);
template void multiply_few_rows<double>(const FewRowsArgs<double>&);

}  // namespace orrery::kernels
