// SPDX-License-Identifier: Apache-2.0
// What a kernel is. A kernel is a struct of its arguments with
//   static constexpr int kThreads         threads of a block
//   static constexpr bool kCooperates     whether threads of a block wait for one another
//   template <class Thread> void operator()(const Thread& t) const
// and runs as one thread `t` of a grid: the GPU's own (thread.cuh), or one that tests emulate.
//   t.index() t.block() t.blocks()   place in block and grid, both one-dimensional
//   t.sync()                         all threads of the block have come here
//   t.shared()                       memory of the block, as much as the launch asked for
//   t.shuffle_xor(x, mask)           x of lane ^ mask in the warp; t.broadcast(x, lane)
//   t.ballot(b)                      bit l of the result is b of lane l
//   t.mma(d, a, b)                   tensor cores, 16×8×16; see attention_tile.hpp
#pragma once

#include <cstdint>

#include "kernels/cuda/scalar.hpp"

namespace orrery::kernels::cuda {

constexpr int kWarp = 32;

/// The first key that a window leaves to a query at position p (kernels/host/common.hpp); all without a window.
KERNELS_GPU_INLINE std::int64_t window_start(std::int64_t p, std::int64_t window, bool chunked) {
  return window == 0 ? INT64_MIN : chunked ? p / window * window : p - window + 1;
}

/// Names a kernel: equal for all launches of one type of struct, in the host's and in nvcc's code.
struct KernelTag {
  int threads;
  std::size_t bytes;  // of the arguments
  const char* name;   // as the compiler spells the type
};
template <class K>
constexpr const char* spelled() {
  return __PRETTY_FUNCTION__;
}
template <class K>
inline const KernelTag kTagOf{K::kThreads, sizeof(K), spelled<K>()};

/// One kernel over a grid of blocks, its arguments by value.
struct Launch {
  const KernelTag* tag = nullptr;
  const void* arguments = nullptr;
  std::int64_t blocks = 1;
  std::size_t shared_bytes = 0;
};

template <class... K>
struct KernelList {};

/// What a kernel finds wrong with the numbers that it gets: two values say more of it.
enum class FaultKind : std::int32_t { None, NoRoomForRows, RowsDiffer, NotPositive, OutOfRange, Stalled };

/// A word for the host that a kernel which cannot go on as asked leaves, and goes on with less. The first one stays, of
/// several at once any.
struct Fault {
  std::int32_t* at = nullptr;  // op + 1, kind, two values
  std::int32_t op = 0;

  KERNELS_GPU_INLINE void raise(FaultKind kind, std::int64_t value, std::int64_t limit) const {
    if (at[0] != 0) return;
    at[1] = static_cast<std::int32_t>(kind);
    at[2] = static_cast<std::int32_t>(value);
    at[3] = static_cast<std::int32_t>(limit);
    at[0] = op + 1;
  }
};

/// Blocks for `items` of work, one per thread; threads walk on when there are more.
template <class K>
std::int64_t grid_for(std::int64_t items) {
  constexpr std::int64_t kMost = 1 << 16;
  return larger_of<std::int64_t>(1, smaller_of<std::int64_t>(kMost, blocks_of<std::int64_t>(items, K::kThreads)));
}

/// How many bits are set.
KERNELS_GPU_INLINE int bits_of(std::uint32_t x) {
  x -= x >> 1 & 0x55555555u;
  x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
  return static_cast<int>(((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24);
}

template <class Thread>
KERNELS_GPU_INLINE float warp_sum(const Thread& t, float x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += t.shuffle_xor(x, mask);
  return x;
}
template <class Thread>
KERNELS_GPU_INLINE float warp_max(const Thread& t, float x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x = larger(x, t.shuffle_xor(x, mask));
  return x;
}
template <class Thread>
KERNELS_GPU_INLINE double warp_sum(const Thread& t, double x) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x += t.shuffle_xor(x, mask);
  return x;
}

/// Joins one value per thread over a block of WARPS warps; all threads get the result. `slots` is shared memory for
/// one value per warp, free again when the call returns.
template <int WARPS, class Thread, class V, class Join>
KERNELS_GPU_INLINE V block_reduce(const Thread& t, V x, V* slots, Join&& join) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) x = join(x, t.shuffle_xor(x, mask));
  if constexpr (WARPS == 1) return x;
  if (t.index() % kWarp == 0) slots[t.index() / kWarp] = x;
  t.sync();
  V all = slots[0];
  for (int w = 1; w < WARPS; ++w) all = join(all, slots[w]);
  t.sync();
  return all;
}
struct SumOf {
  template <class V>
  KERNELS_GPU_INLINE V operator()(V a, V b) const {
    return a + b;
  }
};
struct LargerOf {
  KERNELS_GPU_INLINE float operator()(float a, float b) const { return larger(a, b); }
};

}  // namespace orrery::kernels::cuda
