// SPDX-License-Identifier: Apache-2.0
// One product per group of consecutive rows. Where groups begin is known on the device only, so that no product
// library which asks the host for sizes can do it without a wait. A block finds the tile that it computes among those
// of all groups. Here: what the kernels of such products share, and the one for rows that are not whole 16 bytes;
// grouped_tile.hpp has those for the others, grouped_float.hpp those of f32.
#pragma once

#include "kernels/cuda/eight_bit.hpp"

namespace orrery::kernels::cuda {

/// Element (i, j) of a matrix of a group is at group·each + i·row + j·col.
struct GroupMatrix {
  std::int64_t each = 0, row = 0, col = 0;
};

/// A tile of a group's product: its group, which row that begins at and how many it has; where the tile begins in it.
struct GroupTile {
  std::int64_t group, first, rows, row, col;
};

/// Y = X·W, dX = dY·Wᵀ: rows of a group times its matrix. dW = Xᵀ·dY (`sums_rows`): a matrix per group, over its rows.
/// B's numbers may be of another type where A has 8 bits.
template <class A, class B = A>
struct GroupedProduct {
  std::int64_t groups, rows, m, n, k;  // rows that there is room for; m and k: those of a group, unless they are rows
  const std::int32_t* offsets;
  const A* a;
  const B* b;
  Numbers c;
  GroupMatrix a_at, b_at, c_at;  // `each` 0: rows follow one another over the groups
  bool sums_rows, adds;
  const float *scale_a = nullptr, *scale_b = nullptr;  // what numbers of 8 bits stand for; none: 1

  /// As many tiles of that size as there can be.
  constexpr std::int64_t tiles(std::int64_t height, std::int64_t width) const {
    return blocks_of(n, width) * (sums_rows ? groups * blocks_of(m, height) : blocks_of(rows, height) + groups);
  }
  /// The tile of a number: those of group 0 come first, in bands of 16 down, which share what they read.
  KERNELS_GPU_INLINE bool find(std::int64_t at, std::int64_t height, std::int64_t width, GroupTile& tile) const {
    constexpr std::int64_t kBand = 16;
    const std::int64_t across = blocks_of(n, width);
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t first = offsets[g], count = offsets[g + 1] - first,
                         down = blocks_of(sums_rows ? m : count, height);
      if (at >= down * across) {
        at -= down * across;
        continue;
      }
      const std::int64_t band = at / (kBand * across) * kBand, deep = smaller_of(kBand, down - band),
                         rest = at - band * across;
      tile = {g, first, count, (band + rest % deep) * height, rest / deep * width};
      return true;
    }
    return false;
  }
  KERNELS_GPU_INLINE std::int64_t depth(const GroupTile& tile) const { return sums_rows ? tile.rows : k; }
  KERNELS_GPU_INLINE std::int64_t height(const GroupTile& tile) const { return sums_rows ? m : tile.rows; }
  /// Element (0, 0) of the group's matrices.
  KERNELS_GPU_INLINE const A* left(const GroupTile& tile) const {
    return a + tile.group * a_at.each + tile.first * (sums_rows ? a_at.col : a_at.row);
  }
  KERNELS_GPU_INLINE const B* right(const GroupTile& tile) const {
    return b + tile.group * b_at.each + (sums_rows ? tile.first * b_at.row : 0);
  }
  KERNELS_GPU_INLINE std::int64_t out(const GroupTile& tile) const {
    return tile.group * c_at.each + (sums_rows ? 0 : tile.first * c_at.row);
  }
  KERNELS_GPU_INLINE float scale() const { return scale_a ? *scale_a * *scale_b : 1.0f; }
};

constexpr int kGroupedTile = 64, kGroupedDepth = 32, kGroupedRoom = kGroupedDepth + 8;

