// SPDX-License-Identifier: Apache-2.0
// Products of groups whose rows are whole 16 bytes, on tensor cores of 16 or 8 bits: tiles of 128 rows by WIDTH
// columns, 64 of the rows a warp's. Steps of 128 bytes of depth come by cp.async into a ring of three slots, swizzled
// as hopper.hpp says, and go to the tensor cores by ldmatrix. The sums leave through the block's memory, so that whole
// rows are written.
//
// An operand lies "along" where numbers that are summed over follow one another in memory, "down" where they are a row
// apart: ldmatrix transposes those, of 8 bits in pairs, which are then taken apart.
#pragma once

#include "kernels/cuda/grouped.hpp"
#include "kernels/cuda/hopper.hpp"

namespace orrery::kernels::cuda {

/// Four bytes of the eight of two words; a hexadecimal digit of `which` names each, the lowest first.
KERNELS_GPU_INLINE std::uint32_t picked_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t which) {
#ifdef __CUDA_ARCH__
  std::uint32_t x;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(low), "r"(high), "r"(which));
  return x;
#else
  const std::uint64_t all = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t x = 0;
  for (std::uint32_t i = 0; i < 4; ++i)
    x |= static_cast<std::uint32_t>(all >> 8 * (which >> 4 * i & 7u) & 0xffu) << 8 * i;
  return x;
#endif
}

enum class Lies : std::uint8_t { Along, Down };

/// N's numbers of LINES rows or columns of a tile, a step of depth after the other.
template <class N, Lies LIES, int LINES, int THREADS>
struct GroupFeed {
  static constexpr int kDepth = static_cast<int>(kPanelRow / sizeof(N)), kPack = 16 / sizeof(N);
  static constexpr int kRows = LIES == Lies::Down ? kDepth : LINES;  // in the block's memory
  static constexpr int kChunks = LINES * kDepth / kPack / kRows, kEach = THREADS / kChunks;
  const N* from;             // the tile's first number
  std::int64_t stride;       // from row to row in memory
  std::int64_t rows, count;  // rows in memory from there on, numbers of one

  template <class Thread>
  KERNELS_GPU_INLINE void copy(const Thread& t, int step, std::uint32_t to) const {
    const int chunk = t.index() % kChunks, row = t.index() / kChunks;
    const std::int64_t first = LIES == Lies::Down ? std::int64_t{step} * kDepth + row : row,
                       number = (LIES == Lies::Along ? std::int64_t{step} * kDepth : 0) + chunk * kPack;
    const int left = number < count ? static_cast<int>(smaller_of<std::int64_t>(rows - first, kRows)) : 0;
    const N* at = from + first * stride + number;
    repeat<kRows / kEach>([&](int i) {
      const bool there = i * kEach < left;
      t.copy_async(to + chunk_at<kRows>(static_cast<std::uint32_t>(row + i * kEach), static_cast<std::uint32_t>(chunk)),
                   there ? at : from, there);
      at += kEach * stride;
    });
  }
};

template <class A, class B, Lies LEFT, Lies RIGHT, int WIDTH>
struct GroupedTileKernel {
  static_assert(sizeof(A) == sizeof(B));
  static constexpr bool kBytes = sizeof(A) == 1;
  static constexpr int kHeight = 128, kSlots = 3;
  /// A warp's part. Hopper's mma.sync widens numbers of 8 bits in registers, so these have to be left to it.
  static constexpr int kWarpHeight = 64, kWarpWidth = kBytes ? 32 : 64, kAcross = WIDTH / kWarpWidth;
  static constexpr int kThreads = kHeight / kWarpHeight * kAcross * kWarp;
  static constexpr bool kCooperates = true;
  GroupedProduct<A, B> p;  // all rows begin at multiples of 16 bytes; what lies behind k in one of them is zero

  using LeftFeed = GroupFeed<A, LEFT, kHeight, kThreads>;
  using RightFeed = GroupFeed<B, RIGHT, WIDTH, kThreads>;
  static constexpr std::uint32_t kLeftBytes = kHeight * kPanelRow, kSlotBytes = kLeftBytes + WIDTH * kPanelRow;
  static constexpr int kRoom = WIDTH + 8;  // floats from row to row of the sums
  static constexpr std::size_t kShared = kSlots * kSlotBytes;
  static_assert(kHeight * kRoom * sizeof(float) <= kShared);

