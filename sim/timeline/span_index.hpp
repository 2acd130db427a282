// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "sim/timeline/timeline.hpp"

namespace orrery {

/// A position in Timeline::spans.
using SpanIndex = std::uint32_t;
constexpr SpanIndex kNoSpan = UINT32_MAX;

/// Spans in the order of a table. A timeline that is in that order needs no list of them.
class SpanList {
 public:
  class Iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = SpanIndex;
    using difference_type = std::ptrdiff_t;
    using pointer = const SpanIndex*;
    using reference = SpanIndex;
    Iterator() = default;
    Iterator(const SpanIndex* order, std::uint32_t at) : order_{order}, at_{at} {}
    SpanIndex operator*() const { return order_ == nullptr ? at_ : order_[at_]; }
    Iterator& operator++() { return ++at_, *this; }
    Iterator& operator--() { return --at_, *this; }
    Iterator& operator+=(std::ptrdiff_t n) { return at_ += static_cast<std::uint32_t>(n), *this; }
    std::ptrdiff_t operator-(const Iterator& o) const { return std::ptrdiff_t{at_} - std::ptrdiff_t{o.at_}; }
    bool operator==(const Iterator& o) const { return at_ == o.at_; }

   private:
    const SpanIndex* order_ = nullptr;
    std::uint32_t at_ = 0;
  };

  SpanList(const SpanIndex* order, std::uint32_t first, std::uint32_t last)
      : order_{order}, first_{first}, last_{last} {}
  std::size_t size() const { return last_ - first_; }
  SpanIndex front() const { return *begin(); }
  SpanIndex operator[](std::size_t i) const { return *Iterator{order_, first_ + static_cast<std::uint32_t>(i)}; }
  Iterator begin() const { return {order_, first_}; }
  Iterator end() const { return {order_, last_}; }

 private:
  const SpanIndex* order_;  // null: each span is at its own place
  std::uint32_t first_, last_;
};

/// Finds spans by the key (instance, op, rank, part): the spans of a timeline sorted by instance, rank, op and part.
/// Refers to the timeline; memory in proportion to its spans where they are not in that order.
class SpanTable {
 public:
  /// The spans of one rank in one instance: a range of `order()`.
  struct Block {
    std::uint32_t instance = 0;
    RankId rank;
    std::uint32_t first = 0, last = 0;
    /// Each op from the first to the last has one span, and these follow upon each other in the timeline.
    bool is_in_line = false;
    std::int64_t latest_ps = INT64_MIN;  // end of the last of those with part 0
  };

  explicit SpanTable(const Timeline& timeline);

  SpanList order() const { return list(0, static_cast<std::uint32_t>(timeline_.spans.size())); }
  std::span<const Block> blocks() const { return blocks_; }
  SpanList of(const Block& b) const { return list(b.first, b.last); }
  SpanList list(std::uint32_t first, std::uint32_t last) const {
    return {order_.empty() ? nullptr : order_.data(), first, last};
  }
  const Block* block(std::uint32_t instance, RankId rank) const;  // null when nothing of it was recorded
  SpanIndex find(const Block& block, OpId op, std::uint32_t part = 0) const;
  SpanIndex find(std::uint32_t instance, OpId op, RankId rank, std::uint32_t part = 0) const;
  /// Where a span of the block stands in `order()`.
  std::uint32_t position(const Block& block, SpanIndex s) const;
  /// Per instance, of the spans with part 0 the one that ended last, of several the first in the timeline; kNoSpan for
  /// an instance without spans.
  std::vector<SpanIndex> last_of_instances() const;
  /// All ranks that ran anything, sorted.
  std::vector<RankId> ranks() const;

 private:
  bool find_blocks();
  void follow(Block& block) const;
  bool add_others(Block& block) const;
  SpanIndex latest(const Block& block) const;
  void sort();

  const Timeline& timeline_;
  std::vector<SpanIndex> order_;  // empty: that of the timeline
  std::vector<Block> blocks_;
};

/// All ranks that ran anything, sorted.
std::vector<RankId> ranks_of(const Timeline& timeline);

}  // namespace orrery
