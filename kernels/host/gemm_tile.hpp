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
template <class T, std::size_t Half, std::size_t... L>
[[gnu::always_inline]] inline void exchange_lanes(std::index_sequence<L...>, Vec<T>& a, Vec<T>& b) {
  constexpr std::size_t n = sizeof...(L);
  const Vec<T> low = __builtin_shufflevector(a, b, ((L & Half) ? n + L - Half : L)...);
  b = __builtin_shufflevector(a, b, ((L & Half) ? n + L : L + Half)...);
  a = low;
}

/// Transposes a square of lanes × lanes: exchanges of 8, 4, 2, 1 lanes between rows as far apart.
template <class T, std::size_t Half = kLanes<T> / 2>
[[gnu::always_inline]] inline void transpose_lanes(Vec<T> (&x)[kLanes<T>]) {
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kLanes<T>; ++i)
    if ((i & Half) == 0) exchange_lanes<T, Half>(std::make_index_sequence<kLanes<T>>{}, x[i], x[i + Half]);
  if constexpr (Half > 1) transpose_lanes<T, Half / 2>(x);
}

/// How a block of a matrix lies in memory: element (p, j) at p·row + j·col, one of the two being 1.
struct BlockStrides {
  std::int64_t row, col;
};

/// out[p·W + j] = x(j)[p] for p < k, j < width: squares of lanes × lanes in registers, the rest one by one.
template <class T, std::int64_t W, class Columns>
inline void pack_transposed(std::int64_t k, std::int64_t width, Columns&& x, T* out) {
  constexpr std::int64_t kSide = kLanes<T>;
  const std::int64_t whole_k = W % kSide == 0 ? k / kSide * kSide : 0, whole = width / kSide * kSide;
  for (std::int64_t p = 0; p < whole_k; p += kSide)
    for (std::int64_t j = 0; j < whole; j += kSide) {
      Vec<T> square[kSide];
      for (std::int64_t i = 0; i < kSide; ++i) square[i] = load<Vec<T>>(x(j + i) + p);
      transpose_lanes<T>(square);
      for (std::int64_t i = 0; i < kSide; ++i) store<Vec<T>>(out + (p + i) * W + j, square[i]);
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

/// Packs m rows of op(A) into tiles of kTileRows: tile i at out + i·k, element (p, j) of the block being Aᵀ.
template <class T>
inline void pack_row_tiles(std::int64_t m, std::int64_t k, const T* a, BlockStrides s, T* out) {
  for (std::int64_t i = 0; i < m; i += kTileRows, out += kTileRows * k)
    pack_panel<T, kTileRows>(k, std::min(kTileRows, m - i), a + i * s.col, s, out);
}

/// Packs [k,n] into panels of kTileCols columns: panel q at out + q·k·kTileCols.
template <class T>
inline void pack_panels(std::int64_t k, std::int64_t n, const T* x, BlockStrides s, T* out) {
  for (std::int64_t j = 0; j < n; j += kTileCols<T>, out += k * kTileCols<T>)
    pack_panel<T, kTileCols<T>>(k, std::min(kTileCols<T>, n - j), x + j * s.col, s, out);
}

}  // namespace orrery::kernels
