// SPDX-License-Identifier: Apache-2.0
// Gradients of attention on tensor cores, in pieces whose weights are computed again from lse (Dao, "FlashAttention-2",
// 2023). One pass gives dQ, and the other dK and dV, so that no two blocks add to the same number. Plans keep lse in 16
// bits: the first pass divides by the sum of the weights that come of it, and leaves an exact one for the second.
// Tiles and fragments as in attention_tile.hpp.
#pragma once

#include "kernels/cuda/attention_slopes.hpp"
#include "kernels/cuda/attention_tile.hpp"

namespace orrery::kernels::cuda {

/// dQ_i = scale·Σ_j p_ij (dO_i·v_j − δ_i) k_j of a tile of queries per block, p_ij = e^(s_ij − lse_i) / Σ_j e^(s_ij −
/// lse_i).
template <class T, int D>
struct TileQuerySlopeKernel {
  using Steps = TileSteps<T, D>;
  static constexpr int kThreads = Steps::kThreads;
  static constexpr bool kCooperates = true;
  static constexpr std::size_t kShared = Steps::kSlots * 2 * Steps::kTileBytes;
  AttentionProblem p;  // as of TileAttentionKernel
  HeadView d_o, dq;
  Numbers lse;
  const float* delta;
  float* level;  // log₂ Σ_j e^s_ij; +∞ of a query that sees no key, for weights of 0
  bool adds;

  constexpr std::int64_t tiles() const { return query_tiles(p, kTileRows); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks()) queries(t, query_tile(p, w, kTileRows, kTileStep));
  }

 private:
  static constexpr int kHigh = Steps::kHigh, kPiece = 32 / kHigh;
  /// What a lane holds of its warp's queries.
  struct Rows {
    typename Steps::Rows q, gradient;
    typename Steps::Sums dq;
    float level[kHigh][2], delta[kHigh][2], sum[kHigh][2];
  };

  template <class Thread>
  KERNELS_GPU_INLINE void queries(const Thread& t, const QueryTile& tile) const {
    Rows r;
    start(t, r, tile);
    const Sight sight = Steps::sight(t, p, tile);
    Steps::over_keys(t, p, tile, [&](std::uint32_t keys, std::uint32_t values, int j) {
      for (int k = 0; k < kTileStep && j + k < sight.of(Steps::kWarpRows - 1); k += kPiece)
        piece(t, r, Steps::from_row(keys, k), Steps::from_row(values, k), sight, j + k);
    });
    finish(t, r, tile);
  }
  template <class Thread>
  KERNELS_GPU_INLINE void start(const Thread& t, Rows& r, const QueryTile& tile) const {
    const auto load = [&](const HeadView& x, typename Steps::Rows& to) {
      Steps::load_rows(t, p.qk_dim, to, [&](int row) {
        return tile.first + row < p.q_len ? p.query<T>(x, tile.b, tile.first + row, tile.h) : nullptr;
      });
    };
    load(p.q, r.q);
    load(d_o, r.gradient);
    Steps::clear(r.dq);
    Steps::each_row(t, [&](int i, int half, int row) {
      const bool there = tile.first + row < p.q_len;
      const std::int64_t at = p.lse_index(tile.b, tile.h, tile.first + row);
      const float known = there ? lse.get(at) : -kInfinity;
      r.level[i][half] = known == -kInfinity ? kInfinity : known * kLog2OfE;
      r.delta[i][half] = there ? delta[at] : 0.0f;
      r.sum[i][half] = 0;
    });
  }
  /// What the keys from j on add; `sight`: of the warp's queries.
  template <class Thread>
  KERNELS_GPU_INLINE void piece(const Thread& t, Rows& r, std::uint32_t keys, std::uint32_t values, const Sight& sight,
                                int j) const {
    float s[kHigh][kPiece / 8][4] = {}, dp[kHigh][kPiece / 8][4];
    repeat<kHigh>([&](int i) {
      repeat<kPiece / 8>([&](int n) { repeat<4>([&](int x) { dp[i][n][x] = -r.delta[i][x / 2]; }); });
    });
    repeat<D / 16>([&](int k) {
      Steps::add_part(t, r.q, k, keys, s);
      Steps::add_part(t, r.gradient, k, values, dp);
    });
    const float unit = p.scale * kLog2OfE;
    Steps::hide_unseen(t, s, sight, j);
    repeat<kHigh>([&](int i) {
      repeat<kPiece / 8>([&](int n) {
        repeat<4>([&](int x) {
          const float weight = quick_exp2(s[i][n][x] * unit - r.level[i][x / 2]);
          r.sum[i][x / 2] += weight;
          s[i][n][x] = weight * dp[i][n][x];
        });
      });
    });
    repeat<kPiece / 16>([&](int k) {
      typename Steps::Part slopes;
      repeat<kHigh>([&](int i) { pack_columns<T>(s[i], k, slopes[i][0]); });
      Steps::add_rows(t, slopes, Steps::from_row(keys, 16 * k), r.dq);
    });
  }
  template <class Thread>
  KERNELS_GPU_INLINE void finish(const Thread& t, Rows& r, const QueryTile& tile) const {
    Steps::each_row(t, [&](int i, int half, int row) {
      float& sum = r.sum[i][half];
      for (int m = 1; m < 4; m *= 2) sum += t.shuffle_xor(sum, m);
      if (tile.first + row < p.q_len && t.index() % 4 == 0)
        level[p.lse_index(tile.b, tile.h, tile.first + row)] = sum > 0 ? r.level[i][half] + log2f(sum) : kInfinity;
    });
    Steps::store_rows(
        t, r.dq, p.qk_dim, adds, [&](int i, int half) { return r.sum[i][half] > 0 ? p.scale / r.sum[i][half] : 0.0f; },
        [&](int row) {
          return tile.first + row < p.q_len ? p.query<T>(dq, tile.b, tile.first + row, tile.h) : nullptr;
        });
  }
};

