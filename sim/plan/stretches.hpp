// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// Consecutive ops of a class: a block that repeats an earlier one, or what lies between such blocks.
struct Stretch {
  static constexpr std::size_t kNone = SIZE_MAX;
  std::size_t first = 0, num_ops = 0;
  OpId like;                       // the first op of what it repeats; none: it repeats nothing
  std::size_t repetition = kNone;  // in Plan::repetitions
};

/// The ops of a class from the first to the last.
std::vector<Stretch> stretches_of(const Plan& plan, const RankClass& c);

/// Per work: what an op reads and writes, which is the most that it reaches of an operand. Messages reach all.
std::vector<Bytes> reach_of_works(const Plan& plan, const Bindings& bindings);

}  // namespace orrery
