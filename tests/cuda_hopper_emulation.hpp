// SPDX-License-Identifier: Apache-2.0
// Kernels whose threads are those of kernels/cuda/hopper.hpp on the host. Products read the block's memory through
// their descriptors, as the PTX ISA defines them, when they are handed in and again when they are waited for: memory
// that changed between is a mistake. Sums that are under way are no numbers, copies land when they are waited for.
// Mistakes of a kernel are told by run_hopper_grid, as std::logic_error.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/hopper.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

/// Where the number (i, k) of an operand lies: i counts rows of A or columns of B, k runs along the sum. In bytes of
/// the block's memory.
enum class Major { K, MN };
std::uint32_t operand_at(std::uint64_t descriptor, Major major, int i, int k);

/// What the threads of a block know of one another, beside its memory.
struct HopperBlock {
  int unfenced = 0;                                 // threads whose writes products cannot see yet
  std::array<std::vector<std::uint64_t>, 4> given;  // descriptors of each group's products, in order
  std::string mistake;                              // the first one

  void complain(const char* what) {
    if (mistake.empty()) mistake = what;
  }
};

class EmulatedHopperThread : public EmulatedThread {
 public:
  /// The launch's memory does not begin at a multiple of 1024, so that kernels have to see to it.
  static constexpr std::uint32_t kBase = 1024 + 128;

  EmulatedHopperThread(BlockFibers* fibers, int thread, HopperBlock& block)
      : EmulatedThread{fibers, thread}, block_{block} {}
  /// The thread has ended: nothing may be under way.
  void finish() const;

  std::uint32_t shared_base() const { return kBase; }
  void copy_async(std::uint32_t to, const void* from, bool there) const { copy(to, from, there, 16); }
  void copy_word_async(std::uint32_t to, const void* from, bool there) const { copy(to, from, there, 4); }
  void copy_commit() const { ++batches_; }
  template <int N>
  void copy_wait() const {
    land(N);
  }
  template <bool TRANSPOSED>
  void load_matrices(std::uint32_t (&to)[4], std::uint32_t row) const {
    fibers->post(thread, &row, sizeof row);
    load_posted(to, TRANSPOSED);
  }
  void proxy_fence() const;
  void barrier_init(std::uint32_t at, std::uint32_t arrivals) const;
  void barrier_arrive(std::uint32_t at) const;
  bool barrier_wait(std::uint32_t at, std::uint32_t parity) const;
  void sync_group() const { fibers->wait_for_group(thread); }

  void products_fence() const { fenced_ = true; }
  template <int C, class T>
  void multiply(float (&d)[C][4], std::uint64_t a, std::uint64_t b, bool adds, T) const {
    hand_in({&d[0][0], C, {}, a, b, adds, nullptr, {}, &numbers_of<T>, {}, batch_});
  }
  template <int C, class T>
  void multiply(float (&d)[C][4], const std::uint32_t (&a)[4], std::uint64_t b, T) const {
    Product p{&d[0][0], C, {}, 0, b, true, a, {}, &numbers_of<T>, {}, batch_};
    fibers->post(thread, a, sizeof a);
    for (int lane = 0; lane < 4; ++lane)
      std::memcpy(p.rows[static_cast<std::size_t>(lane)].data(),
                  fibers->slot(thread, thread % gpu::kWarp / 4 * 4 + lane), sizeof a);
    hand_in(std::move(p));
  }
  void products_commit() const { ++batch_; }
  template <int N, int C>
  void products_wait(float (&d)[C][4]) const {
    await(N, &d[0][0]);
  }
  template <int N>
  void give_registers() const {}
  template <int N>
  void take_registers() const {}

 private:
  using Numbers = void (*)(const std::byte* at, int count, float* to);
  template <class T>
  static void numbers_of(const std::byte* at, int count, float* to) {
    for (int i = 0; i < count; ++i) {
      T x;
      std::memcpy(&x, at + i * int(sizeof x), sizeof x);
      to[i] = gpu::to_float(x);
    }
  }
  struct Product {
    float* d;
    int columns;  // eights of them
    std::vector<float> before;
    std::uint64_t a, b;
    bool adds;
    const std::uint32_t* registers;                    // A, or null: `a` says where
    std::array<std::array<std::uint32_t, 4>, 4> rows;  // A of the four lanes that share rows
    Numbers numbers;
    std::vector<float> after;
    int batch;
  };
  struct Landing {
    std::uint32_t to;
    const void* from;  // null: zeros
    std::size_t bytes;
    int batch;
  };
  std::byte* memory(std::uint32_t address) const;
  void copy(std::uint32_t to, const void* from, bool there, std::size_t bytes) const;
  void load_posted(std::uint32_t (&to)[4], bool transposed) const;
  using Sum = std::array<float, 16>;  // numbers of an operand that a product adds up over
  Sum row_of(const Product& p, int half) const;
  std::array<Sum, 2> columns_of(const Product& p, int first) const;
  std::vector<float> result_of(const Product& p) const;
  void hand_in(Product p) const;
  void await(int most, const float* d) const;
  void land(int most) const;

  HopperBlock& block_;
  mutable std::vector<Landing> landings_;
  mutable std::vector<Product> products_;
  mutable int batches_ = 0, batch_ = 0;
  mutable bool fenced_ = false, unfenced_ = false;
  mutable std::size_t given_ = 0;
};

template <class K>
struct HopperRun {
  const K* kernel;
  HopperBlock block;
};
template <class K>
void run_hopper_thread(const void* run, BlockFibers& fibers, int thread) {
  auto& r = *static_cast<HopperRun<K>*>(const_cast<void*>(run));
  const EmulatedHopperThread t{&fibers, thread, r.block};
  (*r.kernel)(t);
  t.finish();
}
template <class K>
void run_hopper_grid(const gpu::Launch& launch) {
  BlockFibers& fibers = BlockFibers::of_launch(launch.shared_bytes, launch.blocks);
  for (std::int64_t b = 0; b < launch.blocks; ++b) {
    HopperRun<K> run{static_cast<const K*>(launch.arguments), {}};
    fibers.start(b);
    fibers.run(&run_hopper_thread<K>, &run, K::kThreads);
    if (!run.block.mistake.empty()) throw std::logic_error{run.block.mistake};
  }
}

template <class... K>
void add_hopper_runners(gpu::KernelList<K...>, GridRunners& runners) {
  (runners.emplace(&gpu::kTagOf<K>, &run_hopper_grid<K>), ...);
}

}  // namespace orrery::testing
