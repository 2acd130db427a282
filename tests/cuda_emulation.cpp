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

void BlockFibers::start(std::int64_t block) {
  block_ = block;
  std::fill(shared_.begin(), shared_.end(), gpu::Quad{{~0u, ~0u, ~0u, ~0u}});
}

void BlockFibers::enter(unsigned high, unsigned low) {
  auto& self = *reinterpret_cast<BlockFibers*>(static_cast<std::uintptr_t>(high) << 32 | low);
  self.body_(self.kernel_, self, self.running_);
  self.fibers_[static_cast<std::size_t>(self.running_)].ended = true;
  ++self.moves_;
  _longjmp(self.scheduler_, 1);
}

/// Enters a fiber for the first time; after that jumps do, which ask the system for nothing.
void BlockFibers::begin(Fiber& f) {
  f.started = true;
  getcontext(&first_entry_);
  first_entry_.uc_stack.ss_sp = f.stack.get();
  first_entry_.uc_stack.ss_size = kStack;
  first_entry_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&first_entry_, reinterpret_cast<void (*)()>(&BlockFibers::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
  swapcontext(&main_, &first_entry_);
}

void BlockFibers::resume(Fiber& f) {
  if (_setjmp(scheduler_) != 0) return;
  if (!f.started) begin(f);
  _longjmp(f.place, 1);
}

void BlockFibers::run(Body body, const void* kernel, int threads) {
  body_ = body;
  kernel_ = kernel;
  fibers_.resize(static_cast<std::size_t>(threads));
  for (Fiber& f : fibers_) {
    if (!f.stack) f.stack = std::make_unique_for_overwrite<std::byte[]>(kStack);
    f.started = f.ended = false;
    f.at_block = f.at_warp = f.at_group = 0;
  }
  const auto left = [&] {
    return std::any_of(fibers_.begin(), fibers_.end(), [](const Fiber& f) { return !f.ended; });
  };
  while (left()) {
    const std::uint64_t before = moves_;
    for (running_ = 0; running_ < threads; ++running_)
      if (Fiber& f = fibers_[static_cast<std::size_t>(running_)]; !f.ended) resume(f);
    if (moves_ == before)
      throw std::logic_error{"threads of a block wait for others that have ended or wait elsewhere"};
  }
}

void BlockFibers::yield() {
  if (_setjmp(fibers_[static_cast<std::size_t>(running_)].place) == 0) _longjmp(scheduler_, 1);
}

bool BlockFibers::all_came(int first, int last, std::uint64_t Fiber::*count, std::uint64_t times) const {
  return std::all_of(fibers_.begin() + first, fibers_.begin() + last,
                     [&](const Fiber& f) { return f.*count >= times; });
}

void BlockFibers::wait_for_block(int thread) {
  const std::uint64_t times = ++fibers_[static_cast<std::size_t>(thread)].at_block;
  ++moves_;
  while (!all_came(0, static_cast<int>(fibers_.size()), &Fiber::at_block, times)) yield();
}

void BlockFibers::wait_for_warp(int thread) {
  const std::uint64_t times = ++fibers_[static_cast<std::size_t>(thread)].at_warp;
  ++moves_;
  const int first = thread / gpu::kWarp * gpu::kWarp;
  while (!all_came(first, first + gpu::kWarp, &Fiber::at_warp, times)) yield();
}

void BlockFibers::wait_for_group(int thread) {
  constexpr int kThreads = 4 * gpu::kWarp;
  const std::uint64_t times = ++fibers_[static_cast<std::size_t>(thread)].at_group;
  ++moves_;
  const int first = thread / kThreads * kThreads;
  while (!all_came(first, first + kThreads, &Fiber::at_group, times)) yield();
}

/// Two slots in turn: whoever writes the next one knows that all have read the one before the last.
void BlockFibers::post(int thread, const void* from, std::size_t bytes) {
  Fiber& f = fibers_[static_cast<std::size_t>(thread)];
  std::memcpy(f.slots[(f.at_warp + 1) % 2].data(), from, bytes);
  wait_for_warp(thread);
}

const std::byte* BlockFibers::slot(int thread, int lane) const {
  const auto first = static_cast<std::size_t>(thread / gpu::kWarp * gpu::kWarp);
  const std::uint64_t turn = fibers_[static_cast<std::size_t>(thread)].at_warp % 2;
  return fibers_[first + static_cast<std::size_t>(lane)].slots[turn].data();
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
