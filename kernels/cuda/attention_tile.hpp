// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores: tiles of 128 queries against tiles of 64 keys, which come by cp.async into a ring of three
// slots; scores stay in registers, sums are rescaled as the maximum grows (Dao, "FlashAttention-2", 2023). bf16 and
// f16, heads of up to D numbers, whole 16 bytes: behind them a tile has zeros.
//
// Fragments of mma.m16n8k16 in lane l, with g = l / 4 and p = 2·(l mod 4): A holds rows g and g + 8 at columns p, p +
// 1, p + 8, p + 9; B the rows p, p + 1, p + 8, p + 9 of column g; D rows g and g + 8 at columns p, p + 1. So the D of
// two times eight columns is the A of sixteen. B comes by ldmatrix from tiles that lie as hopper.hpp says.
#pragma once

#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/hopper.hpp"

namespace orrery::kernels::cuda {

/// Rows of a block's tile, and of those that come by the ring.
constexpr int kTileRows = 128, kTileStep = 64;
constexpr int kMostTiledDims = 128;              // numbers of a head
constexpr float kLog2OfE = 1.4426950408889634f;  // e^x = 2^(x·log₂e)

/// How many keys queries see, from some query on: of(r) the one r behind it, none where it is below 1.
struct Sight {
  int end, own;

  KERNELS_GPU_INLINE Sight(const AttentionProblem& p, std::int64_t query)
      : end{static_cast<int>(p.kv_len)}, own{static_cast<int>(p.causal ? query + 1 + p.kv_len - p.q_len : p.kv_len)} {}
  KERNELS_GPU_INLINE int of(int r) const { return smaller_of(end, own + r); }
};

/// A tile of queries, and how many tiles of keys it sees.
struct QueryTile {
  std::int64_t b, h, first;
  int steps;
};
constexpr std::int64_t query_tiles(const AttentionProblem& p, int rows) {
  return p.batch * p.heads * blocks_of<std::int64_t>(p.q_len, rows);
}
/// Number w of them. Longest first where queries see only what is before them; heads that share keys run side by side.
KERNELS_GPU_INLINE QueryTile query_tile(const AttentionProblem& p, std::int64_t w, int rows, int keys) {
  const std::int64_t tiles = blocks_of<std::int64_t>(p.q_len, rows), above = w / tiles;
  const std::int64_t first = (p.causal ? tiles - 1 - w % tiles : w % tiles) * rows;
  const int seen = Sight{p, smaller_of(first + rows, p.q_len) - 1}.of(0);
  return {above / p.heads, above % p.heads, first, blocks_of(larger_of(seen, 0), keys)};
}

/// Of a lane's part of 16 rows of scores, columns from `end` on become −∞, and those that lie behind what a row sees:
/// row g the first `seen`, and g + 8 as many more.
template <int C, class Thread>
KERNELS_GPU_INLINE void hide_behind(const Thread& t, float (&s)[C][4], int end, int seen) {
  const int column = t.index() % 4 * 2;
  repeat<2>([&](int half) {
    const int left = smaller_of(end, seen + 8 * half) - column;
    repeat<C>([&](int n) {
      repeat<2>([&](int i) {
        if (8 * n + i >= left) s[n][2 * half + i] = -kInfinity;
      });
    });
  });
}
/// s becomes 2^(unit·(s − most)), unit being above 0; sums of smaller maxima have to be multiplied by `shrink`.
template <int C, class Thread>
KERNELS_GPU_INLINE void soften(const Thread& t, float (&s)[C][4], float unit, float (&most)[2], float (&sum)[2],
                               float (&shrink)[2]) {
  repeat<2>([&](int half) {
    float top = most[half];
    repeat<C>([&](int n) { top = larger(top, larger(s[n][2 * half], s[n][2 * half + 1])); });
    for (int m = 1; m < 4; m *= 2) top = larger(top, t.shuffle_xor(top, m));
    const float base = top == -kInfinity ? 0.0f : top * unit;
    shrink[half] = quick_exp2(most[half] * unit - base);
    most[half] = top;
    float more = 0;
    repeat<C>([&](int n) {
      repeat<2>([&](int i) {
        s[n][2 * half + i] = quick_exp2(s[n][2 * half + i] * unit - base);
        more += s[n][2 * half + i];
      });
    });
    sum[half] = sum[half] * shrink[half] + more;
  });
}
/// Columns 16·k … 16·k + 15 of a lane's part of a D, as A.
template <class T, int C>
KERNELS_GPU_INLINE void pack_columns(const float (&s)[C][4], int k, std::uint32_t (&a)[4]) {
  repeat<4>([&](int i) {
    const float* from = s[2 * k + i / 2] + i % 2 * 2;
    a[i] = rounded_pair<T>(from[0], from[1]);
  });
}

/// What kernels do with rows of heads and tiles of them. A warp has kHigh times 16 rows of the block's.
template <class T, int D>
struct TileSteps {
  static constexpr int kHigh = D <= 64 ? 2 : 1, kWarpRows = 16 * kHigh, kThreads = kTileRows / kWarpRows * kWarp;
  static constexpr int kSlots = 3, kPanels = blocks_of(D, 64);
  static constexpr std::uint32_t kTileBytes = kPanels * kTileStep * kPanelRow;
  using Rows = std::uint32_t[kHigh][D / 16][4];  // as A
  using Part = std::uint32_t[kHigh][1][4];       // sixteen columns of them
  using Sums = float[kHigh][D / 8][4];           // as D

