// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/critical_path.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

SpanIndex last_span(const Timeline& timeline) {
  SpanIndex last = kNoSpan;
  for (SpanIndex s = 0; s < timeline.spans.size(); ++s) {
    const Span& span = timeline.spans[s];
    if (span.part == 0 && (last == kNoSpan || span.end_ps > timeline.spans[last].end_ps)) last = s;
  }
  return last;
}

SpanIndex latest_before(const Timeline& timeline, const SpanGraph& graph, SpanIndex s) {
  SpanIndex latest = kNoSpan;
  for (const SpanIndex b : graph.before(s))
    if (latest == kNoSpan || timeline.spans[b].end_ps > timeline.spans[latest].end_ps) latest = b;
  return latest;
}

/// The partner that arrived last; `s` itself when nobody arrived later. Spans of a meeting may begin only when all are
/// there: then the last is the one whose own rank was busy for longest.
SpanIndex last_partner(const Timeline& timeline, const SpanGraph& graph, SpanIndex s) {
  const auto arrival = [&](SpanIndex p) {
    const SpanIndex before = latest_before(timeline, graph, p);
    return std::pair{timeline.spans[p].start_ps, before == kNoSpan ? 0 : timeline.spans[before].end_ps};
  };
  SpanIndex last = s;
  auto latest = arrival(s);
  for (const SpanIndex p : graph.meeting(s)) {
    const auto at = arrival(p);
    if (at <= latest) continue;
    latest = at;
    last = p;
  }
  return last;
}

class PathWalk {
 public:
  PathWalk(const Timeline& timeline, const SpanGraph& graph)
      : timeline_{timeline}, graph_{graph}, seen_(timeline.spans.size(), false) {}

  /// Segments from the last to the first.
  std::vector<PathSegment> walk() {
    SpanIndex s = last_span(timeline_);
    if (s == kNoSpan) return {};
    cursor_ = timeline_.spans[s].end_ps;
    while (s != kNoSpan && !seen_[s]) {
      const SpanIndex partner = last_partner(timeline_, graph_, s);
      run_back_to(timeline_.spans[partner].start_ps, s, false);
      seen_[s] = seen_[partner] = true;
      const SpanIndex before = latest_before(timeline_, graph_, partner);
      run_back_to(before == kNoSpan ? 0 : timeline_.spans[before].end_ps, partner, true);
      s = before;
    }
    run_back_to(0, s, true);
    return std::move(segments_);
  }

 private:
  void run_back_to(std::int64_t start, SpanIndex s, bool is_gap) {
    if (start >= cursor_) return;
    segments_.push_back({start, cursor_, s, is_gap});
    cursor_ = start;
  }

  const Timeline& timeline_;
  const SpanGraph& graph_;
  std::vector<bool> seen_;  // plans have no cycle; a file may have
  std::vector<PathSegment> segments_;
  std::int64_t cursor_ = 0;
};

/// The earliest end in the meeting of a span: all that comes after any of its partners ends later.
std::int64_t order_key(const Timeline& timeline, const SpanGraph& graph, SpanIndex s) {
  std::int64_t end = timeline.spans[s].end_ps;
  for (const SpanIndex p : graph.meeting(s)) end = std::min(end, timeline.spans[p].end_ps);
  return end;
}

/// Part 0 spans, successors before what they come after.
std::vector<SpanIndex> backward_order(const Timeline& timeline, const SpanGraph& graph) {
  std::vector<std::int64_t> keys(timeline.spans.size());
  std::vector<SpanIndex> order;
  for (SpanIndex s = 0; s < timeline.spans.size(); ++s) {
    keys[s] = order_key(timeline, graph, s);
    if (timeline.spans[s].part == 0) order.push_back(s);
  }
  const auto rank = [&](SpanIndex s) {
    const Span& span = timeline.spans[s];
    return std::tuple{keys[s], span.start_ps, span.instance, span.op, s};
  };
  std::sort(order.begin(), order.end(), [&](SpanIndex a, SpanIndex b) { return rank(a) > rank(b); });
  return order;
}

}  // namespace

CriticalPath critical_path(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph) {
  CriticalPath path;
  path.segments = PathWalk{timeline, graph}.walk();
  std::reverse(path.segments.begin(), path.segments.end());
  for (const PathSegment& segment : path.segments) {
    const std::int64_t duration = segment.end_ps - segment.start_ps;
    if (segment.is_gap) {
      path.gap_ps += duration;
      continue;
    }
    const Span& span = timeline.spans[segment.span];
    path.by_class_ps[static_cast<std::size_t>(plan_of(timeline, plans, span).work(span.op).op_class)] += duration;
  }
  return path;
}

std::vector<std::int64_t> slack(const Timeline& timeline, const SpanGraph& graph) {
  const SpanIndex last = last_span(timeline);
  const std::int64_t end = last == kNoSpan ? 0 : timeline.spans[last].end_ps;
  std::vector<std::int64_t> out(timeline.spans.size());
  for (SpanIndex s = 0; s < out.size(); ++s) out[s] = end - timeline.spans[s].end_ps;
  for (const SpanIndex s : backward_order(timeline, graph)) {
    // A meeting is as late as its partner with the least room, plus how long this span waited for the last of them.
    std::int64_t room = out[s];
    for (const SpanIndex p : graph.meeting(s)) room = std::min(room, out[p]);
    room += graph.ready_ps(s) - timeline.spans[s].start_ps;
    const SpanIndex latest = latest_before(timeline, graph, s);
    for (const SpanIndex b : graph.before(s)) {
      const std::int64_t wait = timeline.spans[latest].end_ps - timeline.spans[b].end_ps;
      out[b] = std::min(out[b], wait + room);
    }
  }
  return out;
}

}  // namespace orrery
