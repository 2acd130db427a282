// SPDX-License-Identifier: Apache-2.0
// What a thread of compute capability 9.0a can do beyond staged_thread.cuh; see hopper.hpp.
#pragma once

#include "kernels/cuda/hopper.hpp"
#include "kernels/cuda/staged_thread.cuh"

// Registers of D with 64 and 128 columns: in the text of an instruction, and as its operands.
#define KERNELS_TEXT_32                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define KERNELS_TEXT_64                                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define KERNELS_ROW(d, n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define KERNELS_4_ROWS(d, n) KERNELS_ROW(d, n), KERNELS_ROW(d, n + 1), KERNELS_ROW(d, n + 2), KERNELS_ROW(d, n + 3)
#define KERNELS_D_32(d) KERNELS_4_ROWS(d, 0), KERNELS_4_ROWS(d, 4)
#define KERNELS_D_64(d) KERNELS_D_32(d), KERNELS_4_ROWS(d, 8), KERNELS_4_ROWS(d, 12)
#define KERNELS_MATRICES(type)                                                                                         \
  __device__ __forceinline__ void multiply(float(&d)[16][4], std::uint64_t a, std::uint64_t b, bool adds, type)        \
      const {                                                                                                          \
    asm volatile(                                                                                                      \
        "{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." KERNELS_NAME_##type       \
        "." KERNELS_NAME_##type " {" KERNELS_TEXT_64 "}, %64, %65, p, 1, 1, 0, 0;}"                                    \
        : KERNELS_D_64(d)                                                                                              \
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)));                                                                \
  }                                                                                                                    \
  __device__ __forceinline__ void multiply(float(&d)[8][4], const std::uint32_t(&a)[4], std::uint64_t b, type) const { \
    asm volatile("{.reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." KERNELS_NAME_##type \
                 "." KERNELS_NAME_##type " {" KERNELS_TEXT_32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"             \
                 : KERNELS_D_32(d)                                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                \
  }                                                                                                                    \
  __device__ __forceinline__ void multiply(float(&d)[16][4], const std::uint32_t(&a)[4], std::uint64_t b, type)        \
      const {                                                                                                          \
    asm volatile(                                                                                                      \
        "{.reg .pred p; setp.eq.b32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." KERNELS_NAME_##type         \
        "." KERNELS_NAME_##type " {" KERNELS_TEXT_64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"                      \
        : KERNELS_D_64(d)                                                                                              \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                         \
  }
#define KERNELS_NAME_bf16 "bf16"
#define KERNELS_NAME_f16 "f16"

namespace orrery::kernels::cuda {

struct HopperThread : StagedThread {
  /// Clocks, about ten seconds, after which a wait gives up.
  static constexpr long long kPatience = 20'000'000'000;

  __device__ __forceinline__ void proxy_fence() const { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  __device__ __forceinline__ void barrier_init(std::uint32_t at, std::uint32_t arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void barrier_arrive(std::uint32_t at) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  }
  /// False when the phase of that parity has not come in time.
  __device__ __forceinline__ bool barrier_wait(std::uint32_t at, std::uint32_t parity) const {
    if (has_come(at, parity)) return true;
    for (const long long start = clock64(); clock64() - start < kPatience;)
      if (has_come(at, parity)) return true;
    return false;
  }
  __device__ __forceinline__ void sync_group() const {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + index() / kWarpgroup) : "memory");
  }

  __device__ __forceinline__ void products_fence() const { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  __device__ __forceinline__ void products_commit() const {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  /// Waits until at most N batches are on their way. The compiler sees that d changes here.
  template <int N>
  __device__ __forceinline__ void products_wait(float (&d)[8][4]) const {
    asm volatile("wgmma.wait_group.sync.aligned %32;" : KERNELS_D_32(d) : "n"(N) : "memory");
  }
  template <int N>
  __device__ __forceinline__ void products_wait(float (&d)[16][4]) const {
    asm volatile("wgmma.wait_group.sync.aligned %64;" : KERNELS_D_64(d) : "n"(N) : "memory");
  }
  KERNELS_MATRICES(bf16)
  KERNELS_MATRICES(f16)

  template <int N>
  __device__ __forceinline__ void give_registers() const {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
  }
  template <int N>
  __device__ __forceinline__ void take_registers() const {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
  }

 private:
  static __device__ __forceinline__ bool has_come(std::uint32_t at, std::uint32_t parity) {
    std::uint32_t came = 0;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                 : "=r"(came)
                 : "r"(at), "r"(parity)
                 : "memory");
    return came != 0;
  }
};

}  // namespace orrery::kernels::cuda

#undef KERNELS_TEXT_32
#undef KERNELS_TEXT_64
#undef KERNELS_ROW
#undef KERNELS_4_ROWS
#undef KERNELS_D_32
#undef KERNELS_D_64
#undef KERNELS_MATRICES
#undef KERNELS_NAME_bf16
#undef KERNELS_NAME_f16
