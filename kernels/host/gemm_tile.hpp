// SPDX-License-Identifier: Apache-2.0
// The register tile that gemm and attention are built from, and the packing of its operands. For sources of this
// folder.
#pragma once

#include <algorithm>

#include "kernels/host/simd.hpp"

namespace orrery::kernels {

// As many accumulators as leave room for the right operand: 16 of the 32 registers of AVX-512, 8 of 16 elsewhere.
constexpr std::int64_t kTileRows = 8, kTileVectors = kVectorBytes == 64 ? 2 : 1;
template <class T>
constexpr std::int64_t kTileCols = kTileVectors* kLanes<T>;

/// Width in columns after padding to whole panels of kTileCols.
template <class T>
constexpr std::int64_t padded_cols(std::int64_t n) {
  return round_up(n, kTileCols<T>);
}

/// The accumulators: eight rows of vectors.
template <class T>
struct Tile {
  Vec<T> c[kTileRows][kTileVectors];

  /// Adds the product of the column a(i) and the row of a panel at `b`.
  template <class A>
  [[gnu::always_inline]] void add(A&& a, const T* b) {
    Vec<T> row[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) row[v] = load<Vec<T>>(b + v * kLanes<T>);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i) {
      const T x = a(i);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) c[i][v] += x * row[v];
    }
  }
};

/// Where the eight rows of the left operand are: element p of row i is at row[i][p·step].
template <class T>
struct TileRows {
  const T* row[kTileRows];
};

/// Rows of a row-major matrix; rows beyond `rows` repeat the last one (their results are not stored).
template <class T>
inline TileRows<T> tile_rows(const T* a, std::int64_t lda, std::int64_t rows) {
  TileRows<T> r;
  for (std::int64_t i = 0; i < kTileRows; ++i) r.row[i] = a + std::min(i, rows - 1) * lda;
  return r;
}

/// c[i,:] = Σ_p a_i[p]·b[p,:] with a panel b[k, kTileCols], a read where it lies.
template <class T>
[[gnu::always_inline]] inline Tile<T> multiply_tile(std::int64_t k, const TileRows<T>& a, const T* b) {
  Tile<T> t{};
  for (std::int64_t p = 0; p < k; ++p, b += kTileCols<T>) t.add([&](int i) { return a.row[i][p]; }, b);
  return t;
}

/// Eight rows side by side: element p of row i is at a[p·step + i] (packed rows have step kTileRows; a step of ld reads
/// the transpose of a row-major matrix).
template <class T>
struct StepRows {
  const T* a;
  std::int64_t step;
};

template <class T>
[[gnu::always_inline]] inline Tile<T> multiply_tile(std::int64_t k, StepRows<T> rows, const T* b) {
  Tile<T> t{};
  const T* a = rows.a;
  for (std::int64_t p = 0; p < k; ++p, a += rows.step, b += kTileCols<T>) t.add([&](int i) { return a[i]; }, b);
  return t;
}

/// Hands row i of the tile to `f(i, j, vector or scalar of the result, At of column j)` for rows × cols of it.
template <class T, class F>
[[gnu::always_inline]] inline void for_tile(const Tile<T>& t, std::int64_t rows, std::int64_t cols, F&& f) {
  if (rows == kTileRows && cols == kTileCols<T>) {
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) f(i, At<Vec<T>>{v * kLanes<T>}, t.c[i][v]);
    return;
  }
  alignas(64) T flat[kTileRows * kTileCols<T>];
  std::memcpy(flat, &t, sizeof flat);
  for (std::int64_t i = 0; i < rows; ++i)
    each<T>(cols, [&](auto at, std::int64_t) { f(i, at, at(flat + i * kTileCols<T>)); });
}

/// One exchange of a transposition: swaps the lanes of a that have bit Half with those of b that have not.
template <std::size_t Half, class V, std::size_t... L>
[[gnu::always_inline]] inline void exchange_lanes(std::index_sequence<L...>, V& a, V& b) {
  constexpr std::size_t n = sizeof...(L);
  const V low = __builtin_shufflevector(a, b, ((L & Half) ? n + L - Half : L)...);
  b = __builtin_shufflevector(a, b, ((L & Half) ? n + L : L + Half)...);
  a = low;
}

/// Transposes a square of N × N: exchanges of N / 2, …, 2, 1 lanes between rows as far apart.
template <std::size_t N, std::size_t Half = N / 2, class V>
[[gnu::always_inline]] inline void transpose_lanes(V (&x)[N]) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < N; ++i)
    if ((i & Half) == 0) exchange_lanes<Half>(std::make_index_sequence<N>{}, x[i], x[i + Half]);
  if constexpr (Half > 1) transpose_lanes<N, Half / 2>(x);
}