/// Any rows of 16 and 8 bits, number by number into tiles of 64×64 for the tensor cores: a block per tile.
template <class T, class B = T>
struct GroupedProductKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  GroupedProduct<T, B> p;

  static constexpr std::size_t kShared = 2 * kGroupedTile * kGroupedRoom * sizeof(T);
  constexpr std::int64_t tiles() const { return p.tiles(kGroupedTile, kGroupedTile); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    GroupTile tile;
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks())
      if (p.find(w, kGroupedTile, kGroupedTile, tile)) product(t, tile);
  }

 private:
  template <class Thread>
  KERNELS_GPU void product(const Thread& t, const GroupTile& tile) const {
    T* left = t.template shared<T>();
    B* right = t.template shared<B>(kGroupedTile * kGroupedRoom * sizeof(T));
    float sums[kGroupedTile / 8][4] = {};
    const T* a = p.left(tile);
    const B* b = p.right(tile);
    const std::int64_t depth = p.depth(tile), height = p.height(tile);
    for (std::int64_t at = 0; at < depth; at += kGroupedDepth) {
      for (int w = t.index(); w < kGroupedTile * kGroupedDepth; w += kThreads) {
        const int i = p.a_at.col == 1 ? w / kGroupedDepth : w % kGroupedTile,
                  s = p.a_at.col == 1 ? w % kGroupedDepth : w / kGroupedTile;
        const bool in = tile.row + i < height && at + s < depth;
        left[i * kGroupedRoom + s] = in ? a[(tile.row + i) * p.a_at.row + (at + s) * p.a_at.col] : T{};
        const int j = p.b_at.row == 1 ? w / kGroupedDepth : w % kGroupedTile,
                  q = p.b_at.row == 1 ? w % kGroupedDepth : w / kGroupedTile;
        const bool there = tile.col + j < p.n && at + q < depth;
        right[j * kGroupedRoom + q] = there ? b[(at + q) * p.b_at.row + (tile.col + j) * p.b_at.col] : B{};
      }
      t.sync();
      add_step(t, left, right, sums);
      t.sync();
    }
    store(t, tile, height, sums);
  }
  /// A warp has 16 rows.
  template <class Thread>
  KERNELS_GPU_INLINE void add_step(const Thread& t, const T* left, const B* right,
                                   float (&sums)[kGroupedTile / 8][4]) const {
    constexpr int kWord = 4 / sizeof(T);  // numbers; eight words of a row are one product's depth
    const int group = t.index() % kWarp / 4, in_group = t.index() % 4, top = t.index() / kWarp * 16;
    const auto word = [](const auto* at) { return *reinterpret_cast<const std::uint32_t*>(at); };
    for (int s = 0; s < kGroupedDepth; s += 8 * kWord) {
      std::uint32_t x[4];
      for (int r = 0; r < 4; ++r)
        x[r] = word(left + (top + group + (r % 2) * 8) * kGroupedRoom + s + kWord * (in_group + (r / 2) * 4));
      for (int j = 0; j < kGroupedTile / 8; ++j) {
        std::uint32_t y[2];
        for (int r = 0; r < 2; ++r)
          y[r] = word(right + (j * 8 + group) * kGroupedRoom + s + kWord * (in_group + r * 4));
        if constexpr (sizeof(T) == 1)
          t.mma(sums[j], x, y, T{}, B{});
        else
          t.mma(sums[j], x, y, T{});
      }
    }
  }
  template <class Thread>
  KERNELS_GPU_INLINE void store(const Thread& t, const GroupTile& tile, std::int64_t height,
                                const float (&sums)[kGroupedTile / 8][4]) const {
    const float scale = p.scale();
    for (int x = 0; x < kGroupedTile / 2; ++x) {
      const std::int64_t i = tile.row + t.index() / kWarp * 16 + t.index() % kWarp / 4 + (x % 4 >= 2 ? 8 : 0),
                         j = tile.col + x / 4 * 8 + 2 * (t.index() % 4) + x % 2;
      if (i >= height || j >= p.n) continue;
      const std::int64_t at = p.out(tile) + i * p.c_at.row + j;
      p.c.set(at, scale * sums[x / 4][x % 4] + (p.adds ? p.c.get(at) : 0.0f));
    }
  }
};

using GroupedKernels = KernelList<GroupedProductKernel<bf16>, GroupedProductKernel<f16>, GroupedProductKernel<e4m3>,
                                  GroupedProductKernel<e5m2, e4m3>, GroupedProductKernel<e4m3, e5m2>>;

}  // namespace orrery::kernels::cuda
