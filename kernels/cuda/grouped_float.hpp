// SPDX-License-Identifier: Apache-2.0
// Products of groups in f32, on the ordinary units: tiles of SIZE×SIZE, 8×8 of them a thread's, 64×32 a warp's. Steps
// of 8 in depth lie in two buffers of the block's memory, the depth outermost; the next step is on its way in
// registers while one is computed.
#pragma once

#include "kernels/cuda/grouped.hpp"
#include "kernels/cuda/hopper.hpp"

namespace orrery::kernels::cuda {

template <int SIZE>
struct GroupedFloatKernel {
  static constexpr int kThreads = SIZE * SIZE / 64;
  static constexpr bool kCooperates = true;
  GroupedProduct<float> p;
  bool left_packs, right_packs, out_packs;  // whether rows begin at multiples of 16 bytes

  static constexpr int kDepth = 8, kRoom = SIZE + 4, kFloats = kDepth * kRoom;  // of one operand
  static constexpr std::size_t kShared = 4 * kFloats * sizeof(float);

  constexpr std::int64_t tiles() const { return p.tiles(SIZE, SIZE); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    GroupTile tile;
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks())
      if (p.find(w, SIZE, SIZE, tile)) product(t, tile);
  }

 private:
  static constexpr int kQuads = SIZE * kDepth / 4 / kThreads;  // of an operand's step that a thread moves
  using Moved = float[kQuads][4];
  using Sums = float[8][8];
  /// SIZE lines of an operand from the tile's first number on. Along: the depth is that of neighbours in memory.
  struct Side {
    const float* from;
    std::int64_t stride, lines, depth;
    bool along, packs;
  };

  template <class Thread>
  KERNELS_GPU void product(const Thread& t, const GroupTile& tile) const {
    const bool a_along = p.a_at.col == 1, b_along = p.b_at.row == 1;
    const Side left{p.left(tile) + tile.row * p.a_at.row,
                    a_along ? p.a_at.row : p.a_at.col,
                    p.height(tile) - tile.row,
                    p.depth(tile),
                    a_along,
                    left_packs};
    const Side right{p.right(tile) + tile.col * p.b_at.col,
                     b_along ? p.b_at.col : p.b_at.row,
                     p.n - tile.col,
                     p.depth(tile),
                     b_along,
                     right_packs};
    float* const memory = t.template shared<float>();
    Sums sums = {};
    Moved a, b;
    const auto put_both = [&](std::int64_t step) {
      float* const to = memory + step % 2 * (2 * kFloats);
      put(t, left, a, to);
      put(t, right, b, to + kFloats);
    };
    const std::int64_t steps = blocks_of<std::int64_t>(p.depth(tile), kDepth);
    fetch(t, left, 0, a);
    fetch(t, right, 0, b);
    put_both(0);
    t.sync();
    for (std::int64_t s = 0; s < steps; ++s) {
      const bool more = s + 1 < steps;
      if (more) {
        fetch(t, left, (s + 1) * kDepth, a);
        fetch(t, right, (s + 1) * kDepth, b);
      }
      add_step(t, memory + s % 2 * (2 * kFloats), sums);
      if (more) put_both(s + 1);
      t.sync();
    }
    write(t, tile, sums);
  }

  /// Where a thread's quad number i lies: its line, or the first of its lines, and its place in depth.
  struct Quarter {
    int line, depth;
  };
  static KERNELS_GPU_INLINE Quarter quarter(int thread, bool along, int i) {
    const int w = thread + i * kThreads;
    return along ? Quarter{w / (kDepth / 4), w % (kDepth / 4) * 4} : Quarter{w % (SIZE / 4) * 4, w / (SIZE / 4)};
  }
  template <class Thread>
  static KERNELS_GPU_INLINE void fetch(const Thread& t, const Side& side, std::int64_t at, Moved& to) {
    repeat<kQuads>([&](int i) {
      const Quarter q = quarter(t.index(), side.along, i);
      const std::int64_t row = side.along ? q.line : at + q.depth, number = side.along ? at + q.depth : q.line;
      const std::int64_t rows = side.along ? side.lines : side.depth, count = side.along ? side.depth : side.lines;
      const float* from = side.from + row * side.stride + number;
      if (side.packs && row < rows && number + 4 <= count) return load(from, to[i]);
      repeat<4>([&](int x) { to[i][x] = row < rows && number + x < count ? from[x] : 0.0f; });
    });
  }
  template <class Thread>
  static KERNELS_GPU_INLINE void put(const Thread& t, const Side& side, const Moved& from, float* to) {
    repeat<kQuads>([&](int i) {
      const Quarter q = quarter(t.index(), side.along, i);
      if (!side.along) return store(to + q.depth * kRoom + q.line, from[i]);
      repeat<4>([&](int x) { to[(q.depth + x) * kRoom + q.line] = from[i][x]; });
    });
  }

  /// A thread's first row and column: it has four of each there, and four 32 rows and 16 columns on.
  template <class Thread>
  static KERNELS_GPU_INLINE int row_of(const Thread& t) {
    return t.index() / kWarp / (SIZE / 32) * 64 + t.index() % kWarp / 4 * 4;
  }
  template <class Thread>
  static KERNELS_GPU_INLINE int col_of(const Thread& t) {
    return t.index() / kWarp % (SIZE / 32) * 32 + t.index() % 4 * 4;
  }
  template <class Thread>
  static KERNELS_GPU_INLINE void add_step(const Thread& t, const float* memory, Sums& sums) {
    const float *left = memory + row_of(t), *right = memory + kFloats + col_of(t);
    repeat<kDepth>([&](int s) {
      float a[2][4], b[2][4];
      repeat<2>([&](int half) {
        load(left + s * kRoom + 32 * half, a[half]);
        load(right + s * kRoom + 16 * half, b[half]);
      });
      repeat<8>([&](int i) { repeat<8>([&](int j) { sums[i][j] += a[i / 4][i % 4] * b[j / 4][j % 4]; }); });
    });
  }
  template <class Thread>
  KERNELS_GPU_INLINE void write(const Thread& t, const GroupTile& tile, const Sums& sums) const {
    const std::int64_t row = tile.row + row_of(t), height = p.height(tile);
    repeat<8>([&](int i) {
      const std::int64_t at = row + i / 4 * 32 + i % 4;
      if (at >= height) return;
      repeat<2>([&](int half) {
        const std::int64_t col = tile.col + col_of(t) + 16 * half;
        float* to = static_cast<float*>(p.c.at) + p.out(tile) + at * p.c_at.row + col;
        float x[4];
        repeat<4>([&](int j) { x[j] = sums[i][4 * half + j]; });
        if (out_packs && col + 4 <= p.n) {
          float before[4] = {};
          if (p.adds) load(to, before);
          repeat<4>([&](int j) { x[j] += before[j]; });
          store(to, x);
        } else {
          repeat<4>([&](int j) {
            if (col + j < p.n) to[j] = x[j] + (p.adds ? to[j] : 0.0f);
          });
        }
      });
    });
  }
};

using GroupedFloatKernels = KernelList<GroupedFloatKernel<64>, GroupedFloatKernel<128>>;

}  // namespace orrery::kernels::cuda
