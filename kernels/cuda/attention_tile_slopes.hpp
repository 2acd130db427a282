// SPDX-License-Identifier: Apache-2.0
// Gradients of attention on tensor cores: tiles of 64 queries against tiles of 64 keys, in pieces of 16 by 16 whose
// weights are computed again from lse (Dao, "FlashAttention-2", 2023). One pass gives dQ and one dK and dV, so that no
// two blocks add to the same number; a pass before them makes lse exact, which plans keep in 16 bits. Fragments as in
// attention_tile.hpp.
#pragma once

#include "kernels/cuda/attention_slopes.hpp"
#include "kernels/cuda/attention_tile.hpp"

namespace orrery::kernels::cuda {

/// Calls piece(keys, values, j) for 16 keys from j on at a time, of all that one of the 64 queries from `first` on may
/// see. Keys and values are rows in shared memory; values only where they are asked for.
template <class T, int D, bool kValues, class Thread, class F>
KERNELS_GPU_INLINE void over_keys(const Thread& t, const AttentionProblem& p, std::int64_t b, std::int64_t h,
                                  std::int64_t first, F&& piece) {
  using Steps = TileSteps<T, D>;
  const std::int64_t last = smaller_of<std::int64_t>(first + kTileQueries, p.q_len) + p.kv_len - p.q_len;
  const std::int64_t end = p.causal ? smaller_of(p.kv_len, larger_of<std::int64_t>(last, 0)) : p.kv_len;
  T *keys = t.template shared<T>(), *values = keys + kTileKeys * Steps::kStride;
  for (std::int64_t j = 0; j < end; j += kTileKeys) {
    t.sync();  // all have done with the tile before
    Steps::fill_tile(t, keys, [&](int i) { return j + i < p.kv_len ? p.key<T>(p.k, b, j + i, h) : nullptr; });
    if constexpr (kValues)
      Steps::fill_tile(t, values, [&](int i) { return j + i < p.kv_len ? p.key<T>(p.v, b, j + i, h) : nullptr; });
    t.sync();
    for (int k = 0; k < kTileKeys; k += 16) piece(keys + k * Steps::kStride, values + k * Steps::kStride, j + k);
  }
}

/// exact_i = lse_i + ln Σ_j e^(s_ij − lse_i), of a tile of queries per block.
template <class T, int D>
struct TileSumKernel {
  static constexpr int kThreads = kTileThreads;
  static constexpr bool kCooperates = true;
  using Steps = TileSteps<T, D>;
  AttentionProblem p;  // as of TileAttentionKernel
  Numbers lse;
  float* exact;

  static constexpr std::size_t kShared = kTileShared<D>;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t tiles = blocks_of<std::int64_t>(p.q_len, kTileQueries), all = p.batch * p.heads * tiles;
    for (std::int64_t w = t.block(); w < all; w += t.blocks())
      queries(t, w / tiles / p.heads, w / tiles % p.heads, w % tiles * kTileQueries);
  }

 private:
  template <class Thread>
  KERNELS_GPU void queries(const Thread& t, std::int64_t b, std::int64_t h, std::int64_t first) const {
    const std::int64_t row = first + t.index() / kWarp * 16 + t.index() % kWarp / 4, shift = p.kv_len - p.q_len;
    typename Steps::Rows q;
    float known[2], sum[2] = {0, 0};
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = row + 8 * half;
      Steps::load_row(t, i < p.q_len ? p.query<T>(p.q, b, i, h) : nullptr, half, q);
      known[half] = i < p.q_len ? lse.get(p.lse_index(b, h, i)) : -kInfinity;
    }
    over_keys<T, D, false>(t, p, b, h, first, [&](const T* keys, const T*, std::int64_t j) {
      for (int n = 0; n < 2; ++n) {
        float s[4];
        Steps::multiply(t, q, keys + 8 * n * Steps::kStride, s);
        for (int i = 0; i < 4; ++i) {
          const std::int64_t key = j + 8 * n + t.index() % 4 * 2 + i % 2, at = row + shift + (i >= 2 ? 8 : 0);
          if (key < p.kv_len && (!p.causal || key <= at)) sum[i / 2] += weight_of(s[i] * p.scale, known[i / 2]);
        }
      }
    });
    for (int half = 0; half < 2; ++half) {
      for (int m = 1; m < 4; m *= 2) sum[half] += t.shuffle_xor(sum[half], m);
      const std::int64_t i = row + 8 * half;
      if (i < p.q_len && t.index() % 4 == 0)
        exact[p.lse_index(b, h, i)] = sum[half] > 0 ? known[half] + logf(sum[half]) : known[half];
    }
  }
};

