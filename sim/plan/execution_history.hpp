// SPDX-License-Identifier: Apache-2.0
// Plans that are executed in turn: what caches have seen of others before one is executed again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/plan/reuse.hpp"

namespace orrery {

/// More than any cache holds: what lies between an execution and one that there never was.
constexpr double kBeyondCaches = 1e15;  // bytes

/// Executions of plans that share persistent tensors by name, one after another on one rank: its first class stands for
/// all. Memory in proportion to the tensors of the plans, time times the executions that they were touched last by.
class ExecutionHistory {
 public:
  /// Tells of the next execution; fills in its working set and what came before it. Bytes between are those of the
  /// middle one of the plan's bytes: of tensors that it does not touch and that were touched since. Where less came
  /// between than a 64th of what it touches, it counts as executed again. What nobody has touched is in no cache: the
  /// first execution, a prompt as a rule, is cold, and what follows with the same weights settles from there. Leaves
  /// out what plans take and give back, so that a long prompt leaves more of the weights than it does.
  void next(const Plan& plan, Bindings& bindings);

 private:
  Interlude came_before(const std::vector<TouchedTensor>& touched);

  struct Known {
    Bytes bytes;
    std::uint64_t last = 0;  // which execution
    Interlude before;        // it
  };
  std::map<std::string, Known> tensors_;  // by name
  std::uint64_t now_ = 0;
};

}  // namespace orrery
