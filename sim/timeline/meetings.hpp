// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/timeline/digest.hpp"
#include "sim/timeline/patterns.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {

/// Which spans meet. Those of one collective on all recorded ranks of its communicator do, and so do a send and its
/// receive. The n-th collective of a group on one rank meets the n-th of its partners; a send meets the receive that
/// has the same tag and comes in the same order. Memory: one bit per span, and 12 bytes per span that meets others.
class Meetings {
 public:
  Meetings(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table,
           const std::vector<Patterns>& patterns);

  /// Whether `s` takes part in one, which may lack all others where not all of their spans were recorded. On one rank,
  /// all ops of a work do or none.
  bool has(SpanIndex s) const { return (meets_[s / kWord] >> s % kWord & 1) != 0; }
  /// The spans of the meeting that `s` takes part in, in order; empty when it meets nobody or no partner was recorded.
  std::span<const SpanIndex> of(SpanIndex s) const {
    const std::uint64_t bit = std::uint64_t{1} << s % kWord, word = meets_[s / kWord];
    if ((word & bit) == 0) return {};
    return at(number_[before_[s / kWord] + static_cast<std::size_t>(std::popcount(word & (bit - 1)))]);
  }

 private:
  static constexpr std::size_t kWord = 64;
  using Numbered = std::pair<SpanIndex, std::uint32_t>;  // a span and its meeting

  std::span<const SpanIndex> at(std::uint32_t meeting) const {
    const std::uint32_t size = first_[meeting + 1] - first_[meeting];
    if (size < 2) return {};
    return {spans_.data() + first_[meeting], size};
  }
  void keep(std::span<const Numbered> meet, std::size_t count);

  std::vector<std::uint64_t> meets_;   // one bit per span: whether it meets others
  std::vector<std::uint32_t> before_;  // per word of these: how many spans before it do
  std::vector<std::uint32_t> number_;  // of the meeting, per span that meets others
  std::vector<std::uint32_t> first_;   // into spans_, one more than meetings
  std::vector<SpanIndex> spans_;
};

}  // namespace orrery