/// dQ_i = scale·Σ_j p_ij (dO_i·v_j − δ_i) k_j of a tile of queries per block.
template <class T, int D>
struct TileQuerySlopeKernel {
  static constexpr int kThreads = kTileThreads;
  static constexpr bool kCooperates = true;
  using Steps = TileSteps<T, D>;
  AttentionProblem p;  // as of TileAttentionKernel
  HeadView d_o, dq;
  const float *lse, *delta;
  bool adds;

  static constexpr std::size_t kShared = kTileShared<D>;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t tiles = blocks_of<std::int64_t>(p.q_len, kTileQueries), all = p.batch * p.heads * tiles;
    for (std::int64_t w = t.block(); w < all; w += t.blocks())
      queries(t, w / tiles / p.heads, w / tiles % p.heads, w % tiles * kTileQueries);
  }

 private:
  /// What a lane holds of its warp's 16 queries.
  struct Rows {
    typename Steps::Rows q, gradient;
    typename Steps::Sums sum;
    float lse[2], delta[2];
  };
  template <class Thread>
  KERNELS_GPU void queries(const Thread& t, std::int64_t b, std::int64_t h, std::int64_t first) const {
    const std::int64_t shift = p.kv_len - p.q_len, row = first + t.index() / kWarp * 16 + t.index() % kWarp / 4;
    Rows r;
    start(t, r, b, h, row);
    over_keys<T, D, true>(t, p, b, h, first, [&](const T* keys, const T* values, std::int64_t j) {
      piece(t, r, keys, values, row + shift, j);
    });
    for (int half = 0; half < 2; ++half)
      if (row + 8 * half < p.q_len) Steps::store_row(t, r.sum, half, 1.0f, adds, p.query<T>(dq, b, row + 8 * half, h));
  }
  template <class Thread>
  KERNELS_GPU_INLINE void start(const Thread& t, Rows& r, std::int64_t b, std::int64_t h, std::int64_t row) const {
    for (int half = 0; half < 2; ++half) {
      const std::int64_t i = row + 8 * half;
      const bool there = i < p.q_len;
      Steps::load_row(t, there ? p.query<T>(p.q, b, i, h) : nullptr, half, r.q);
      Steps::load_row(t, there ? p.query<T>(d_o, b, i, h) : nullptr, half, r.gradient);
      r.lse[half] = there ? lse[p.lse_index(b, h, i)] : -kInfinity;  // weights of 0
      r.delta[half] = there ? delta[p.lse_index(b, h, i)] : 0.0f;
    }
    Steps::clear(r.sum);
  }
  /// `position`: of the lane's first query among the keys; `first`: of the piece's first key.
  template <class Thread>
  KERNELS_GPU_INLINE void piece(const Thread& t, Rows& r, const T* keys, const T* values, std::int64_t position,
                                std::int64_t first) const {
    float s[2][4], dp[2][4];
    for (int n = 0; n < 2; ++n) {
      Steps::multiply(t, r.q, keys + 8 * n * Steps::kStride, s[n]);
      Steps::multiply(t, r.gradient, values + 8 * n * Steps::kStride, dp[n]);
      for (int i = 0; i < 4; ++i) {
        const std::int64_t j = first + 8 * n + t.index() % 4 * 2 + i % 2, at = position + (i >= 2 ? 8 : 0);
        const bool seen = j < p.kv_len && (!p.causal || j <= at);
        s[n][i] = seen ? p.scale * weight_of(s[n][i] * p.scale, r.lse[i / 2]) * (dp[n][i] - r.delta[i / 2]) : 0.0f;
      }
    }
    Steps::add_rows(t, s, keys, r.sum);
  }
};

/// dV_j = Σ_i p_ij dO_i and dK_j = scale·Σ_i p_ij (dO_i·v_j − δ_i) q_i of a tile of keys per block, over the queries of
/// all heads that share them.
template <class T, int D>
struct TileKeySlopeKernel {
  static constexpr int kThreads = kTileThreads;
  static constexpr bool kCooperates = true;
  using Steps = TileSteps<T, D>;
  AttentionProblem p;  // as of TileAttentionKernel
  HeadView d_o, dk, dv;
  const float *lse, *delta;
  bool adds_k, adds_v;

