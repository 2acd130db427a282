// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// Consecutive ops of a class: a block that repeats an earlier one, or what lies between such blocks.
struct Stretch {
  std::size_t first = 0, num_ops = 0;
  OpId like;                                           // the first op of what it repeats; none: it repeats nothing
  std::uint32_t moved = kNotMoved, first_operand = 0;  // see Repetition
};

/// The ops of a class from the first to the last.
std::vector<Stretch> stretches_of(const Plan& plan, const RankClass& c);

/// An op that comes after others.
struct WaitingOp {
  std::uint32_t op = 0, first_dep = 0;  // in Plan::ops; in Plan::deps
  std::uint32_t num_deps = 0;

  std::span<const OpId> deps(const Plan& plan) const { return {plan.deps.data() + first_dep, num_deps}; }
};

/// What puts the ops of a plan in order, without all else that is known of them.
struct OpOrder {
  std::vector<Stream> streams;   // per op
  std::vector<WaitingOp> waits;  // in order

  Stream stream_of(OpId op) const { return streams[op.index()]; }
  /// Of a class.
  std::span<const WaitingOp> waits_of(const RankClass& c) const;
};

/// An op that does one of some works.
struct DoingOp {
  std::uint32_t op = 0;  // in Plan::ops
  WorkId work;
};
/// The ops of a class that do one of some works (one entry per work of the plan), in order. A block that others repeat
/// is looked into once.
std::vector<DoingOp> ops_that_do(const Plan& plan, const RankClass& c, const std::vector<bool>& works);

/// What an op reaches at most of its operands: what it reads and writes together, and of the table whose rows it picks
/// those rows, each once: of V rows, n picks that are uniformly random meet V·(1 − (1 − 1/V)ⁿ). Messages reach all.
/// Leaves out that words of a text repeat more often.
class Reach {
 public:
  Reach(const Work& work, const Bindings& bindings);
  /// It picks so many different rows.
  void know_rows(std::int64_t rows);
  bool is_lookup() const { return table_ != SIZE_MAX; }
  Bytes of(std::size_t operand) const { return operand == table_ ? rows_ : each_; }

 private:
  Bytes each_, rows_, row_;
  std::size_t table_ = SIZE_MAX;
};

/// Per work. Where the plan itself holds the indices (positions), the rows that they name count.
std::vector<Reach> reach_of_works(const Plan& plan, const Bindings& bindings);

}  // namespace orrery
