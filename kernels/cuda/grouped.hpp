// SPDX-License-Identifier: Apache-2.0
// One product per group of consecutive rows. Where groups begin is known on the device only, so that no product
// library which asks the host for sizes can do it without a wait. Tiles of 64×64, on tensor cores in 16 and 8 bits.
#pragma once

#include "kernels/cuda/eight_bit.hpp"

namespace orrery::kernels::cuda {

/// Element (i, j) of a matrix of a group is at group·each + i·row + j·col.
struct GroupMatrix {
  std::int64_t each = 0, row = 0, col = 0;
};

constexpr int kGroupedTile = 64, kGroupedDepth = 32, kGroupedRoom = kGroupedDepth + 8;

/// Y = X·W, dX = dY·Wᵀ: rows of a group times its matrix. dW = Xᵀ·dY (`sums_rows`): a matrix per group, over its rows.
/// B's numbers may be of another type where T has 8 bits; Out is T, or float. A block per tile.
template <class T, class Out, class B = T>
struct GroupedProductKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  std::int64_t groups, rows, m, n, k;  // rows that there is room for; m and k: those of a group, unless they are rows
  const std::int32_t* offsets;
  const T* a;
  const B* b;
  Out* c;
  GroupMatrix a_at, b_at, c_at;  // `each` 0: rows follow one another over the groups
  bool sums_rows, adds;
  const float *scale_a = nullptr, *scale_b = nullptr;  // what numbers of 8 bits stand for; none: 1

  static constexpr std::size_t kShared = 2 * kGroupedTile * kGroupedRoom * sizeof(T);

