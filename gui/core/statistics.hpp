// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gui/core/document.hpp"
#include "gui/core/view.hpp"

namespace orrery::gui {

/// What some lanes did in a range of time. Slices that reach out of the range count with the part inside.
struct RangeStatistics {
  TimeRange range;
  std::size_t lanes = 0;
  ClassTimes times{};  // picoseconds
  ClassCounts counts{};

  std::int64_t busy() const;
  std::uint64_t count() const;
  /// Mean share of the range in which a lane was busy.
  double utilisation() const;
};

/// Of the given lanes, or of all. Takes time in proportion to lanes, not slices.
RangeStatistics statistics(const Document& document, TimeRange range, std::span<const std::uint32_t> lanes);
RangeStatistics statistics(const Document& document, TimeRange range);

/// Slices of one name in a range.
struct NameStatistics {
  std::string name;
  OpClass op_class = OpClass::Other;
  std::uint64_t count = 0;
  std::int64_t total = 0, shortest = 0, longest = 0;  // picoseconds, whole slices
  EventIndex example = kNoEvent;                      // the longest
};
/// By total time, largest first; layer numbers are left out ("layers.*.mlp.up"). Looks at each slice.
std::vector<NameStatistics> statistics_by_name(const Document& document, TimeRange range);

/// Events whose name, work or kind contains the text, whatever the case, by start. A text of two words finds what
/// contains both.
std::vector<EventIndex> search(const Document& document, std::string_view text);

/// Events by the lane in which they lie, so that a lane can be marked without looking at all of them.
struct FoundSlices {
  std::vector<std::vector<std::uint32_t>> of_track;  // slices of each track, by start
  std::vector<Buckets<std::uint8_t>> begins;         // per track: whether one of them begins in a bucket
};
FoundSlices found_slices(const Document& document, std::span<const EventIndex> found);

/// The slice after or before one on its lane; kNoEvent at the end.
EventIndex neighbour(const Document& document, EventIndex e, int step);

}  // namespace orrery::gui
