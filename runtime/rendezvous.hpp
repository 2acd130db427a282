// SPDX-License-Identifier: Apache-2.0
// How threads of one execution wait for one another, and how all are woken when one of them fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "runtime/op_call.hpp"

namespace orrery {

/// Thrown in a thread that waits for one that has failed; never leaves the executor.
struct Cancelled {};

/// Raised once per execution of a plan; `round` counts executions from 1.
class Signal {
 public:
  void raise(std::uint32_t round) {
    value_.store(round, std::memory_order_release);
    value_.notify_all();
  }
  void wait(std::uint32_t round);
  void cancel() { raise(kCancelled); }
  void reset() { value_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kCancelled = ~0u;
  std::atomic<std::uint32_t> value_{0};
};

/// Lets threads pass when all of a fixed number have arrived, once per round.
class Gate {
 public:
  void pass(std::uint32_t threads, std::uint32_t round);
  void cancel();
  void reset() { arrived_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kCancelled = 1u << 31;
  std::atomic<std::uint32_t> arrived_{0};
};

/// One collective of one communicator, or one message: who takes part and where their operands are.
struct Meeting {
  struct Seat {
    const OpRecord* op = nullptr;
    const std::uintptr_t* places = nullptr;
  };
  std::vector<Seat> seats;  // in rank order; of a message: sender, receiver
  Gate before, after;       // nobody starts before all stand here, nobody goes on before all have finished

  std::uintptr_t place(std::size_t seat, const OperandRecord& operand) const {
    return seats[seat].places[operand.owner.index()] + static_cast<std::uintptr_t>(operand.byte_offset);
  }
};

}  // namespace orrery
