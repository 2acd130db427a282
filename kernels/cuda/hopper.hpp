// SPDX-License-Identifier: Apache-2.0
// Products of four warps at once (wgmma, compute capability 9.0a): how their operands lie in a block's memory.
//
// A tile of R rows of D numbers of 16 bits is kept in panels of 64 columns: R rows of 128 bytes each. The 16 bytes
// number c of row r lie at place c ^ (r mod 8) of that row ("128-byte swizzle"), so that eight rows of a column, and
// eight columns of a row, are in different banks. A panel begins at a multiple of 1024 bytes. What the hardware makes
// of a descriptor: PTX ISA 9.0, "Asynchronous warpgroup level matrix shared memory layout".
//
// A kernel of this header has a thread `t` that also knows, with addresses of the block's memory (from compute
// capability 8.0 on, staged_thread.cuh):
//   t.shared_base()                    where the memory that the launch asked for begins, a multiple of 128
//   t.copy_async(to, from, there)      16 bytes from the device's memory, or zeros; lands by copy_wait
//   t.copy_word_async(to, from, there) the same of 4 bytes
//   t.copy_commit() copy_wait<N>()     ends a batch of copies; waits until at most N batches are on their way
//   t.load_matrices<TRANSPOSED>(to, row)  four matrices of 8×8 numbers of 16 bits, of which the lane names a row;
//   number
//                                      w of `to` gets two of matrix w (PTX ISA, "ldmatrix")
// and of 9.0a (hopper_thread.cuh):
//   t.proxy_fence()                    what this thread has written can be read by products
//   t.barrier_init(at, arrivals) barrier_arrive(at) barrier_wait(at, parity)
//                                      a word that completes a phase with each so many arrivals; whether that phase
//                                      came
//   t.sync_group()                     all threads of the warpgroup have come here
//   t.products_fence() multiply(…) products_commit() products_wait<N>(d)
//                                      d += A·B later: nobody touches d, A or B before products_wait
//   t.give_registers<N>() take_registers<N>()   so many registers per thread from here on
#pragma once

#include <type_traits>

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

constexpr int kWarpgroup = 128;
constexpr std::uint32_t kPanelRow = 128, kSwizzleBytes = 1024;

/// A loop that nvcc unrolls.
template <int N, class F>
KERNELS_GPU_INLINE void repeat(F&& f) {
#ifdef __CUDACC__
#pragma unroll
#endif
  for (int i = 0; i < N; ++i) f(i);
}

/// Where the 16 bytes number `chunk` of a row begin, in a tile of ROWS rows.
template <int ROWS>
KERNELS_GPU_INLINE constexpr std::uint32_t chunk_at(std::uint32_t row, std::uint32_t chunk) {
  return chunk / 8 * (ROWS * kPanelRow) + row * kPanelRow + ((chunk ^ row) % 8) * 16;
}

/// Steps of a block's work, whose operands come by copy_async into SLOTS slots from `ring` on: fetch(s, slot) asks for
/// those of step s, SLOTS − 1 steps ahead, use(s, slot) finds them there.
template <int SLOTS, class Thread, class F, class G>
KERNELS_GPU_INLINE void over_ring(const Thread& t, int steps, std::uint32_t ring, std::uint32_t slot_bytes, F&& fetch,
                                  G&& use) {
  const auto begin = [&](int step, std::uint32_t slot) {
    if (step < steps) fetch(step, ring + slot * slot_bytes);
    t.copy_commit();
  };
  repeat<SLOTS - 1>([&](int s) { begin(s, static_cast<std::uint32_t>(s)); });
  std::uint32_t slot = 0, free = SLOTS - 1;
  for (int s = 0; s < steps; ++s) {
    t.template copy_wait<SLOTS - 2>();
    t.sync();  // step s has come for all, and all have done with the slot of the step before
    begin(s + SLOTS - 1, free);
    use(s, ring + slot * slot_bytes);
    free = slot;
    slot = slot + 1 == SLOTS ? 0 : slot + 1;
  }
  t.template copy_wait<0>();
  t.sync();
}

/// A matrix in a block's memory, as products take it: the address, two distances, and the code of the swizzle.
KERNELS_GPU_INLINE constexpr std::uint64_t matrix_descriptor(std::uint32_t address, std::uint32_t leading,
                                                             std::uint32_t stride) {
  return (address & 0x3ffffu) >> 4 | static_cast<std::uint64_t>((leading & 0x3ffffu) >> 4) << 16 |
         static_cast<std::uint64_t>((stride & 0x3ffffu) >> 4) << 32 | std::uint64_t{1} << 62;
}
/// Numbers 16·step … + 15 of all ROWS rows, the sum of a product running along a row ("K-major"): the distance is that
/// of eight rows to the next, the other one is not used.
template <int ROWS>
KERNELS_GPU_INLINE constexpr std::uint64_t along_rows(std::uint32_t tile, int step) {
  const auto s = static_cast<std::uint32_t>(step);
  return matrix_descriptor(tile + s / 4 * (ROWS * kPanelRow) + s % 4 * 32, 16, 8 * kPanelRow);
}
/// Rows 16·step … + 15 with all their numbers, the sum running down the rows ("MN-major"): one distance is that of a
/// panel to the next, the other that of eight rows.
template <int ROWS>
KERNELS_GPU_INLINE constexpr std::uint64_t down_rows(std::uint32_t tile, int step) {
  return matrix_descriptor(tile + static_cast<std::uint32_t>(step) * 16 * kPanelRow, ROWS * kPanelRow, 8 * kPanelRow);
}

/// 2^x; on the GPU to 2 units in the last place, 0 for −∞ and where the result is subnormal.
KERNELS_GPU_INLINE float quick_exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

/// Two numbers rounded into one word.
template <class T>
KERNELS_GPU_INLINE std::uint32_t rounded_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bf16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return from_float<T>(low).bits | static_cast<std::uint32_t>(from_float<T>(high).bits) << 16;
#endif
}

}  // namespace orrery::kernels::cuda
