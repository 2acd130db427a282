// SPDX-License-Identifier: Apache-2.0
// What a plan that is executed again and again touches, and what it has touched in between: what caches keep follows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// A part of what an op of some work touches.
struct Touch {
  std::uint8_t operand = 0;  // its place among the op's operands
  bool writes = false, reads = false;
  bool carried = false;  // touched last by the execution before
  Bytes bytes;
  Bytes distance;  // different bytes that the rank has touched since it touched these
  Flops work;      // and the arithmetic it has done
};

/// All that an op of some work touches: the mean over the ops of a plan that have this work, distances apart where they
/// differ by more than a tenth, arithmetic by more than a quarter.
struct Reuse {
  std::vector<Touch> touches;
};

/// Of each work of a plan, when executions follow one another and storage is given out best-fit. Leaves out that
/// streams run side by side: ops count in plan order, and strided operands count as if they touched all between their
/// ends. Scratch of kernels lies between as well, and its own touches are left out. What one op touches of 4 KiB, or of
/// a 16,384th of what the plan holds, counts as touched at once; lines of 64 bytes are told apart. Costs time in
/// proportion to the bytes that all operands together hold, in such pieces.
std::vector<Reuse> reuse_of_works(const Plan& plan, const Bindings& bindings);

/// What ops of one rank of the first class reach of a persistent tensor in an execution.
struct TouchedTensor {
  std::string name;
  Bytes bytes;
};

/// What one execution of a plan touches. A lookup reaches the rows it picks, attention the keys there are.
struct Touched {
  Bytes working_set;  // on a rank, in the mean over the ranks: persistent tensors, and the most that others hold
  std::vector<TouchedTensor> tensors;  // by name
};
Touched touched_by(const Plan& plan, const Bindings& bindings);

/// Of what one execution touches, without its tensors.
Bytes working_set(const Plan& plan, const Bindings& bindings);

}  // namespace orrery
