// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores: tiles of 64 queries (16 per warp) against tiles of 64 keys, scores in registers, sums
// rescaled as the maximum grows (Dao, "FlashAttention-2", 2023). bf16 and f16, heads of D = 64 or 128 numbers.
//
// Fragments of mma.m16n8k16 in lane l, with g = l / 4 and p = 2·(l mod 4): A holds rows g and g + 8 at columns p, p +
// 1, p + 8, p + 9; B the rows p, p + 1, p + 8, p + 9 of column g; D rows g and g + 8 at columns p, p + 1.
#pragma once

#include "kernels/cuda/attention.hpp"

namespace orrery::kernels::cuda {

constexpr int kTileQueries = 64, kTileKeys = 64;
/// Rows of a tile in shared memory are 16 bytes longer than they need: neighbours then lie in other banks.
constexpr int kRowPadding = 8, kTileThreads = 128;
template <int D>
constexpr std::size_t kTileShared = 2 * kTileKeys*(D + kRowPadding) * sizeof(std::uint16_t);

/// What the kernels of this file and of attention_tile_slopes.hpp do with rows of heads.
template <class T, int D>
struct TileSteps {
  static constexpr int kStride = D + kRowPadding;
  using Rows = std::uint32_t[D / 16][4];  // 16 rows of a warp as A, D numbers each
  using Sums = float[D / 8][4];           // of 16 rows of a warp, as D

  static KERNELS_GPU_INLINE std::uint32_t pair_at(const T* x) { return *reinterpret_cast<const std::uint32_t*>(x); }
  static KERNELS_GPU_INLINE std::uint32_t pair(T low, T high) {
    return static_cast<std::uint32_t>(low.bits) | static_cast<std::uint32_t>(high.bits) << 16;
  }
  /// The lane's row g, or g + 8 with `half` 1, from memory; zeros for null.
  template <class Thread>
  static KERNELS_GPU_INLINE void load_row(const Thread& t, const T* from, int half, Rows& rows) {
    const int at = t.index() % 4 * 2;
    for (int k = 0; k < D / 16; ++k) {
      rows[k][half] = from ? pair_at(from + 16 * k + at) : 0;
      rows[k][half + 2] = from ? pair_at(from + 16 * k + at + 8) : 0;
    }
  }
  /// from[r], or zeros for null, into row r of a tile of 64.
  template <class Thread, class F>
  static KERNELS_GPU_INLINE void fill_tile(const Thread& t, T* tile, F&& from) {
    constexpr int kChunks = D / 8;
    for (int c = t.index(); c < kTileKeys * kChunks; c += kTileThreads) {
      const T* row = from(c / kChunks);
      Quad chunk{};
      if (row) chunk = *reinterpret_cast<const Quad*>(row + c % kChunks * 8);
      *reinterpret_cast<Quad*>(tile + c / kChunks * kStride + c % kChunks * 8) = chunk;
    }
  }
  /// d = rows·(8 rows of a tile)ᵀ.
  template <class Thread>
  static KERNELS_GPU_INLINE void multiply(const Thread& t, const Rows& rows, const T* tile, float (&d)[4]) {
    const T* column = tile + t.index() % kWarp / 4 * kStride + t.index() % 4 * 2;
    for (int i = 0; i < 4; ++i) d[i] = 0;
    for (int k = 0; k < D / 16; ++k) {
      const std::uint32_t b[2] = {pair_at(column + 16 * k), pair_at(column + 16 * k + 8)};
      t.mma(d, rows[k], b, T{});
    }
  }
  /// sums += x·(16 rows of a tile), x being 16 columns as D: they lie where A's do.
  template <class Thread>
  static KERNELS_GPU_INLINE void add_rows(const Thread& t, const float (*x)[4], const T* tile, Sums& sums) {
    std::uint32_t a[4];
    for (int i = 0; i < 4; ++i) {
      const float* from = x[i / 2] + i % 2 * 2;
      a[i] = pair(from_float<T>(from[0]), from_float<T>(from[1]));
    }
    for (int n = 0; n < D / 8; ++n) {
      const T* v = tile + t.index() % 4 * 2 * kStride + 8 * n + t.index() % kWarp / 4;
      const std::uint32_t b[2] = {pair(v[0], v[kStride]), pair(v[8 * kStride], v[9 * kStride])};
      t.mma(sums[n], a, b, T{});
    }
  }
  /// Row g of the sums, or g + 8, times a factor, to memory.
  template <class Thread>
  static KERNELS_GPU_INLINE void store_row(const Thread& t, const Sums& sums, int half, float factor, bool adds, T* to) {
    for (int n = 0; n < D / 8; ++n) {
      T* at = to + 8 * n + t.index() % 4 * 2;
      const float x = sums[n][2 * half] * factor, y = sums[n][2 * half + 1] * factor;
      *reinterpret_cast<std::uint32_t*>(at) =
          pair(from_float<T>(adds ? to_float(at[0]) + x : x), from_float<T>(adds ? to_float(at[1]) + y : y));
    }
  }
  static KERNELS_GPU_INLINE void clear(Sums& sums) {
    for (int n = 0; n < D / 8; ++n)
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
  }
};

template <class T, int D>
struct TileAttentionKernel {
  static constexpr int kThreads = kTileThreads;
  static constexpr bool kCooperates = true;
  static constexpr int kColumns = kTileKeys / 8;
  using Steps = TileSteps<T, D>;
  AttentionProblem p;  // without bias, masks, positions and window; 16-byte rows
  HeadView o;
  Numbers lse;  // or none