  /// As many tiles as there can be.
  constexpr std::int64_t tiles() const {
    const std::int64_t across = blocks_of<std::int64_t>(n, kGroupedTile);
    return across * (sums_rows ? groups * blocks_of<std::int64_t>(m, kGroupedTile)
                               : blocks_of<std::int64_t>(rows, kGroupedTile) + groups);
  }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t across = blocks_of<std::int64_t>(n, kGroupedTile);
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks()) {
      Tile tile;
      if (find(w / across, tile)) {
        tile.col = w % across * kGroupedTile;
        product(t, tile);
      }
    }
  }

 private:
  struct Tile {
    std::int64_t group, first, rows, row, col;  // rows of the group; where the tile begins in it
    float sum[32];
  };
  /// The tile of a number: those of group 0 come first.
  KERNELS_GPU_INLINE bool find(std::int64_t at, Tile& tile) const {
    if (sums_rows) {
      const std::int64_t down = blocks_of<std::int64_t>(m, kGroupedTile);
      tile.group = at / down;
      tile.row = at % down * kGroupedTile;
      tile.first = offsets[tile.group];
      tile.rows = offsets[tile.group + 1] - tile.first;
      return true;
    }
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t n_rows = offsets[g + 1] - offsets[g], down = blocks_of<std::int64_t>(n_rows, kGroupedTile);
      if (at < down) {
        tile.group = g;
        tile.first = offsets[g];
        tile.rows = n_rows;
        tile.row = at * kGroupedTile;
        return true;
      }
      at -= down;
    }
    return false;
  }
  /// Where element (i, j) of a matrix of the tile's group lies; rows that run over the groups begin at its first one.
  KERNELS_GPU_INLINE std::int64_t place(const GroupMatrix& x, const Tile& tile, std::int64_t i, std::int64_t j,
                                        std::int64_t skip_row, std::int64_t skip_col) const {
    return tile.group * x.each + (i + skip_row) * x.row + (j + skip_col) * x.col;
  }

  template <class Thread>
  KERNELS_GPU void product(const Thread& t, Tile& tile) const {
    T* left = t.template shared<T>();
    B* right = t.template shared<B>(kGroupedTile * kGroupedRoom * sizeof(T));
    for (float& x : tile.sum) x = 0;
    const std::int64_t depth = sums_rows ? tile.rows : k, height = sums_rows ? m : tile.rows;
    for (std::int64_t at = 0; at < depth; at += kGroupedDepth) {
      for (int w = t.index(); w < kGroupedTile * kGroupedDepth; w += kThreads) {
        const int i = a_at.col == 1 ? w / kGroupedDepth : w % kGroupedTile,
                  p = a_at.col == 1 ? w % kGroupedDepth : w / kGroupedTile;
        const bool in = tile.row + i < height && at + p < depth;
        left[i * kGroupedRoom + p] =
            in ? a[place(a_at, tile, tile.row + i, at + p, sums_rows ? 0 : tile.first, sums_rows ? tile.first : 0)]
               : T{};
        const int j = b_at.row == 1 ? w / kGroupedDepth : w % kGroupedTile,
                  q = b_at.row == 1 ? w % kGroupedDepth : w / kGroupedTile;
        const bool there = tile.col + j < n && at + q < depth;
        right[j * kGroupedRoom + q] =
            there ? b[place(b_at, tile, at + q, tile.col + j, sums_rows ? tile.first : 0, 0)] : B{};
      }
      t.sync();
      add_step(t, left, right, tile);
      t.sync();
    }
    store(t, tile, height);
  }
  /// Which element of the tile number x of a thread's sums is. Tensor cores: 16 rows per warp, 8 products of 8 columns;
  /// else 8 rows of 4 columns.
  static KERNELS_GPU_INLINE int row_of(int thread, int x) {
    if constexpr (sizeof(T) <= 2) return thread / kWarp * 16 + thread % kWarp / 4 + (x % 4 >= 2 ? 8 : 0);
    return thread / 16 * 8 + x / 4;
  }
  static KERNELS_GPU_INLINE int col_of(int thread, int x) {
    if constexpr (sizeof(T) <= 2) return x / 4 * 8 + 2 * (thread % 4) + x % 2;
    return thread % 16 * 4 + x % 4;
  }
  template <class Thread>
  KERNELS_GPU_INLINE void add_step(const Thread& t, const T* left, const B* right, Tile& tile) const {
    if constexpr (sizeof(T) <= 2) {
      constexpr int kWord = 4 / sizeof(T);  // numbers; eight words of a row are one product's depth
      const int group = t.index() % kWarp / 4, in_group = t.index() % 4, top = t.index() / kWarp * 16;
      const auto word = [](const auto* at) { return *reinterpret_cast<const std::uint32_t*>(at); };
      for (int p = 0; p < kGroupedDepth; p += 8 * kWord) {
        std::uint32_t x[4];
        for (int r = 0; r < 4; ++r)
          x[r] = word(left + (top + group + (r % 2) * 8) * kGroupedRoom + p + kWord * (in_group + (r / 2) * 4));
        for (int j = 0; j < kGroupedTile / 8; ++j) {
          std::uint32_t y[2];
          for (int r = 0; r < 2; ++r)
            y[r] = word(right + (j * 8 + group) * kGroupedRoom + p + kWord * (in_group + r * 4));
          float d[4] = {tile.sum[4 * j], tile.sum[4 * j + 1], tile.sum[4 * j + 2], tile.sum[4 * j + 3]};
          if constexpr (sizeof(T) == 1)
            t.mma(d, x, y, T{}, B{});
          else
            t.mma(d, x, y, T{});
          for (int r = 0; r < 4; ++r) tile.sum[4 * j + r] = d[r];
        }
      }
    } else {
      for (int p = 0; p < kGroupedDepth; ++p)
        for (int x = 0; x < 32; ++x)
          tile.sum[x] += to_float(left[row_of(t.index(), x) * kGroupedRoom + p]) *
                         to_float(right[col_of(t.index(), x) * kGroupedRoom + p]);
    }
  }
  template <class Thread>
  KERNELS_GPU_INLINE void store(const Thread& t, const Tile& tile, std::int64_t height) const {
    const float scale = scale_a ? *scale_a * *scale_b : 1.0f;
    for (int x = 0; x < 32; ++x) {
      const std::int64_t i = tile.row + row_of(t.index(), x), j = tile.col + col_of(t.index(), x);
      if (i >= height || j >= n) continue;
      Out& out = c[place(c_at, tile, i, j, sums_rows ? 0 : tile.first, 0)];
      out = from_float<Out>(scale * tile.sum[x] + (adds ? to_float(out) : 0.0f));
    }
  }
};

using GroupedKernels =
    KernelList<GroupedProductKernel<float, float>, GroupedProductKernel<bf16, bf16>, GroupedProductKernel<bf16, float>,
               GroupedProductKernel<f16, f16>, GroupedProductKernel<f16, float>, GroupedProductKernel<e4m3, bf16>,
               GroupedProductKernel<e4m3, f16>, GroupedProductKernel<e5m2, bf16, e4m3>,
               GroupedProductKernel<e5m2, f16, e4m3>, GroupedProductKernel<e5m2, float, e4m3>,
               GroupedProductKernel<e4m3, bf16, e5m2>, GroupedProductKernel<e4m3, f16, e5m2>,
               GroupedProductKernel<e4m3, float, e5m2>>;

}  // namespace orrery::kernels::cuda