  constexpr std::int64_t tiles() const { return p.tiles(kHeight, WIDTH); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    GroupTile tile;
    for (std::int64_t w = t.block(); w < tiles(); w += t.blocks())
      if (p.find(w, kHeight, WIDTH, tile)) product(t, tile);
  }

 private:
  static constexpr int kParts = static_cast<int>(kPanelRow) / 32;  // products in depth of a step
  static constexpr int kDown = kWarpHeight / 16, kColumns = kWarpWidth / 8;
  struct Operands {
    std::uint32_t a[kDown][4], b[kColumns][2];
  };
  using Sums = float[kDown][kColumns][4];
  /// A warp's part of the tile.
  template <class Thread>
  static KERNELS_GPU_INLINE int top(const Thread& t) {
    return t.index() / (kAcross * kWarp) * kWarpHeight;
  }
  template <class Thread>
  static KERNELS_GPU_INLINE int side(const Thread& t) {
    return t.index() / kWarp % kAcross * kWarpWidth;
  }

  KERNELS_GPU_INLINE LeftFeed left_feed(const GroupTile& tile) const {
    const std::int64_t lines = p.height(tile) - tile.row;
    if constexpr (LEFT == Lies::Down) return {p.left(tile) + tile.row, p.a_at.col, p.depth(tile), lines};
    return {p.left(tile) + tile.row * p.a_at.row, p.a_at.row, lines, p.depth(tile)};
  }
  KERNELS_GPU_INLINE RightFeed right_feed(const GroupTile& tile) const {
    const std::int64_t lines = p.n - tile.col;
    if constexpr (RIGHT == Lies::Down) return {p.right(tile) + tile.col, p.b_at.row, p.depth(tile), lines};
    return {p.right(tile) + tile.col * p.b_at.col, p.b_at.col, lines, p.depth(tile)};
  }

  template <class Thread>
  KERNELS_GPU void product(const Thread& t, const GroupTile& tile) const {
    const LeftFeed left = left_feed(tile);
    const RightFeed right = right_feed(tile);
    const int steps = static_cast<int>(blocks_of<std::int64_t>(p.depth(tile), LeftFeed::kDepth));
    const bool has_rows = tile.row + top(t) < p.height(tile);
    Sums sums;
    repeat<kDown>([&](int i) { repeat<kColumns>([&](int j) { repeat<4>([&](int x) { sums[i][j][x] = 0; }); }); });
    over_ring<kSlots>(
        t, steps, t.shared_base(), kSlotBytes,
        [&](int step, std::uint32_t to) {
          left.copy(t, step, to);
          right.copy(t, step, to + kLeftBytes);
        },
        [&](int, std::uint32_t slot) {
          if (has_rows) add_step(t, slot, sums);
        });
    put(t, sums);
    t.sync();
    write(t, tile);
    t.sync();
  }

