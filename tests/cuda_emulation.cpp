// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_emulation.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace orrery::testing {
namespace {

constexpr std::size_t kStack = 64 << 10;

}  // namespace

double from_e4m3(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size = (code & 0x7f) == 0x7f ? NAN
                      : exponent == 0       ? std::ldexp(mantissa, -9)
                                            : std::ldexp(8 + mantissa, exponent - 10);
  return code & 0x80 ? -size : size;
}

/// The upper half of an f16.
double from_e5m2(std::uint8_t code) { return gpu::to_float(gpu::f16{static_cast<std::uint16_t>(code << 8)}); }

BlockFibers& BlockFibers::of_launch(std::size_t shared_bytes, std::int64_t blocks) {
  static thread_local BlockFibers fibers;
  fibers.blocks_ = blocks;
  fibers.shared_.resize(shared_bytes / sizeof(gpu::Quad) + 1);
  return fibers;
}

void BlockFibers::start(std::int64_t block) {
  block_ = block;
  std::fill(shared_.begin(), shared_.end(), gpu::Quad{{~0u, ~0u, ~0u, ~0u}});
}

void BlockFibers::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<BlockFibers*>(static_cast<std::uintptr_t>(high) << 32 | low);
  while (true) {
    self.body_(self.kernel_, self, self.running_);
    self.fibers_[static_cast<std::size_t>(self.running_)].ended = true;
    --self.left_;
    self.moved();
    self.yield();
  }
}

/// Enters a fiber for the first time; after that jumps do, which ask the system for nothing.
void BlockFibers::begin(Fiber& f) {
  f.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
  getcontext(&first_entry_);
  first_entry_.uc_stack.ss_sp = f.stack.get();
  first_entry_.uc_stack.ss_size = kStack;
  first_entry_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&first_entry_, reinterpret_cast<void (*)()>(&BlockFibers::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
  swapcontext(&main_, &first_entry_);
}

/// Goes on with the next thread of the block that has not ended, behind the last one with whoever called `run`.
void BlockFibers::next() {
  while (++running_ < threads_) {
    Fiber& f = fibers_[static_cast<std::size_t>(running_)];
    if (f.ended) continue;
    if (!f.stack) begin(f);
    __builtin_longjmp(f.place.data(), 1);
  }
  __builtin_longjmp(scheduler_.data(), 1);
}

void BlockFibers::yield() {
  if (__builtin_setjmp(fibers_[static_cast<std::size_t>(running_)].place.data()) == 0) next();
}

/// Lets each thread that has not ended run until it waits or ends.
void BlockFibers::pass() {
  running_ = -1;
  if (__builtin_setjmp(scheduler_.data()) == 0) next();
}

void BlockFibers::run(Body body, const void* kernel, int threads) {
  body_ = body;
  kernel_ = kernel;
  threads_ = left_ = threads;
  if (fibers_.size() < static_cast<std::size_t>(threads)) fibers_.resize(static_cast<std::size_t>(threads));
  for (int i = 0; i < threads; ++i) fibers_[static_cast<std::size_t>(i)].ended = false;
  while (left_ > 0) {
    const std::uint64_t before = moves_;
    pass();
    if (moves_ == before) {
      fibers_.clear();  // they stand in the middle of a block
      at_block_ = {}, at_warp_ = {}, at_group_ = {};
      throw std::logic_error{"threads of a block wait for others that have ended or wait elsewhere"};
    }
  }
}

void BlockFibers::wait_at(Barrier& b, int threads) {
  const std::uint64_t times = b.times;
  moved();
  if (++b.came < threads) {
    while (b.times == times) yield();
  } else {
    b.came = 0;
    ++b.times;
  }
}

/// Two slots in turn: whoever writes the next one knows that all have read the one before the last.
void BlockFibers::post(int thread, const void* from, std::size_t bytes) {
  Fiber& f = fibers_[static_cast<std::size_t>(thread)];
  const std::uint64_t next = at_warp_[thread / gpu::kWarp].times + 1;
  std::memcpy(f.slots[next % 2].data(), from, bytes);
  wait_for_warp(thread);
}

GridRunners all_runners() {
  GridRunners runners;
  add_elementwise_runners(runners);
  add_row_runners(runners);
  add_token_runners(runners);
  add_attention_runners(runners);
  add_expert_runners(runners);
  add_model_runners(runners);
  add_eight_bit_runners(runners);
  add_hopper_runners(runners);
  return runners;
}

}  // namespace orrery::testing