  template <class Thread>
  static KERNELS_GPU_INLINE int warp_row(const Thread& t) {
    return t.index() / kWarp * kWarpRows;
  }
  /// f(i, half, row) for each row of the warp that the lane has a part of.
  template <class Thread, class F>
  static KERNELS_GPU_INLINE void each_row(const Thread& t, F&& f) {
    repeat<kHigh>([&](int i) {
      repeat<2>([&](int half) { f(i, half, warp_row(t) + 16 * i + 8 * half + t.index() % kWarp / 4); });
    });
  }
  static KERNELS_GPU_INLINE void clear(Sums& sums) {
    repeat<kHigh>([&](int i) { repeat<D / 8>([&](int n) { repeat<4>([&](int x) { sums[i][n][x] = 0; }); }); });
  }

  /// from(row) of the block's rows, `dim` numbers each; zeros for null.
  template <class Thread, class F>
  static KERNELS_GPU_INLINE void load_rows(const Thread& t, std::int64_t dim, Rows& rows, F&& from) {
    each_row(t, [&](int i, int half, int row) {
      const T* x = from(row);
      repeat<D / 8>([&](int n) {
        rows[i][n / 2][n % 2 * 2 + half] =
            x && 8 * n < dim ? *reinterpret_cast<const std::uint32_t*>(x + 8 * n + t.index() % 4 * 2) : 0;
      });
    });
  }
  /// The sums times factor(i, half) to to(row), nowhere for null.
  template <class Thread, class G, class F>
  static KERNELS_GPU_INLINE void store_rows(const Thread& t, const Sums& sums, std::int64_t dim, bool adds, G&& factor,
                                            F&& to) {
    each_row(t, [&](int i, int half, int row) {
      T* const x = to(row);
      if (!x) return;
      const float by = factor(i, half);
      repeat<D / 8>([&](int n) {
        if (8 * n >= dim) return;
        T* const at = x + 8 * n + t.index() % 4 * 2;
        const float low = sums[i][n][2 * half] * by, high = sums[i][n][2 * half + 1] * by;
        *reinterpret_cast<std::uint32_t*>(at) =
            rounded_pair<T>(adds ? to_float(at[0]) + low : low, adds ? to_float(at[1]) + high : high);
      });
    });
  }

