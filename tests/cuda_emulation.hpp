// SPDX-License-Identifier: Apache-2.0
// Runs the kernels of kernels/cuda on the host, thread by thread: threads of a block that wait for one another are
// fibers. Threads that do not all come to a barrier, and grids that do not end, are errors.
#pragma once

#include <ucontext.h>

#include <array>
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

/// The threads of a block that run side by side. They are entered once and then run block after block.
class BlockFibers {
 public:
  using Body = void (*)(const void* kernel, BlockFibers& block, int thread);
  static constexpr std::size_t kSlot = 96;  // bytes

  /// Those of this thread of the host, for a launch of `blocks` blocks with `shared_bytes` of memory each.
  static BlockFibers& of_launch(std::size_t shared_bytes, std::int64_t blocks);
  /// Makes memory of the block hold nothing of use, and says which block comes.
  void start(std::int64_t block);
  /// Runs `threads` fibers to their end. Throws std::logic_error when they wait for one another for ever.
  void run(Body body, const void* kernel, int threads);

  std::int64_t block() const { return block_; }
  std::int64_t blocks() const { return blocks_; }
  std::byte* shared() { return reinterpret_cast<std::byte*>(shared_.data()); }
  /// Waits until all threads of the block (or of the thread's warp) have come as often as this one.
  void wait_for_block() { wait_at(at_block_, threads_); }
  void wait_for_warp(int thread) { wait_at(at_warp_[thread / gpu::kWarp], gpu::kWarp); }
  void wait_for_group(int thread) { wait_at(at_group_[thread / kGroup], kGroup); }  // of four warps
  /// Waits for what others bring about; they say with `moved` that they have done something.
  template <class F>
  void wait_until(F ready) {
    while (!ready()) yield();
  }
  void moved() { ++moves_; }
  /// Puts `bytes` into the slot of a thread, waits for its warp; slots of the warp are then read by `slot`.
  void post(int thread, const void* from, std::size_t bytes);
  const std::byte* slot(int thread, int lane) const {
    const int warp = thread / gpu::kWarp;
    return fibers_[static_cast<std::size_t>(warp * gpu::kWarp + lane)].slots[at_warp_[warp].times % 2].data();
  }

 private:
  static constexpr int kGroup = 4 * gpu::kWarp;
  static constexpr int kMostThreads = 1024;

  using Place = std::array<void*, 5>;  // of __builtin_setjmp, which saves what its function needs and no more
  struct Fiber {
    Place place;
    std::unique_ptr<std::byte[]> stack;
    bool ended = true;  // with its block
    std::array<std::array<std::byte, kSlot>, 2> slots;
  };
  struct Barrier {
    int came = 0;
    std::uint64_t times = 0;  // that all came
  };
  static void enter(unsigned high, unsigned low);
  void begin(Fiber& fiber);
  // Jumps leave no frame behind but that of `next`: the address sanitizer need not, and on these stacks cannot, look
  // for more.
  [[noreturn, gnu::noinline, gnu::no_sanitize_address]] void next();
  [[gnu::noinline, gnu::no_sanitize_address]] void yield();
  [[gnu::noinline, gnu::no_sanitize_address]] void pass();
  void wait_at(Barrier& barrier, int threads);

  std::int64_t block_ = 0, blocks_ = 0;
  std::vector<gpu::Quad> shared_;
  std::vector<Fiber> fibers_;
  Barrier at_block_;
  std::array<Barrier, kMostThreads / gpu::kWarp> at_warp_;
  std::array<Barrier, kMostThreads / kGroup> at_group_;
  ucontext_t first_entry_, main_;
  Place scheduler_;
  Body body_ = nullptr;
  const void* kernel_ = nullptr;
  int threads_ = 0, left_ = 0;  // of the block; of those, not ended
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
  void sync() const { fibers->wait_for_block(); }
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
  std::uint32_t ballot(bool b) const {
    fibers->post(thread, &b, sizeof b);
    std::uint32_t bits = 0;
    for (int lane = 0; lane < gpu::kWarp; ++lane) {
      bool other = false;
      std::memcpy(&other, fibers->slot(thread, lane), sizeof other);
      bits |= std::uint32_t{other} << lane;
    }
    return bits;
  }
  /// d += A·B of mma.m16n8k16, or m16n8k32 of 8 bits (PTX ISA, "Matrix fragments for mma.m16n8k16" and "…k32"). What
  /// the registers hold are numbers before they are posted: many lanes read each of them.
  template <class A, class B = A>
  void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], A, B = {}) const {
    constexpr int kWord = 4 / sizeof(A), kHalf = 4 * kWord;  // numbers of a register, and of the four lanes of a row
    float own[6 * kWord];
    static_assert(sizeof own <= BlockFibers::kSlot);
    numbers_of<A>(a, own);
    numbers_of<B>(b, own + 4 * kWord);
    fibers->post(thread, own, sizeof own);
    const int group = thread % gpu::kWarp / 4, in_group = thread % 4;
    float rows[2][2 * kHalf], cols[2][2 * kHalf];  // of A, of B: what this thread multiplies
    const auto fetch = [&](float* to, int lane, int reg) {
      constexpr std::size_t kBytes = kWord * sizeof(float);
      std::memcpy(to, fibers->slot(thread, lane) + kBytes * static_cast<std::size_t>(reg), kBytes);
    };
    for (int which = 0; which < 2; ++which)
      for (int half = 0; half < 2; ++half)
        for (int lane = 0; lane < 4; ++lane) {
          const int at = half * kHalf + lane * kWord;
          fetch(rows[which] + at, group * 4 + lane, which + 2 * half);
          fetch(cols[which] + at, (2 * in_group + which) * 4 + lane, 4 + half);
        }
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < 2 * kHalf; ++k) d[i] += rows[i / 2][k] * cols[i % 2][k];
  }

 private:
  static float number(gpu::bf16 x) { return gpu::to_float(x); }
  static float number(gpu::f16 x) { return gpu::to_float(x); }
  static float number(gpu::e4m3 x) { return static_cast<float>(from_e4m3(x.bits)); }
  static float number(gpu::e5m2 x) { return static_cast<float>(from_e5m2(x.bits)); }
  /// Of registers that hold several of type T each.
  template <class T, std::size_t N>
  static void numbers_of(const std::uint32_t (&registers)[N], float* to) {
    T x[N * sizeof(std::uint32_t) / sizeof(T)];
    std::memcpy(x, registers, sizeof registers);
    for (const T& one : x) *to++ = number(one);
  }
};

template <class K>
void run_thread(const void* kernel, BlockFibers& block, int thread) {
  (*static_cast<const K*>(kernel))(EmulatedThread{&block, thread});
}

/// Runs one launch of a kernel of type K.
template <class K>
void run_grid(const gpu::Launch& launch) {
  BlockFibers& block = BlockFibers::of_launch(launch.shared_bytes, launch.blocks);
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
