// SPDX-License-Identifier: Apache-2.0
// How threads of one execution wait for one another, and how all are woken when one of them fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/awaited.hpp"
#include "runtime/op_call.hpp"
#include "sim/plan/collective_steps.hpp"

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
  Awaited value_{0};
};

/// Lets threads pass when all of a fixed number have arrived, once per round.
class Gate {
 public:
  void pass(std::uint32_t threads, std::uint32_t round);
  void cancel();
  void reset() { arrived_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr std::uint32_t kCancelled = 1u << 31;
  Awaited arrived_{0};
};

/// How many steps of a collective a member has ended. Who waits says for how many: nobody is woken before the first of
/// them has reason to be.
class alignas(64) Progress {
 public:
  void reset() {
    done_.store(0, std::memory_order_relaxed);
    wanted_.store(~0u, std::memory_order_relaxed);
  }
  void advance();
  void wait(std::uint32_t steps);
  void cancel();

 private:
  static constexpr std::uint32_t kCancelled = 1u << 31;
  Awaited done_{0};
  std::atomic<std::uint32_t> wanted_{~0u};  // the fewest that somebody has waited for
};

/// One collective of one communicator, or one message: who takes part and where their operands are.
struct Meeting {
  struct Seat {
    const OpRecord* op = nullptr;
    const std::uintptr_t* places = nullptr;
    std::byte* stage = nullptr;  // scratch of the collective's algorithm
    RankId rank = {};
    bool is_here = true;  // not of another process
    int process = 0;      // of those that have a share of the ranks
  };
  explicit Meeting(std::size_t members) : seats(members), progress{std::make_unique<Progress[]>(members)} {}

  std::vector<Seat> seats;  // in rank order; of a message: sender, receiver
  CollectiveShape shape;    // of a collective
  std::unique_ptr<Progress[]> progress;
  Gate before, after;  // nobody starts before all stand here, nobody goes on before all have finished

  /// Whether it has members of several processes: the same in all of them.
  bool crosses() const {
    return std::any_of(seats.begin(), seats.end(), [&](const Seat& s) { return s.process != seats.front().process; });
  }
  std::uintptr_t place(std::size_t seat, const OperandRecord& operand) const {
    return address(operand, seats[seat].places);
  }
};

}  // namespace orrery