/// How a block of a matrix lies in memory: element (p, j) at p·row + j·col, one of the two being 1.
struct BlockStrides {
  std::int64_t row, col;
};

/// out[p·W + j] = x(j)[p] for p < k, j < width: squares in registers, the rest one by one. As few columns at a time as
/// a square has: more streams than that are fetched late, and columns a multiple of a page apart share sets of the
/// first cache (products of 16 rows, whose B comes from memory, took two thirds longer with all columns of a panel in
/// turns).
template <class T, std::int64_t W, class Columns>
inline void pack_transposed(std::int64_t k, std::int64_t width, Columns&& x, T* out) {
  constexpr std::int64_t kSide = std::min(kLanes<T>, W);
  static_assert(W % kSide == 0);
  using V = typename VectorOf<T, kSide>::Type;
  const std::int64_t whole_k = k / kSide * kSide, whole = width / kSide * kSide;
  for (std::int64_t j = 0; j < whole; j += kSide)
    for (std::int64_t p = 0; p < whole_k; p += kSide) {
      V square[kSide];
      for (std::int64_t i = 0; i < kSide; ++i) std::memcpy(&square[i], x(j + i) + p, sizeof(V));
      transpose_lanes(square);
      for (std::int64_t i = 0; i < kSide; ++i) std::memcpy(out + (p + i) * W + j, &square[i], sizeof(V));
    }
  const auto one_by_one = [&](std::int64_t begin, std::int64_t end, std::int64_t first) {
    for (std::int64_t p0 = begin; p0 < end; p0 += kSide)  // few rows of the panel at a time, so that they stay in L1
      for (std::int64_t j = first; j < width; ++j) {
        const T* column = x(j);
        for (std::int64_t p = p0; p < std::min(p0 + kSide, end); ++p) out[p * W + j] = column[p];
      }
  };
  one_by_one(0, whole_k, whole);
  one_by_one(whole_k, k, 0);
}

/// Packs a block [k,width] with width ≤ W into out[k,W], zeros beyond width. Reads along the contiguous axis.
template <class T, std::int64_t W>
inline void pack_panel(std::int64_t k, std::int64_t width, const T* x, BlockStrides s, T* out) {
  if (s.col == 1 && width == W) {
    for (std::int64_t p = 0; p < k; ++p) std::memcpy(out + p * W, x + p * s.row, W * sizeof(T));
    return;
  }
  if (width < W) std::fill(out, out + k * W, T(0));
  if (s.col == 1) {
    for (std::int64_t p = 0; p < k; ++p)
      for (std::int64_t j = 0; j < width; ++j) out[p * W + j] = x[p * s.row + j];
    return;
  }
  pack_transposed<T, W>(
      k, width, [&](std::int64_t j) { return x + j * s.col; }, out);
}

/// Packs Count panels of W columns row by row, as what a row has for all of them lies together.
template <class T, std::int64_t W, std::int64_t Count>
inline void pack_panels_by_row(std::int64_t k, const T* x, std::int64_t ld, T* out) {
  for (std::int64_t p = 0; p < k; ++p)
    for (std::int64_t q = 0; q < Count; ++q) std::memcpy(out + (q * k + p) * W, x + p * ld + q * W, W * sizeof(T));
}

/// Packs [k,n] into panels of W columns: panel q at out + q·k·W. Where a row lies together, four panels at a time: half
/// a kilobyte of B (of one panel's 128 bytes products of 16 rows took a fifth longer), two cache lines of Aᵀ (halves of
/// one are a whole column of A apart, which is long for 2^n rows).
template <class T, std::int64_t W = kTileCols<T>>
inline void pack_panels(std::int64_t k, std::int64_t n, const T* x, BlockStrides s, T* out) {
  constexpr std::int64_t kTogether = 4;
  std::int64_t j = 0;
  if (s.col == 1)
    for (; n - j >= kTogether * W; j += kTogether * W)
      pack_panels_by_row<T, W, kTogether>(k, x + j, s.row, out + j * k);
  for (; j < n; j += W) pack_panel<T, W>(k, std::min(W, n - j), x + j * s.col, s, out + j * k);
}

/// Packs m rows of op(A) into tiles of kTileRows: tile i at out + i·k, element (p, j) of the block being Aᵀ.
template <class T>
inline void pack_row_tiles(std::int64_t m, std::int64_t k, const T* a, BlockStrides s, T* out) {
  pack_panels<T, kTileRows>(k, m, a, s, out);
}

}  // namespace orrery::kernels
