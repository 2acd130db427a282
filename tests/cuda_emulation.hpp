// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of kernels/cuda on the host, thread by thread: threads of a block that wait for one another are
// fibers. Threads that do not all come to a barrier, and grids that do not end, are errors.
#pragma once

#include <ucontext.h>

#include <array>
#include <csetjmp>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "kernels/cuda/eight_bit.hpp"
#include "kernels/cuda/kernel.hpp"

namespace orrery::testing {

namespace gpu = orrery::kernels::cuda;

/// What a number of 8 bits stands for: (1 + m/8)·2^(e−7), m·2⁻⁹ where e is 0.
double from_e4m3(std::uint8_t code);
double from_e5m2(std::uint8_t code);

/// The threads of a block that run side by side.
class BlockFibers {
 public:
  using Body = void (*)(const void* kernel, BlockFibers& block, int thread);
  static constexpr std::size_t kSlot = 32;

  BlockFibers(std::size_t shared_bytes, std::int64_t blocks)
      : blocks_{blocks}, shared_(shared_bytes / sizeof(gpu::Quad) + 1) {}
  /// Makes memory of the block hold nothing of use, and says which block comes.
  void start(std::int64_t block);
  /// Runs `threads` fibers to their end. Throws std::logic_error when they wait for one another for ever.
  void run(Body body, const void* kernel, int threads);

  std::int64_t block() const { return block_; }
  std::int64_t blocks() const { return blocks_; }
  std::byte* shared() { return reinterpret_cast<std::byte*>(shared_.data()); }
  /// Waits until all threads of the block (or of the thread's warp) have come as often as this one.
  void wait_for_block(int thread);
  void wait_for_warp(int thread);
  void wait_for_group(int thread);  // of four warps
  /// Waits for what others bring about; they say with `moved` that they have done something.
  template <class F>
  void wait_until(F ready) {
    while (!ready()) yield();
  }
  void moved() { ++moves_; }
  /// Puts `bytes` into the slot of a thread, waits for its warp; slots of the warp are then read by `slot`.
  void post(int thread, const void* from, std::size_t bytes);
  const std::byte* slot(int thread, int lane) const;

 private:
  struct Fiber {
    std::jmp_buf place;
    std::unique_ptr<std::byte[]> stack;
    std::uint64_t at_block = 0, at_warp = 0, at_group = 0;  // barriers that it has come to
    bool started = false, ended = false;
    std::array<std::array<std::byte, kSlot>, 2> slots;
  };
  static void enter(unsigned high, unsigned low);
  void resume(Fiber& fiber);
  void begin(Fiber& fiber);
  bool all_came(int first, int last, std::uint64_t Fiber::*count, std::uint64_t times) const;
  void yield();

  std::int64_t block_ = 0, blocks_;
  std::vector<gpu::Quad> shared_;
  std::vector<Fiber> fibers_;
  ucontext_t first_entry_, main_;
  std::jmp_buf scheduler_;
  Body body_ = nullptr;
  const void* kernel_ = nullptr;
  int running_ = 0;
  std::uint64_t moves_ = 0;  // barriers come to, threads ended
};

/// A thread as kernels see it.
struct EmulatedThread {
  BlockFibers* fibers;
  int thread;

  int index() const { return thread; }
  std::int64_t block() const { return fibers->block(); }
  std::int64_t blocks() const { return fibers->blocks(); }
  void sync() const { fibers->wait_for_block(thread); }
  void sync_warp() const { fibers->wait_for_warp(thread); }
  template <class V>
  V* shared(std::size_t byte_offset = 0) const {
    return reinterpret_cast<V*>(fibers->shared() + byte_offset);
  }
  template <class V>
  V shuffle_xor(V x, int mask) const {
    return broadcast(x, thread % gpu::kWarp ^ mask);
  }
  template <class V>
  V broadcast(V x, int lane) const {
    static_assert(sizeof(V) <= BlockFibers::kSlot);
    fibers->post(thread, &x, sizeof x);
    V y;
    std::memcpy(&y, fibers->slot(thread, lane), sizeof y);
    return y;
  }
  /// d += A·B of mma.m16n8k16, or m16n8k32 of 8 bits (PTX ISA, "Matrix fragments for mma.m16n8k16" and "…k32").
  template <class A, class B = A>
  void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], A, B = {}) const {
    std::uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    fibers->post(thread, own, sizeof own);
    const int group = thread % gpu::kWarp / 4, in_group = thread % 4;
    constexpr int kWord = 4 / sizeof(A), kHalf = 4 * kWord;  // numbers of a register, and of the four lanes of a row
    const auto element = [&]<class T>(T, int lane, int reg, int place) {
      T x[kWord];
      std::memcpy(x, fibers->slot(thread, lane) + 4 * reg, sizeof x);
      return number(x[place]);
    };
    for (int i = 0; i < 4; ++i) {
      const int row = group + (i >= 2 ? 8 : 0), col = 2 * in_group + i % 2;
      for (int k = 0; k < 2 * kHalf; ++k)
        d[i] += element(A{}, row % 8 * 4 + k % kHalf / kWord, (row >= 8 ? 1 : 0) + (k >= kHalf ? 2 : 0), k % kWord) *
                element(B{}, col * 4 + k % kHalf / kWord, 4 + (k >= kHalf ? 1 : 0), k % kWord);
    }
  }

 private:
  static float number(gpu::bf16 x) { return gpu::to_float(x); }
  static float number(gpu::f16 x) { return gpu::to_float(x); }
  static float number(gpu::e4m3 x) { return static_cast<float>(from_e4m3(x.bits)); }
  static float number(gpu::e5m2 x) { return static_cast<float>(from_e5m2(x.bits)); }
};

template <class K>
void run_thread(const void* kernel, BlockFibers& block, int thread) {
  (*static_cast<const K*>(kernel))(EmulatedThread{&block, thread});
}

/// Runs one launch of a kernel of type K.
template <class K>
void run_grid(const gpu::Launch& launch) {
  BlockFibers block{launch.shared_bytes, launch.blocks};
  for (std::int64_t b = 0; b < launch.blocks; ++b) {
    block.start(b);
    if constexpr (K::kCooperates)
      block.run(&run_thread<K>, launch.arguments, K::kThreads);
    else
      for (int i = 0; i < K::kThreads; ++i) run_thread<K>(launch.arguments, block, i);
  }
}

using GridRunner = void (*)(const gpu::Launch&);
using GridRunners = std::map<const gpu::KernelTag*, GridRunner>;

template <class... K>
void add_runners(gpu::KernelList<K...>, GridRunners& runners) {
  (runners.emplace(&gpu::kTagOf<K>, &run_grid<K>), ...);
}

/// All kernels of kernels/cuda. One source each, as they take long to compile.
GridRunners all_runners();
void add_elementwise_runners(GridRunners& runners);
void add_row_runners(GridRunners& runners);
void add_token_runners(GridRunners& runners);
void add_attention_runners(GridRunners& runners);
void add_expert_runners(GridRunners& runners);
void add_model_runners(GridRunners& runners);
void add_eight_bit_runners(GridRunners& runners);
void add_hopper_runners(GridRunners& runners);

}  // namespace orrery::testing
