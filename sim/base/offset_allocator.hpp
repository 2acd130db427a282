// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "sim/base/allocator.hpp"
#include "sim/base/open_table.hpp"

namespace orrery {

/// Places blocks in one range of offsets: best fit, the lowest offset among equals, neighbours joined when given back.
/// Sizes round up to `kUnit`; a block of no bytes takes one unit. What it reserves is the largest end of a block so
/// far.
class OffsetAllocator final : public Allocator {
 public:
  static constexpr std::int64_t kUnit = 64;

  explicit OffsetAllocator(std::int64_t capacity = INT64_MAX);

  std::optional<std::int64_t> allocate(std::int64_t bytes, std::int32_t stream = 0) override;
  /// A larger memory only: blocks stay where they are.
  void set_capacity(std::int64_t bytes) override;

  std::size_t num_blocks() const { return blocks_.size(); }

  struct Range {
    std::int64_t offset = 0, size = 0, requested = 0;
  };
  std::span<const Range> gaps() const { return gaps_; }  // by offset
  /// What calls come to that need not be made, as it is known: gives back the blocks of `gone`, has those of `taken`,
  /// and these gaps behind them. On the way there were up to `rise` bytes more than before, up to the offset `end`.
  void take_over(std::span<const Range> gone, std::span<const Range> taken, std::span<const Range> gaps,
                 std::int64_t rise, std::int64_t end);

 private:
  /// A block that is live.
  struct Block {
    Range range;
    std::uint64_t key() const { return static_cast<std::uint64_t>(range.offset / kUnit); }
    bool is_free() const { return range.size == 0; }
  };
  Range take_block(std::int64_t offset);
  void give_back(std::int64_t place) override;
  void add_gap(Range gap);

  std::vector<Range> gaps_;  // by offset; there are few at a time, and a vector is faster than a tree
  OpenTable<Block> blocks_;
  std::int64_t capacity_ = 0;
};

}  // namespace orrery