  /// ROWS rows from `first` on of a head, zeros behind `end` and behind `dim`, on their way into a tile; by THREADS
  /// threads that follow one another.
  template <int ROWS, int THREADS, class Thread>
  static KERNELS_GPU_INLINE void copy_rows(const Thread& t, const T* head, std::int64_t stride, int first, int end,
                                           std::int64_t dim, std::uint32_t tile) {
    constexpr int kChunks = 8 * kPanels, kEach = THREADS / kChunks;
    const int thread = t.index() % THREADS, chunk = thread % kChunks, left = 8 * chunk < dim ? end - first : 0;
    if (8 * chunk >= D) return;
    const T* from = head + (first + thread / kChunks) * stride + 8 * chunk;
    for (int r = thread / kChunks; r < ROWS; r += kEach, from += kEach * stride) {
      const bool there = r < left;
      t.copy_async(tile + chunk_at<ROWS>(static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(chunk)),
                   there ? from : head, there);
    }
  }
  /// use(keys, values, j): the tiles from key j on, for each that one of the queries may see.
  template <class Thread, class F>
  static KERNELS_GPU_INLINE void over_keys(const Thread& t, const AttentionProblem& p, const QueryTile& tile, F&& use) {
    const T *keys = p.key<T>(p.k, tile.b, 0, tile.h), *values = p.key<T>(p.v, tile.b, 0, tile.h);
    over_ring<kSlots>(
        t, tile.steps, t.shared_base(), 2 * kTileBytes,
        [&](int step, std::uint32_t to) {
          const int j = step * kTileStep, end = static_cast<int>(p.kv_len);
          copy_rows<kTileStep, kThreads>(t, keys, p.k.token, j, end, p.qk_dim, to);
          copy_rows<kTileStep, kThreads>(t, values, p.v.token, j, end, p.v_dim, to + kTileBytes);
        },
        [&](int step, std::uint32_t slot) { use(slot, slot + kTileBytes, step * kTileStep); });
  }
  /// What the warp's queries see; nothing where they are not there.
  template <class Thread>
  static KERNELS_GPU_INLINE Sight sight(const Thread& t, const AttentionProblem& p, const QueryTile& tile) {
    const std::int64_t first = tile.first + warp_row(t);
    Sight of{p, first};
    if (first >= p.q_len) of.end = 0;
    return of;
  }
  /// Scores of the keys from j on.
  template <int C, class Thread>
  static KERNELS_GPU_INLINE void hide_unseen(const Thread& t, float (&s)[kHigh][C][4], const Sight& sight, int j) {
    if (j + 8 * C <= sight.of(0)) return;
    repeat<kHigh>([&](int i) { hide_behind(t, s[i], sight.end - j, sight.own - j + 16 * i + t.index() % kWarp / 4); });
  }
  /// The tile's rows from a multiple of eight on.
  static KERNELS_GPU_INLINE std::uint32_t from_row(std::uint32_t tile, int row) {
    return tile + static_cast<std::uint32_t>(row) * kPanelRow;
  }

  /// Numbers 16·k … 16·k + 15 of the warp's rows, from a tile of the block's rows.
  template <class Thread>
  static KERNELS_GPU_INLINE void load_part(const Thread& t, std::uint32_t tile, int k, Part& part) {
    const int lane = t.index() % kWarp;
    const std::uint32_t first = tile + at<kTileRows>(warp_row(t) + lane % 16, lane / 16);
    repeat<kHigh>(
        [&](int i) { t.template load_matrices<false>(part[i][0], from_row(number_of<kTileRows>(first, k), 16 * i)); });
  }
  /// d += numbers 16·k … 16·k + 15 of rows·(8·C rows of a tile)ᵀ; of the left rows all numbers, or these.
  template <int C, int K, class Thread>
  static KERNELS_GPU_INLINE void add_part(const Thread& t, const std::uint32_t (&rows)[kHigh][K][4], int k,
                                          std::uint32_t tile, float (&d)[kHigh][C][4]) {
    const int lane = t.index() % kWarp;
    const std::uint32_t first = number_of<kTileStep>(tile + at<kTileStep>(lane % 8 + lane / 16 * 8, lane / 8 % 2), k);
    repeat<C / 2>([&](int j) {
      std::uint32_t r[4];
      t.template load_matrices<false>(r, from_row(first, 16 * j));
      multiply(t, rows, k % K, r, d, j);
    });
  }
  /// sums += x·(16 rows of a tile), x being 16 columns.
  template <class Thread>
  static KERNELS_GPU_INLINE void add_rows(const Thread& t, const Part& x, std::uint32_t tile, Sums& sums) {
    const int lane = t.index() % kWarp;
    const std::uint32_t first = tile + at<kTileStep>(lane % 16, lane / 16);
    repeat<D / 16>([&](int j) {
      std::uint32_t r[4];
      t.template load_matrices<true>(r, number_of<kTileStep>(first, j));
      multiply(t, x, 0, r, sums, j);
    });
  }

