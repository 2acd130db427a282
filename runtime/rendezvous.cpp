// SPDX-License-Identifier: Apache-2.0
#include "runtime/rendezvous.hpp"

namespace orrery {

void Signal::wait(std::uint32_t round) {
  for (;;) {
    const std::uint32_t value = value_.load(std::memory_order_acquire);
    if (value == round) return;
    if (value == kCancelled) throw Cancelled{};
    value_.wait(value);
  }
}

void Gate::pass(std::uint32_t threads, std::uint32_t round) {
  const std::uint32_t target = threads * round;
  std::uint32_t value = arrived_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (value == target) arrived_.notify_all();
  while ((value & kCancelled) == 0 && value < target) {
    arrived_.wait(value);
    value = arrived_.load(std::memory_order_acquire);
  }
  if (value & kCancelled) throw Cancelled{};
}

void Gate::cancel() {
  arrived_.fetch_or(kCancelled, std::memory_order_acq_rel);
  arrived_.notify_all();
}

// Each side first says what it has done or wants, then looks at the other: one of them sees the other.

void Progress::advance() {
  const std::uint32_t done = done_.fetch_add(1) + 1;
  if ((done & ~kCancelled) >= wanted_.load()) done_.notify_all();
}

void Progress::wait(std::uint32_t steps) {
  for (;;) {
    std::uint32_t done = done_.load(std::memory_order_acquire);
    if (done & kCancelled) throw Cancelled{};
    if (done >= steps) return;
    std::uint32_t wanted = wanted_.load();
    while (steps < wanted && !wanted_.compare_exchange_weak(wanted, steps)) {
    }
    done = done_.load();
    if ((done & kCancelled) == 0 && done < steps) done_.wait(done);
  }
}

void Progress::cancel() {
  done_.fetch_or(kCancelled);
  done_.notify_all();
}

}  // namespace orrery
