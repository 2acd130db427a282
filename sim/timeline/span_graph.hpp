// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/timeline/digest.hpp"
#include "sim/timeline/meetings.hpp"
#include "sim/timeline/patterns.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {

/// What each span waited for, found when asked for. Refers to timeline and plans. Pieces of a detailed collective (part
/// > 0) have no part in it.
///
/// A span comes after: the ops it depends on; the previous op of its stream; the last host op before it that waited for
/// the device (and a waiting host op after the last op of each stream before it); for the first ops of an instance,
/// what ended last in the instance before. Collectives and send/receive pairs form a meeting: none of its spans ends
/// before the last has begun.
class SpanGraph {
 public:
  SpanGraph(const Timeline& timeline, const PlanDigests& plans);

  const SpanTable& table() const { return table_; }
  /// What a plan of the list repeats.
  const Patterns& patterns(std::uint32_t plan) const { return patterns_[plan]; }
  std::vector<SpanIndex> before(SpanIndex s) const;
  /// The same in `out`, whose room is used again.
  void before(SpanIndex s, std::vector<SpanIndex>& out) const;
  /// Of all spans with part 0 the one that ended last; kNoSpan when there is none.
  SpanIndex last() const;
  /// The spans of the meeting that `s` takes part in; empty when it meets nobody or no partner was recorded.
  std::span<const SpanIndex> meeting(SpanIndex s) const { return meetings_.of(s); }
  /// Whether somebody else was recorded whom the op of `s` may meet.
  bool meets(SpanIndex s) const { return meetings_.has(s); }
  /// When the last partner had begun: from then on a collective moves data. The start of the span without a meeting.
  std::int64_t ready_ps(SpanIndex s) const;

 private:
  SpanIndex last_on_stream(const SpanTable::Block& block, const PlanDigest& plan, std::uint32_t position,
                           Stream stream) const;

  const Timeline& timeline_;
  const PlanDigests& plans_;
  SpanTable table_;
  std::vector<Patterns> patterns_;           // per plan
  std::vector<SpanIndex> last_of_instance_;  // which ended last; kNoSpan for an instance without spans
  std::vector<std::uint32_t> host_waits_;    // places in the table
  Meetings meetings_;
};

}  // namespace orrery
