// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/plan/stretches.hpp"

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
  std::vector<std::uint32_t> views;   // of its own tensors, counted from the first: those whose owner is its own
  bool lends = false;                 // one of them is a view of what the block owns
  bool borrows = false;               // an operand that is not one of them is a view of what others own

  bool owns(TensorId t) const { return t.value - first_own.value < num_own; }
};

RepeatedBlock repeated_block(const Plan& plan, OpId first, std::uint32_t num_ops);

/// Tensors from one to another.
struct TensorRange {
  std::uint32_t first = UINT32_MAX, last = 0;

  bool is_empty() const { return first > last; }
  std::size_t size() const { return is_empty() ? 0 : std::size_t{last} - first + 1; }
  void widen(TensorId t) {
    first = std::min(first, t.value);
    last = std::max(last, t.value);
  }
};

/// The ops of a class, where a verified plan says of a repetition that its operands are those of its block: all but
/// `others` of that name tensors moved by as much, and others are used alike.
class MovedStretches {
 public:
  struct Part : Stretch {
    const RepeatedBlock* block = nullptr;  // none: it has to be read op by op
  };

  MovedStretches() = default;
  MovedStretches(const Plan& plan, const RankClass& c);
  MovedStretches(MovedStretches&&) = default;  // parts point to blocks
  MovedStretches& operator=(MovedStretches&&) = default;
  std::span<const Part> parts() const { return parts_; }
  const std::map<OpId, RepeatedBlock>& blocks() const { return blocks_; }

 private:
  std::map<OpId, RepeatedBlock> blocks_;  // by their first op
  std::vector<Part> parts_;
};

/// Compares what repetitions touch with what their blocks do. All ids of the blocks are in range.
class BlockComparison {
 public:
  explicit BlockComparison(const Plan& plan);

  /// Whether two operands do alike with tensors that are alike.
  bool same_use(Operand x, Operand y) const;
  /// Whether the tensors of a repetition are moved as it says, and what it touches of others is used alike: owners that
  /// the block does not touch are added to `touched`. Its operands follow upon each other, as it says.
  bool is_moved(const Repetition& r, const RepeatedBlock& block, TensorRange& touched) const;

 private:
  bool has_moved_tensors(const RepeatedBlock& block, std::uint32_t by) const;
  bool is_moved_tensor(TensorId t, const RepeatedBlock& block, std::uint32_t by) const;
  bool alike(TensorId x, TensorId y) const;

  const Plan& plan_;
  std::vector<std::int64_t> elements_;  // per layout
};

}  // namespace orrery