  /// Operands of one part come while products of the part before run; of 8 bits, each part's before its own.
  template <class Thread>
  KERNELS_GPU_INLINE void add_step(const Thread& t, std::uint32_t slot, Sums& sums) const {
    constexpr int kHeld = kBytes ? 1 : 2;
    Operands operands[kHeld];
    if constexpr (kHeld == 2) load_part(t, slot, 0, operands[0]);
    repeat<kParts>([&](int part) {
      const int next = part + kHeld - 1;
      if (next < kParts) load_part(t, slot, next, operands[next % kHeld]);
      const Operands& o = operands[part % kHeld];
      repeat<kDown>([&](int i) {
        repeat<kColumns>([&](int j) {
          if constexpr (kBytes)
            t.mma(sums[i][j], o.a[i], o.b[j], A{}, B{});
          else
            t.mma(sums[i][j], o.a[i], o.b[j], A{});
        });
      });
    });
  }
  /// As mma.m16n8k16 and …k32 want them (PTX ISA, "Matrix fragments"): the lane names a row of one of four matrices of
  /// eight rows of 16 bytes, which are of the upper and lower half, and of the first and second half of the depth.
  template <class Thread>
  KERNELS_GPU_INLINE void load_part(const Thread& t, std::uint32_t slot, int part, Operands& to) const {
    const int lane = t.index() % kWarp, first = lane % 8 + lane / 8 % 2 * 8, second = lane % 8 + lane / 16 * 8;
    repeat<kDown>([&](int i) {
      if constexpr (LEFT == Lies::Along) {
        t.template load_matrices<false>(to.a[i], slot + at<kHeight>(top(t) + 16 * i + first, 2 * part + lane / 16));
      } else if constexpr (kBytes) {
        load_pairs(t, slot, part, top(t) / 16 + i, to.a[i][0], to.a[i][1], to.a[i][2], to.a[i][3]);
      } else {
        const int chunk = top(t) / 8 + 2 * i + lane / 8 % 2;
        t.template load_matrices<true>(to.a[i], slot + at<LeftFeed::kRows>(16 * part + second, chunk));
      }
    });
    const std::uint32_t right = slot + kLeftBytes;
    repeat<kColumns / 2>([&](int j) {
      auto &x = to.b[2 * j], &y = to.b[2 * j + 1];
      if constexpr (RIGHT == Lies::Down && kBytes) {
        load_pairs(t, right, part, side(t) / 16 + j, x[0], y[0], x[1], y[1]);
      } else {
        std::uint32_t r[4];
        if constexpr (RIGHT == Lies::Along)
          t.template load_matrices<false>(r, right + at<WIDTH>(side(t) + 16 * j + second, 2 * part + lane / 8 % 2));
        else
          t.template load_matrices<true>(
              r, right + at<RightFeed::kRows>(16 * part + first, side(t) / 8 + 2 * j + lane / 16));
        x[0] = r[0];
        x[1] = r[1];
        y[0] = r[2];
        y[1] = r[3];
      }
    });
  }
  template <int ROWS>
  static KERNELS_GPU_INLINE std::uint32_t at(int row, int chunk) {
    return chunk_at<ROWS>(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(chunk));
  }
  /// Numbers of 8 bits that lie down, 16 columns of 32 rows. Lane q of four gets words of columns 2g and 2g + 1: rows
  /// 4q … 4q + 3 of each (low), and 16 further on (high). It takes them from two matrices, whose rows are chosen so
  /// that the eight of one are in different banks: for q ≥ 2 the two change places.
  template <class Thread>
  static KERNELS_GPU_INLINE void load_pairs(const Thread& t, std::uint32_t tile, int part, int chunk,
                                            std::uint32_t& even_low, std::uint32_t& odd_low, std::uint32_t& even_high,
                                            std::uint32_t& odd_high) {
    const int lane = t.index() % kWarp, q = lane % 8 / 2;
    const int row = lane / 16 * 16 + 4 * q + 2 * (lane / 8 % 2 ^ q / 2) + lane % 2;
    std::uint32_t r[4];
    t.template load_matrices<true>(r, tile + at<LeftFeed::kDepth>(32 * part + row, chunk));
    const std::uint32_t even = lane % 4 < 2 ? 0x6420 : 0x2064, odd = even + 0x1111;
    even_low = picked_bytes(r[0], r[1], even);
    odd_low = picked_bytes(r[0], r[1], odd);
    even_high = picked_bytes(r[2], r[3], even);
    odd_high = picked_bytes(r[2], r[3], odd);
  }

