// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/timeline/span_graph.hpp"

namespace orrery {

/// A piece of the critical path. A gap is time in which nothing on the path ran: the host had not enqueued `span` yet.
struct PathSegment {
  std::int64_t start_ps = 0, end_ps = 0;
  SpanIndex span = kNoSpan;  // what ran, or what came after the gap
  bool is_gap = false;
};

/// Segments that follow one another without holes from 0 to the end of the last span: the chain that made the run as
/// long as it is.
struct CriticalPath {
  std::vector<PathSegment> segments;
  std::array<std::int64_t, kNumOpClasses> by_class_ps{};
  std::int64_t gap_ps = 0;
};

/// Walks back from the last end. From a span it goes to what ended last of what the span waited for; from a collective
/// to the partner that arrived last, whose arrival everybody waited for. The time until a partner's arrival belongs to
/// what the partner did before. Measured overlaps of a few nanoseconds are cut. Among equals the first of
/// SpanGraph::before.
CriticalPath critical_path(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph);

/// Per span, in picoseconds: how much later it could have ended without a later end of the run, when all else keeps its
/// duration and its launch gap. 0 on the critical path. Pieces of collectives (part > 0) have that of the run's end.
std::vector<std::int64_t> slack(const Timeline& timeline, const SpanGraph& graph);

}  // namespace orrery
