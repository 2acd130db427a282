// SPDX-License-Identifier: Apache-2.0
// What a thread of compute capability 8.0 can do beyond thread.cuh: fetch behind its own back, and load operands of
// products as they want them; see hopper.hpp.
#pragma once

#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

struct StagedThread : GpuThread {
  __device__ __forceinline__ std::uint32_t shared_base() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(block_memory));
  }
  __device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, bool there) const {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void copy_word_async(std::uint32_t to, const void* from, bool there) const {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(to), "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
  }
  __device__ __forceinline__ void copy_commit() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <int N>
  __device__ __forceinline__ void copy_wait() const {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
  }
  template <bool TRANSPOSED>
  __device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], std::uint32_t row) const {
    if constexpr (TRANSPOSED)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(row)
                   : "memory");
    else
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(row)
                   : "memory");
  }
};

}  // namespace orrery::kernels::cuda