  template <class Thread>
  static KERNELS_GPU_INLINE void put(const Thread& t, const Sums& sums) {
    float* to = t.template shared<float>();
    const int g = t.index() % kWarp / 4, q = t.index() % 4;
    repeat<kDown>([&](int i) {
      repeat<kColumns>([&](int j) {
        repeat<4>([&](int x) {
          const bool pairs_down = kBytes && LEFT == Lies::Down, pairs_across = kBytes && RIGHT == Lies::Down;
          const int row = top(t) + 16 * i + (pairs_down ? 2 * g + x / 2 : g + x / 2 * 8), in_pair = 2 * q + x % 2;
          const int col = side(t) + (pairs_across ? j / 2 * 16 + 2 * in_pair + j % 2 : 8 * j + in_pair);
          to[row * kRoom + col] = sums[i][j][x];
        });
      });
    });
  }
  template <class Thread>
  KERNELS_GPU_INLINE void write(const Thread& t, const GroupTile& tile) const {
    if (p.c.type == NumberType::F32) write_as<float>(t, tile);
    if (p.c.type == NumberType::BF16) write_as<bf16>(t, tile);
    if (p.c.type == NumberType::F16) write_as<f16>(t, tile);
  }
  /// Rows of the tile, 16 bytes of the output by a thread where those are whole.
  template <class Out, class Thread>
  KERNELS_GPU_INLINE void write_as(const Thread& t, const GroupTile& tile) const {
    constexpr int kMost = kPack<Out>, kPacks = WIDTH / kMost;
    const float* from = t.template shared<float>();
    const float scale = p.scale();
    const bool whole = p.c_at.row % kMost == 0 && reinterpret_cast<std::uintptr_t>(p.c.at) % 16 == 0;
    Out* const c = static_cast<Out*>(p.c.at) + p.out(tile) + tile.row * p.c_at.row + tile.col;
    const auto rows = static_cast<int>(smaller_of<std::int64_t>(p.height(tile) - tile.row, kHeight)),
               cols = static_cast<int>(smaller_of<std::int64_t>(p.n - tile.col, WIDTH));
    for (int w = t.index(); w < rows * kPacks; w += kThreads) {
      const int row = w / kPacks, col = w % kPacks * kMost;
      Out* const to = c + row * p.c_at.row + col;
      float x[kMost], before[kMost] = {};
      repeat<kMost>([&](int i) { x[i] = scale * from[row * kRoom + col + i]; });
      if (whole && col + kMost <= cols) {
        if (p.adds) load(to, before);
        repeat<kMost>([&](int i) { x[i] += before[i]; });
        store(to, x);
      } else {
        repeat<kMost>([&](int i) {
          if (col + i < cols) to[i] = from_float<Out>(x[i] + (p.adds ? to_float(to[i]) : 0.0f));
        });
      }
    }
  }
};

/// Rows times matrices, which lie either way; sums over rows.
template <class A, class B, int WIDTH>
using GroupedRowKernels = KernelList<GroupedTileKernel<A, B, Lies::Along, Lies::Along, WIDTH>,
                                     GroupedTileKernel<A, B, Lies::Along, Lies::Down, WIDTH>>;
template <class A, class B, int WIDTH>
using GroupedSumKernels = KernelList<GroupedTileKernel<A, B, Lies::Down, Lies::Down, WIDTH>>;

/// Two widths, of 16 bits only. Gradients have the type e5m2: no rows of numbers are multiplied by them.
constexpr int kGroupedNarrow = 128, kGroupedWide = 256;
template <class F>
void for_each_tile_list(F&& f) {
  f(GroupedRowKernels<bf16, bf16, kGroupedNarrow>{});
  f(GroupedSumKernels<bf16, bf16, kGroupedNarrow>{});
  f(GroupedRowKernels<f16, f16, kGroupedNarrow>{});
  f(GroupedSumKernels<f16, f16, kGroupedNarrow>{});
  f(GroupedRowKernels<bf16, bf16, kGroupedWide>{});
  f(GroupedSumKernels<bf16, bf16, kGroupedWide>{});
  f(GroupedRowKernels<f16, f16, kGroupedWide>{});
  f(GroupedSumKernels<f16, f16, kGroupedWide>{});
  f(GroupedRowKernels<e4m3, e4m3, kGroupedNarrow>{});
  f(GroupedRowKernels<e5m2, e4m3, kGroupedNarrow>{});
  f(GroupedSumKernels<e5m2, e4m3, kGroupedNarrow>{});
  f(GroupedSumKernels<e4m3, e5m2, kGroupedNarrow>{});
}

}  // namespace orrery::kernels::cuda
