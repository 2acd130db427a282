// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/timeline/digest.hpp"

namespace orrery {

/// What a plan says over and over: blocks of ops that have the same works and streams have the same pattern. What is
/// known of one of them need not be found again for the others.
class Patterns {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  /// Consecutive ops: a copy of a block, or what lies between copies.
  struct Piece {
    std::uint32_t first = 0, num_ops = 0;
    std::uint32_t pattern = kNone;  // of a copy
  };

  explicit Patterns(const PlanDigest& plan);

  /// How many there are; they are numbered from 0.
  std::size_t size() const { return size_; }
  /// Consecutive ops, cut where copies that lie wholly among them begin and end.
  std::vector<Piece> pieces(std::size_t first, std::size_t num_ops) const;

 private:
  std::vector<Piece> copies_;  // of the whole plan, in order
  std::size_t size_ = 0;
};

}  // namespace orrery