  /// Tiles of queries and of their gradients, and lse and δ of the queries.
  static constexpr std::size_t kShared = kTileShared<D> + 2 * kTileQueries * sizeof(float);

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t tiles = blocks_of<std::int64_t>(p.kv_len, kTileKeys), all = p.batch * p.kv_heads * tiles;
    for (std::int64_t w = t.block(); w < all; w += t.blocks())
      keys(t, w / tiles / p.kv_heads, w / tiles % p.kv_heads, w % tiles * kTileKeys);
  }

 private:
  /// What a lane holds of its warp's 16 keys.
  struct Rows {
    typename Steps::Rows k, v;
    typename Steps::Sums sum_k, sum_v;
  };
  template <class Thread>
  KERNELS_GPU void keys(const Thread& t, std::int64_t b, std::int64_t group, std::int64_t first) const {
    const std::int64_t shared_by = p.heads / p.kv_heads, head = group * shared_by, shift = p.kv_len - p.q_len;
    const std::int64_t row = first + t.index() / kWarp * 16 + t.index() % kWarp / 4;
    Rows r;
    for (int half = 0; half < 2; ++half) {
      const bool there = row + 8 * half < p.kv_len;
      Steps::load_row(t, there ? p.key<T>(p.k, b, row + 8 * half, head) : nullptr, half, r.k);
      Steps::load_row(t, there ? p.key<T>(p.v, b, row + 8 * half, head) : nullptr, half, r.v);
    }
    Steps::clear(r.sum_k);
    Steps::clear(r.sum_v);
    // No query before the first that sees a key of the tile adds anything.
    const std::int64_t from = p.causal ? larger_of<std::int64_t>(first - shift, 0) / kTileQueries * kTileQueries : 0;
    for (std::int64_t h = head; h < head + shared_by; ++h)
      for (std::int64_t i = from; i < p.q_len; i += kTileQueries) queries(t, r, b, h, i, row - shift);
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half >= p.kv_len) continue;
      Steps::store_row(t, r.sum_k, half, 1.0f, adds_k, p.key<T>(dk, b, row + 8 * half, head));
      Steps::store_row(t, r.sum_v, half, 1.0f, adds_v, p.key<T>(dv, b, row + 8 * half, head));
    }
  }
  /// What queries i … i + 63 add. `position`: of the lane's first key among the queries.
  template <class Thread>
  KERNELS_GPU_INLINE void queries(const Thread& t, Rows& r, std::int64_t b, std::int64_t h, std::int64_t i,
                                  std::int64_t position) const {
    T *query_tile = t.template shared<T>(), *gradient_tile = query_tile + kTileKeys * Steps::kStride;
    float *lse_of = t.template shared<float>(kTileShared<D>), *delta_of = lse_of + kTileQueries;
    t.sync();  // all have done with the tile before
    Steps::fill_tile(t, query_tile, [&](int n) { return i + n < p.q_len ? p.query<T>(p.q, b, i + n, h) : nullptr; });
    Steps::fill_tile(t, gradient_tile, [&](int n) { return i + n < p.q_len ? p.query<T>(d_o, b, i + n, h) : nullptr; });
    if (const int n = t.index(); n < kTileQueries) {
      const bool there = i + n < p.q_len;
      lse_of[n] = there ? lse[p.lse_index(b, h, i + n)] : -kInfinity;  // weights of 0
      delta_of[n] = there ? delta[p.lse_index(b, h, i + n)] : 0.0f;
    }
    t.sync();
    for (int k = 0; k < kTileQueries; k += 16)
      piece(t, r, query_tile + k * Steps::kStride, gradient_tile + k * Steps::kStride, lse_of + k, delta_of + k,
            position - i - k);
  }
  /// `position`: of the lane's first key, counted from the piece's first query.
  template <class Thread>
  KERNELS_GPU_INLINE void piece(const Thread& t, Rows& r, const T* queries, const T* gradients, const float* lse_of,
                                const float* delta_of, std::int64_t position) const {
    float s[2][4], dp[2][4];
    for (int n = 0; n < 2; ++n) {
      Steps::multiply(t, r.k, queries + 8 * n * Steps::kStride, s[n]);
      Steps::multiply(t, r.v, gradients + 8 * n * Steps::kStride, dp[n]);
      for (int e = 0; e < 4; ++e) {
        const int i = 8 * n + t.index() % 4 * 2 + e % 2;
        const bool seen = !p.causal || position + (e >= 2 ? 8 : 0) <= i;
        s[n][e] = seen ? weight_of(s[n][e] * p.scale, lse_of[i]) : 0.0f;
        dp[n][e] = p.scale * s[n][e] * (dp[n][e] - delta_of[i]);
      }
    }
    Steps::add_rows(t, s, gradients, r.sum_v);
    Steps::add_rows(t, dp, queries, r.sum_k);
  }
};

template <class T, int D>
using TileSlopeKernels = KernelList<TileSumKernel<T, D>, TileQuerySlopeKernel<T, D>, TileKeySlopeKernel<T, D>>;

}  // namespace orrery::kernels::cuda