/// dV_j = Σ_i p_ij dO_i and dK_j = scale·Σ_i p_ij (dO_i·v_j − δ_i) q_i of a tile of keys per block, over the queries of
/// all heads that share them. Scores have keys as rows.
template <class T, int D>
struct TileKeySlopeKernel {
  using Steps = TileSteps<T, D>;
  static constexpr int kThreads = Steps::kThreads;
  static constexpr bool kCooperates = true;
  /// Values of the block's keys; then slots of queries, their gradients, levels and δ.
  static constexpr std::uint32_t kRing = Steps::kTileBytes / kTileStep * kTileRows, kLevels = 2 * Steps::kTileBytes,
                                 kSlotBytes = kLevels + 2 * kTileStep * sizeof(float);
  static constexpr std::size_t kShared = kRing + Steps::kSlots * kSlotBytes;
  AttentionProblem p;  // as of TileAttentionKernel
  HeadView d_o, dk, dv;
  const float *level, *delta;
  bool adds_k, adds_v;

  constexpr std::int64_t tiles() const { return p.batch * p.kv_heads * blocks_of<std::int64_t>(p.kv_len, kTileRows); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t in_head = blocks_of<std::int64_t>(p.kv_len, kTileRows), shared_by = p.heads / p.kv_heads;
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks()) {
      const std::int64_t above = w / in_head, h = above % p.kv_heads * shared_by, first = w % in_head * kTileRows;
      keys(t, {static_cast<int>(above / p.kv_heads), static_cast<int>(h), static_cast<int>(first)});
    }
  }

 private:
  static constexpr int kHigh = Steps::kHigh, kPiece = 32 / kHigh;
  /// `h`: of the first head that shares the keys.
  struct KeyTile {
    int b, h, first;
  };
  /// What a lane holds of its warp's keys.
  struct Rows {
    typename Steps::Rows k;
    typename Steps::Sums dk, dv;
  };
  /// A tile of queries of a head. They begin with the first that sees a key of the block's.
  struct Place {
    int h, i;
  };
  KERNELS_GPU_INLINE void go_on(Place& at, int begin) const {
    at.i += kTileStep;
    if (at.i < p.q_len) return;
    at.i = begin;
    ++at.h;
  }

  template <class Thread>
  KERNELS_GPU_INLINE void keys(const Thread& t, const KeyTile& tile) const {
    const auto row_of = [&](const HeadView& x) {
      return [&tile, &x, this](int row) {
        return tile.first + row < p.kv_len ? p.key<T>(x, tile.b, tile.first + row, tile.h) : nullptr;
      };
    };
    Rows r;
    Steps::load_rows(t, p.qk_dim, r.k, row_of(p.k));
    Steps::template copy_rows<kTileRows, kThreads>(t, p.key<T>(p.v, tile.b, 0, tile.h), p.v.token, tile.first,
                                                   static_cast<int>(p.kv_len), p.v_dim, t.shared_base());
    Steps::clear(r.dk);
    Steps::clear(r.dv);
    const int shift = static_cast<int>(p.kv_len - p.q_len), first = tile.first + Steps::warp_row(t);
    const int begin = p.causal ? larger_of(tile.first - shift, 0) / kTileStep * kTileStep : 0;
    const int steps = blocks_of(static_cast<int>(p.q_len) - begin, kTileStep) * static_cast<int>(p.heads / p.kv_heads);
    Place coming{tile.h, begin}, here = coming;
    over_ring<Steps::kSlots>(
        t, steps, t.shared_base() + kRing, kSlotBytes,
        [&](int, std::uint32_t to) {
          fetch(t, tile.b, coming, to);
          go_on(coming, begin);
        },
        [&](int, std::uint32_t slot) {
          if (first < p.kv_len) queries(t, r, slot, here.i, first - shift);
          go_on(here, begin);
        });
    Steps::store_rows(
        t, r.dk, p.qk_dim, adds_k, [&](int, int) { return p.scale; }, row_of(dk));
    Steps::store_rows(
        t, r.dv, p.v_dim, adds_v, [&](int, int) { return 1.0f; }, row_of(dv));
  }
  /// Queries that are not there have gradients of 0, and so add nothing.
  template <class Thread>
  KERNELS_GPU_INLINE void fetch(const Thread& t, std::int64_t b, const Place& at, std::uint32_t to) const {
    Steps::template copy_rows<kTileStep, kThreads>(t, p.query<T>(p.q, b, 0, at.h), p.q.token, at.i,
                                                   static_cast<int>(p.q_len), p.qk_dim, to);
    Steps::template copy_rows<kTileStep, kThreads>(t, p.query<T>(d_o, b, 0, at.h), d_o.token, at.i,
                                                   static_cast<int>(p.q_len), p.v_dim, to + Steps::kTileBytes);
    const int n = t.index() % kTileStep;
    const bool there = at.i + n < p.q_len;
    const float* from = (t.index() < kTileStep ? level : delta) + p.lse_index(b, at.h, there ? at.i + n : 0);
    if (t.index() < 2 * kTileStep)
      t.copy_word_async(to + kLevels + static_cast<std::uint32_t>(t.index()) * sizeof(float), from, there);
  }
  /// What queries i … i + 63 add. `sees`: the first query that sees the warp's first key.
  template <class Thread>
  KERNELS_GPU_INLINE void queries(const Thread& t, Rows& r, std::uint32_t slot, int i, int sees) const {
    const float* levels = t.template shared<float>(slot - t.shared_base() + kLevels);
    for (int k = 0; k < kTileStep && i + k < p.q_len; k += kPiece) {
      if (p.causal && i + k + kPiece <= sees) continue;
      const bool whole = !p.causal || i + k >= sees + Steps::kWarpRows - 1;
      piece(t, r, Steps::from_row(slot, k), levels + k, whole, sees - i - k);
    }
  }
  /// Levels of the piece's queries have their δ 64 numbers further on. `sees`: counted from the piece's first query.
  template <class Thread>
  KERNELS_GPU_INLINE void piece(const Thread& t, Rows& r, std::uint32_t queries, const float* levels, bool whole,
                                int sees) const {
    const std::uint32_t gradients = queries + Steps::kTileBytes;
    const float* at = levels + t.index() % 4 * 2;  // of the lane's first column
    float s[kHigh][kPiece / 8][4] = {}, dp[kHigh][kPiece / 8][4];
    repeat<kHigh>([&](int i) {
      repeat<kPiece / 8>([&](int n) { repeat<4>([&](int x) { dp[i][n][x] = -at[kTileStep + 8 * n + x % 2]; }); });
    });
    repeat<D / 16>([&](int k) {
      Steps::add_part(t, r.k, k, queries, s);
      typename Steps::Part values;
      Steps::load_part(t, t.shared_base(), k, values);
      Steps::add_part(t, values, k, gradients, dp);
    });
    const float unit = p.scale * kLog2OfE;
    repeat<kHigh>([&](int i) {
      const int first = sees + 16 * i + t.index() % kWarp / 4;  // that sees the lane's row
      repeat<kPiece / 8>([&](int n) {
        repeat<4>([&](int x) {
          const int query = 8 * n + t.index() % 4 * 2 + x % 2;
          const float log = s[i][n][x] * unit - at[8 * n + x % 2];
          s[i][n][x] = quick_exp2(whole || query >= first + x / 2 * 8 ? log : -kInfinity);
          dp[i][n][x] *= s[i][n][x];
        });
      });
    });
    repeat<kPiece / 16>([&](int k) {
      typename Steps::Part weights, slopes;
      repeat<kHigh>([&](int i) {
        pack_columns<T>(s[i], k, weights[i][0]);
        pack_columns<T>(dp[i], k, slopes[i][0]);
      });
      Steps::add_rows(t, weights, Steps::from_row(gradients, 16 * k), r.dv);
      Steps::add_rows(t, slopes, Steps::from_row(queries, 16 * k), r.dk);
    });
  }
};

template <class T, int D>
using AttentionTileKernels =
    KernelList<TileAttentionKernel<T, D>, TileQuerySlopeKernel<T, D>, TileKeySlopeKernel<T, D>>;

template <class F>
void for_each_attention_tile_list(F&& f) {
  f(AttentionTileKernels<bf16, 64>{});
  f(AttentionTileKernels<bf16, 96>{});
  f(AttentionTileKernels<bf16, 128>{});
  f(AttentionTileKernels<f16, 64>{});
  f(AttentionTileKernels<f16, 96>{});
  f(AttentionTileKernels<f16, 128>{});
}
/// f(D) for the narrowest of these that hold heads of so many numbers.
template <class F>
void in_narrowest_tiles(std::int64_t dim, F&& f) {
  if (dim <= 64) return f(std::integral_constant<int, 64>{});
  if (dim <= 96) return f(std::integral_constant<int, 96>{});
  f(std::integral_constant<int, kMostTiledDims>{});
}

}  // namespace orrery::kernels::cuda