  /// What a lane holds of its warp's 16 queries.
  struct Rows {
    typename Steps::Rows q;
    typename Steps::Sums o;
    float most[2], sum[2];
  };

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t tiles = blocks_of<std::int64_t>(p.q_len, kTileQueries), all = p.batch * p.heads * tiles;
    for (std::int64_t w = t.block(); w < all; w += t.blocks()) {
      const std::int64_t tile = w % tiles, h = w / tiles % p.heads, b = w / tiles / p.heads;
      if (tile * kTileQueries < p.queries(b)) queries(t, b, h, tile * kTileQueries);
    }
  }

 private:
  template <class Thread>
  KERNELS_GPU void queries(const Thread& t, std::int64_t b, std::int64_t h, std::int64_t first) const {
    const std::int64_t count = p.queries(b), keys = p.keys(b), shift = keys - count;
    const std::int64_t row = first + t.index() / kWarp * 16 + t.index() % kWarp / 4;
    Rows r;
    start(t, r, b, h, row);
    const std::int64_t last = smaller_of<std::int64_t>(first + kTileQueries, count) + shift;
    const std::int64_t end = p.causal ? smaller_of(keys, larger_of<std::int64_t>(last, 0)) : keys;
    T *key_tile = t.template shared<T>(), *value_tile = key_tile + kTileKeys * Steps::kStride;
    for (std::int64_t j = 0; j < end; j += kTileKeys) {
      const auto row_of = [&](const HeadView& x) {
        return [this, &x, b, h, j, keys](int i) { return j + i < keys ? p.key<T>(x, b, j + i, h) : nullptr; };
      };
      t.sync();  // all have done with the tile before
      Steps::fill_tile(t, key_tile, row_of(p.k));
      Steps::fill_tile(t, value_tile, row_of(p.v));
      t.sync();
      float s[kColumns][4];
      for (int n = 0; n < kColumns; ++n) Steps::multiply(t, r.q, key_tile + 8 * n * Steps::kStride, s[n]);
      mask(t, s, j, keys, row + shift);
      soften(t, r, s);
      for (int k = 0; k < kTileKeys / 16; ++k)
        Steps::add_rows(t, s + 2 * k, value_tile + 16 * k * Steps::kStride, r.o);
    }
    finish(t, r, b, h, row);
  }

  template <class Thread>
  KERNELS_GPU_INLINE void start(const Thread& t, Rows& r, std::int64_t b, std::int64_t h, std::int64_t row) const {
    for (int half = 0; half < 2; ++half) {
      const bool there = row + 8 * half < p.queries(b);
      Steps::load_row(t, there ? p.query<T>(p.q, b, row + 8 * half, h) : nullptr, half, r.q);
      r.most[half] = -kInfinity;
      r.sum[half] = 0;
    }
    Steps::clear(r.o);
  }

  /// `position`: of the lane's first query among the keys.
  template <class Thread>
  KERNELS_GPU_INLINE void mask(const Thread& t, float (&s)[kColumns][4], std::int64_t first, std::int64_t keys,
                               std::int64_t position) const {
    for (int n = 0; n < kColumns; ++n)
      for (int i = 0; i < 4; ++i) {
        const std::int64_t j = first + 8 * n + t.index() % 4 * 2 + i % 2, at = position + (i >= 2 ? 8 : 0);
        s[n][i] = j < keys && (!p.causal || j <= at) ? s[n][i] * p.scale : -kInfinity;
      }
  }

  /// s becomes e^(s − most); what was summed before shrinks to the new maximum.
  template <class Thread>
  KERNELS_GPU_INLINE void soften(const Thread& t, Rows& r, float (&s)[kColumns][4]) const {
    for (int half = 0; half < 2; ++half) {
      float most = r.most[half];
      for (int n = 0; n < kColumns; ++n) most = larger(most, larger(s[n][2 * half], s[n][2 * half + 1]));
      for (int m = 1; m < 4; m *= 2) most = larger(most, t.shuffle_xor(most, m));
      const float base = most == -kInfinity ? 0.0f : most, shrink = expf(r.most[half] - base);
      r.most[half] = most;
      float sum = 0;
      for (int n = 0; n < kColumns; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          s[n][i] = expf(s[n][i] - base);
          sum += s[n][i];
        }
      r.sum[half] = r.sum[half] * shrink + sum;
      for (int n = 0; n < D / 8; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) r.o[n][i] *= shrink;
    }
  }

  template <class Thread>
  KERNELS_GPU_INLINE void finish(const Thread& t, Rows& r, std::int64_t b, std::int64_t h, std::int64_t row) const {
    for (int half = 0; half < 2; ++half) {
      for (int m = 1; m < 4; m *= 2) r.sum[half] += t.shuffle_xor(r.sum[half], m);
      const std::int64_t i = row + 8 * half;
      if (i >= p.queries(b)) continue;
      const float inverse = r.sum[half] > 0 ? 1.0f / r.sum[half] : 0.0f;
      Steps::store_row(t, r.o, half, inverse, false, p.query<T>(o, b, i, h));
      if (t.index() % 4 == 0 && lse.there())
        lse.set(p.lse_index(b, h, i), r.sum[half] > 0 ? r.most[half] + logf(r.sum[half]) : -kInfinity);
    }
  }
};

using TileAttentionKernels = KernelList<TileAttentionKernel<bf16, 64>, TileAttentionKernel<bf16, 128>,
                                        TileAttentionKernel<f16, 64>, TileAttentionKernel<f16, 128>>;

}  // namespace orrery::kernels::cuda