 private:
  template <int ROWS>
  static KERNELS_GPU_INLINE std::uint32_t at(int row, int chunk) {
    return chunk_at<ROWS>(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(chunk));
  }
  /// From the place of a row's chunk 0 or 1 to that of numbers 16·k on: tiles begin at multiples of 128 bytes.
  template <int ROWS>
  static KERNELS_GPU_INLINE std::uint32_t number_of(std::uint32_t place, int k) {
    return (place ^ at<ROWS>(0, 2 * k % 8)) + at<ROWS>(0, k / 4 * 8);
  }
  /// Columns 16·j … 16·j + 15 of d, of which b holds two B.
  template <int K, int C, class Thread>
  static KERNELS_GPU_INLINE void multiply(const Thread& t, const std::uint32_t (&a)[kHigh][K][4], int k,
                                          const std::uint32_t (&b)[4], float (&d)[kHigh][C][4], int j) {
    const std::uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    repeat<kHigh>([&](int i) {
      t.mma(d[i][2 * j], a[i][k], low, T{});
      t.mma(d[i][2 * j + 1], a[i][k], high, T{});
    });
  }
};

template <class T, int D>
struct TileAttentionKernel {
  using Steps = TileSteps<T, D>;
  static constexpr int kThreads = Steps::kThreads;
  static constexpr bool kCooperates = true;
  static constexpr std::size_t kShared = Steps::kSlots * 2 * Steps::kTileBytes;
  AttentionProblem p;  // without bias, masks, positions, window and unequal lengths; 16-byte rows; scale above 0
  HeadView o;
  Numbers lse;  // or none

  constexpr std::int64_t tiles() const { return query_tiles(p, kTileRows); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks()) queries(t, query_tile(p, w, kTileRows, kTileStep));
  }

 private:
  static constexpr int kHigh = Steps::kHigh, kColumns = kTileStep / 8;
  /// What a lane holds of its warp's queries.
  struct Rows {
    typename Steps::Rows q;
    typename Steps::Sums o;
    float most[kHigh][2], sum[kHigh][2];
  };

  template <class Thread>
  KERNELS_GPU_INLINE void queries(const Thread& t, const QueryTile& tile) const {
    Rows r;
    Steps::load_rows(t, p.qk_dim, r.q, [&](int row) {
      return tile.first + row < p.q_len ? p.query<T>(p.q, tile.b, tile.first + row, tile.h) : nullptr;
    });
    Steps::clear(r.o);
    Steps::each_row(t, [&](int i, int half, int) {
      r.most[i][half] = -kInfinity;
      r.sum[i][half] = 0;
    });
    const Sight sight = Steps::sight(t, p, tile);
    Steps::over_keys(t, p, tile, [&](std::uint32_t keys, std::uint32_t values, int j) {
      if (j < sight.of(Steps::kWarpRows - 1)) step(t, r, keys, values, sight, j);
    });
    finish(t, r, tile);
  }
  /// What the keys from j on add; `sight`: of the warp's queries.
  template <class Thread>
  KERNELS_GPU_INLINE void step(const Thread& t, Rows& r, std::uint32_t keys, std::uint32_t values, const Sight& sight,
                               int j) const {
    float s[kHigh][kColumns][4] = {};
    repeat<D / 16>([&](int k) { Steps::add_part(t, r.q, k, keys, s); });
    Steps::hide_unseen(t, s, sight, j);
    repeat<kHigh>([&](int i) {
      float shrink[2];
      soften(t, s[i], p.scale * kLog2OfE, r.most[i], r.sum[i], shrink);
      repeat<D / 8>([&](int n) { repeat<4>([&](int x) { r.o[i][n][x] *= shrink[x / 2]; }); });
    });
    repeat<kTileStep / 16>([&](int k) {
      typename Steps::Part weights;
      repeat<kHigh>([&](int i) { pack_columns<T>(s[i], k, weights[i][0]); });
      Steps::add_rows(t, weights, Steps::from_row(values, 16 * k), r.o);
    });
  }

  template <class Thread>
  KERNELS_GPU_INLINE void finish(const Thread& t, Rows& r, const QueryTile& tile) const {
    Steps::each_row(t, [&](int i, int half, int row) {
      float& sum = r.sum[i][half];
      for (int m = 1; m < 4; m *= 2) sum += t.shuffle_xor(sum, m);
      if (tile.first + row < p.q_len && t.index() % 4 == 0 && lse.there())
        lse.set(p.lse_index(tile.b, tile.h, tile.first + row),
                sum > 0 ? r.most[i][half] * p.scale + logf(sum) : -kInfinity);
    });
    Steps::store_rows(
        t, r.o, p.v_dim, false, [&](int i, int half) { return r.sum[i][half] > 0 ? 1.0f / r.sum[i][half] : 0.0f; },
        [&](int row) {
          return tile.first + row < p.q_len ? p.query<T>(o, tile.b, tile.first + row, tile.h) : nullptr;
        });
  }
};

}  // namespace orrery::kernels::cuda
