// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/span_graph.hpp"

#include <algorithm>
#include <array>

#include "sim/timeline/meetings.hpp"

namespace orrery {
namespace {

struct Edge {
  SpanIndex before, after;
};

/// The ops that ended last: per stream of one rank, across instances.
using Lasts = std::array<SpanIndex, kNumStreams>;

/// Collects the edges of the spans of one rank, block after block.
class BlockEdges {
 public:
  BlockEdges(const Timeline& timeline, const SpanTable& table, std::vector<Edge>& edges)
      : timeline_{timeline}, table_{table}, edges_{edges} {}

  void add(const SpanTable::Block& block, const PlanDigest& plan, SpanIndex barrier) {
    Lasts last;
    last.fill(kNoSpan);
    SpanIndex host_wait = kNoSpan;
    for (const SpanIndex s : table_.of(block)) {
      const Span& span = timeline_.spans[s];
      if (span.part != 0) continue;
      for (const OpId dep : plan.deps_of(span.op)) add(table_.find(block, dep), s);
      SpanIndex& previous = last[static_cast<std::size_t>(plan[span.op].stream)];
      add(previous == kNoSpan ? barrier : previous, s);
      add(host_wait, s);
      if (plan.work(span.op).meeting == Meeting::HostWait) {
        for (const SpanIndex l : last) add(l, s);
        host_wait = s;
      }
      previous = s;
    }
  }

 private:
  void add(SpanIndex before, SpanIndex after) {
    if (before != kNoSpan && before != after) edges_.push_back({before, after});
  }

  const Timeline& timeline_;
  const SpanTable& table_;
  std::vector<Edge>& edges_;
};

/// Per instance, the span that ended last; kNoSpan for an instance without spans.
std::vector<SpanIndex> last_of_instances(const Timeline& timeline) {
  std::vector<SpanIndex> last;
  for (SpanIndex s = 0; s < timeline.spans.size(); ++s) {
    const Span& span = timeline.spans[s];
    if (span.instance >= last.size()) last.resize(span.instance + 1, kNoSpan);
    SpanIndex& l = last[span.instance];
    if (span.part == 0 && (l == kNoSpan || span.end_ps > timeline.spans[l].end_ps)) l = s;
  }
  return last;
}

std::vector<Edge> edges_of(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table) {
  std::vector<Edge> edges;
  edges.reserve(timeline.spans.size() * 2);
  const std::vector<SpanIndex> last = last_of_instances(timeline);
  BlockEdges collect{timeline, table, edges};
  for (const SpanTable::Block& block : table.blocks()) {
    const PlanDigest& plan = plan_of(timeline, plans, timeline.spans[table.of(block).front()]);
    collect.add(block, plan, block.instance == 0 ? kNoSpan : last[block.instance - 1]);
  }
  return edges;
}

/// Groups numbered things by their number: `first` has one entry more than there are numbers.
template <class Things, class Number, class Value>
void group_by(const Things& things, std::size_t count, Number number, Value value, std::vector<std::uint32_t>& first,
              std::vector<SpanIndex>& values) {
  first.assign(count + 1, 0);
  for (const auto& t : things) ++first[number(t) + 1];
  for (std::size_t i = 0; i < count; ++i) first[i + 1] += first[i];
  values.resize(things.size());
  std::vector<std::uint32_t> next{first.begin(), first.end() - 1};
  for (const auto& t : things) values[next[number(t)]++] = value(t);
}

}  // namespace

SpanGraph::SpanGraph(const Timeline& timeline, const PlanDigests& plans) : timeline_{timeline}, table_{timeline} {
  group_by(
      edges_of(timeline, plans, table_), timeline.spans.size(), [](const Edge& e) { return e.after; },
      [](const Edge& e) { return e.before; }, first_, before_);
  meeting_of_ = number_meetings(timeline, plans, table_);
  std::vector<SpanIndex> meeting;
  std::uint32_t count = 0;
  for (SpanIndex s = 0; s < meeting_of_.size(); ++s) {
    if (meeting_of_[s] == kNoSpan) continue;
    meeting.push_back(s);
    count = std::max(count, meeting_of_[s] + 1);
  }
  group_by(
      meeting, count, [&](SpanIndex s) { return meeting_of_[s]; }, [](SpanIndex s) { return s; }, meeting_first_,
      meeting_spans_);
}

std::span<const SpanIndex> SpanGraph::meeting(SpanIndex s) const {
  const std::uint32_t m = meeting_of_[s];
  if (m == kNoSpan) return {};
  const std::uint32_t size = meeting_first_[m + 1] - meeting_first_[m];
  if (size < 2) return {};
  return {meeting_spans_.data() + meeting_first_[m], size};
}

std::int64_t SpanGraph::ready_ps(SpanIndex s) const {
  std::int64_t ready = timeline_.spans[s].start_ps;
  for (const SpanIndex partner : meeting(s)) ready = std::max(ready, timeline_.spans[partner].start_ps);
  return std::min(ready, timeline_.spans[s].end_ps);
}

}  // namespace orrery
