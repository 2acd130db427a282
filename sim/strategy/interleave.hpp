// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/plan.hpp"

namespace orrery {

/// A plan whose passes hide the exchanges of each other's experts: where the backward pass of one microbatch and the
/// forward pass of another follow each other on a rank, their ops change places, a piece of one and a piece of the
/// other in turn. A piece ends with an exchange, which runs on a stream of its own beside the next piece
/// (Megatron-Core's overlap of expert parallelism, the idea of DualPipe in arXiv 2412.19437). Ops, and the order within
/// each pass, stay as they were. Passes without exchanges stay where they are.
Plan interleave_passes(const Plan& plan);

}  // namespace orrery
