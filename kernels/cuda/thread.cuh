// SPDX-License-Identifier: Apache-2.0
// A thread of the GPU, the entries of kernels, and the table that finds them.
#pragma once

#include <cuda_runtime_api.h>

#include <type_traits>

#include "kernels/cuda/eight_bit.hpp"
#include "kernels/cuda/entries.hpp"
#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

extern __shared__ __align__(128) std::byte block_memory[];

struct GpuThread {
  __device__ __forceinline__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ std::int64_t block() const { return blockIdx.x; }
  __device__ __forceinline__ std::int64_t blocks() const { return gridDim.x; }
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ void sync_warp() const { __syncwarp(); }
  template <class V>
  __device__ __forceinline__ V* shared(std::size_t byte_offset = 0) const {
    return reinterpret_cast<V*>(block_memory + byte_offset);
  }
  template <class V>
  __device__ __forceinline__ V shuffle_xor(V x, int mask) const {
    return word_by_word(x, [mask](auto word) { return __shfl_xor_sync(~0u, word, mask); });
  }
  template <class V>
  __device__ __forceinline__ V broadcast(V x, int lane) const {
    return word_by_word(x, [lane](auto word) { return __shfl_sync(~0u, word, lane); });
  }
  __device__ __forceinline__ std::uint32_t ballot(bool b) const { return __ballot_sync(~0u, b); }
  /// The hardware moves numbers; of a struct its words.
  template <class V, class F>
  static __device__ __forceinline__ V word_by_word(V x, F&& f) {
    if constexpr (std::is_arithmetic_v<V>) {
      return f(x);
    } else {
      std::uint32_t words[sizeof(V) / 4];
      memcpy(words, &x, sizeof x);
      for (std::uint32_t& w : words) w = f(w);
      memcpy(&x, words, sizeof x);
      return x;
    }
  }
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                      bf16) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                                      f16) const {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  /// 16×8×32; from compute capability 8.9 on, which the host has made sure of.
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], e4m3,
                                      e4m3) const {
#if __CUDA_ARCH__ >= 890
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("trap;");
#endif
  }
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], e5m2,
                                      e4m3) const {
#if __CUDA_ARCH__ >= 890
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("trap;");
#endif
  }
  __device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], e4m3,
                                      e5m2) const {
#if __CUDA_ARCH__ >= 890
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    asm volatile("trap;");
#endif
  }
};

template <class K, class Thread>
__global__ void __launch_bounds__(K::kThreads) run_kernel(const __grid_constant__ K kernel) {
  kernel(Thread{});
}

template <class Thread = GpuThread, class... K>
void add_entries(KernelList<K...>, Entries& entries) {
  (entries.push_back({&kTagOf<K>, reinterpret_cast<const void*>(&run_kernel<K, Thread>)}), ...);
}

}  // namespace orrery::kernels::cuda
