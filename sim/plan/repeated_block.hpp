// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// A block of ops that others repeat, and what its operands name: tensors that were made for the block, which a copy
/// has anew, all moved by as much; or tensors of others. The former are a range of tensors, from the first to the last
/// that belongs to an owner whose storage the block takes.
struct RepeatedBlock {
  std::uint32_t first_operand = 0, num_operands = 0;
  bool is_contiguous = true;          // operands of its ops follow upon each other
  std::uint32_t first_taken = 0;      // operand, counted in the block, that takes storage first
  TensorId first_own;                 // none: it takes no storage
  std::uint32_t num_own = 0;          // tensors
  std::vector<std::uint32_t> others;  // operands, counted in the block, that name tensors of others

  bool owns(TensorId t) const { return t.value - first_own.value < num_own; }
};

RepeatedBlock repeated_block(const Plan& plan, OpId first, std::uint32_t num_ops);

/// Of a repetition whose tensors are not those of its block, moved by as much.
constexpr std::uint32_t kNotMoved = UINT32_MAX;

}  // namespace orrery
