// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/critical_path.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

namespace orrery {
namespace {

/// Which ended last; of several the first, of none kNoSpan.
SpanIndex latest_of(const Timeline& timeline, std::span<const SpanIndex> spans) {
  SpanIndex latest = kNoSpan;
  for (const SpanIndex b : spans)
    if (latest == kNoSpan || timeline.spans[b].end_ps > timeline.spans[latest].end_ps) latest = b;
  return latest;
}

class PathWalk {
 public:
  PathWalk(const Timeline& timeline, const SpanGraph& graph)
      : timeline_{timeline}, graph_{graph}, seen_(timeline.spans.size(), false) {}

  /// Segments from the last to the first.
  std::vector<PathSegment> walk() {
    SpanIndex s = graph_.last();
    if (s == kNoSpan) return {};
    cursor_ = timeline_.spans[s].end_ps;
    while (s != kNoSpan && !seen_[s]) {
      const Arrival last = last_partner(s);
      run_back_to(timeline_.spans[last.span].start_ps, s, false);
      seen_[s] = seen_[last.span] = true;
      run_back_to(last.free_ps(timeline_), last.span, true);
      s = last.before;
    }
    run_back_to(0, s, true);
    return std::move(segments_);
  }

 private:
  struct Arrival {
    SpanIndex span = kNoSpan, before = kNoSpan;  // before: what ended last of what the span waited for
    std::int64_t free_ps(const Timeline& t) const { return before == kNoSpan ? 0 : t.spans[before].end_ps; }
  };

  Arrival arrival(SpanIndex s) {
    graph_.before(s, waited_for_);
    return {s, latest_of(timeline_, waited_for_)};
  }

  /// The partner that arrived last; `s` itself when nobody arrived later. Spans of a meeting may begin only when all
  /// are there: then the last is the one whose own rank was busy for longest.
  Arrival last_partner(SpanIndex s) {
    Arrival last = arrival(s);
    for (const SpanIndex p : graph_.meeting(s)) {
      const Arrival at = arrival(p);
      if (key(at) > key(last)) last = at;
    }
    return last;
  }
  std::pair<std::int64_t, std::int64_t> key(const Arrival& a) const {
    return {timeline_.spans[a.span].start_ps, a.free_ps(timeline_)};
  }

  void run_back_to(std::int64_t start, SpanIndex s, bool is_gap) {
    if (start >= cursor_) return;
    segments_.push_back({start, cursor_, s, is_gap});
    cursor_ = start;
  }

  const Timeline& timeline_;
  const SpanGraph& graph_;
  std::vector<bool> seen_;  // plans have no cycle; a file may have
  std::vector<SpanIndex> waited_for_;
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
  const SpanIndex last = graph.last();
  const std::int64_t end = last == kNoSpan ? 0 : timeline.spans[last].end_ps;
  std::vector<std::int64_t> out(timeline.spans.size());
  std::vector<SpanIndex> before;
  for (SpanIndex s = 0; s < out.size(); ++s) out[s] = end - timeline.spans[s].end_ps;
  for (const SpanIndex s : backward_order(timeline, graph)) {
    // A meeting is as late as its partner with the least room, plus how long this span waited for the last of them.
    std::int64_t room = out[s];
    for (const SpanIndex p : graph.meeting(s)) room = std::min(room, out[p]);
    room += graph.ready_ps(s) - timeline.spans[s].start_ps;
    graph.before(s, before);
    const SpanIndex latest = latest_of(timeline, before);
    for (const SpanIndex b : before) {
      const std::int64_t wait = timeline.spans[latest].end_ps - timeline.spans[b].end_ps;
      out[b] = std::min(out[b], wait + room);
    }
  }
  return out;
}

}  // namespace orrery
