// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/span_graph.hpp"

#include <algorithm>

namespace orrery {
namespace {

std::vector<Patterns> patterns_of(const PlanDigests& plans) {
  std::vector<Patterns> out;
  for (const PlanDigest& plan : plans) out.emplace_back(plan);
  return out;
}

/// Where the table has host ops that wait for the device.
std::vector<std::uint32_t> host_waits_of(const Timeline& timeline, const PlanDigests& plans, const SpanTable& table) {
  std::vector<std::uint32_t> out;
  const auto waits = [](const WorkDigest& w) { return w.meeting == MeetingKind::HostWait; };
  for (const SpanTable::Block& block : table.blocks()) {
    const PlanDigest& plan = plan_of(timeline, plans, timeline.spans[table.of(block).front()]);
    if (std::none_of(plan.works.begin(), plan.works.end(), waits)) continue;
    for (std::uint32_t i = block.first; i < block.last; ++i)
      if (const Span& s = timeline.spans[table.order()[i]]; s.part == 0 && waits(plan.work(s.op))) out.push_back(i);
  }
  return out;
}

}  // namespace

SpanGraph::SpanGraph(const Timeline& timeline, const PlanDigests& plans)
    : timeline_{timeline},
      plans_{plans},
      table_{timeline},
      patterns_{patterns_of(plans)},
      last_of_instance_{table_.last_of_instances()},
      host_waits_{host_waits_of(timeline, plans, table_)},
      meetings_{timeline, plans, table_, patterns_} {}

/// The last span of a stream before a place in the table; kNoSpan when there is none in the block.
SpanIndex SpanGraph::last_on_stream(const SpanTable::Block& block, const PlanDigest& plan, std::uint32_t position,
                                    Stream stream) const {
  while (position-- > block.first) {
    const SpanIndex s = table_.order()[position];
    if (timeline_.spans[s].part == 0 && plan[timeline_.spans[s].op].stream == stream) return s;
  }
  return kNoSpan;
}

std::vector<SpanIndex> SpanGraph::before(SpanIndex s) const {
  std::vector<SpanIndex> out;
  before(s, out);
  return out;
}

void SpanGraph::before(SpanIndex s, std::vector<SpanIndex>& out) const {
  out.clear();
  const Span& span = timeline_.spans[s];
  if (span.part != 0) return;
  const auto add = [&](SpanIndex b) {
    if (b != kNoSpan && b != s) out.push_back(b);
  };
  const SpanTable::Block& block = *table_.block(span.instance, span.rank);
  const PlanDigest& plan = plan_of(timeline_, plans_, span);
  const std::uint32_t position = table_.position(block, s);
  for (const OpId dep : plan.deps_of(span.op)) add(table_.find(block, dep));
  const SpanIndex previous = last_on_stream(block, plan, position, plan[span.op].stream);
  if (previous != kNoSpan)
    add(previous);
  else if (span.instance > 0)
    add(last_of_instance_[span.instance - 1]);
  const auto wait = std::lower_bound(host_waits_.begin(), host_waits_.end(), position);
  if (wait != host_waits_.begin() && *std::prev(wait) >= block.first) add(table_.order()[*std::prev(wait)]);
  const bool reads = !plan.deps_of(span.op).empty();  // and waits for that alone
  if (plan.work(span.op).meeting != MeetingKind::HostWait || reads) return;
  for (int stream = 0; stream < kNumStreams; ++stream)
    add(last_on_stream(block, plan, position, static_cast<Stream>(stream)));
}

SpanIndex SpanGraph::last() const {
  SpanIndex last = kNoSpan;
  const Spans& spans = timeline_.spans;
  for (const SpanIndex l : last_of_instance_) {
    if (l == kNoSpan) continue;
    const bool is_later = last == kNoSpan || spans[l].end_ps > spans[last].end_ps;
    if (is_later || (spans[l].end_ps == spans[last].end_ps && l < last)) last = l;
  }
  return last;
}

std::int64_t SpanGraph::ready_ps(SpanIndex s) const {
  std::int64_t ready = timeline_.spans[s].start_ps;
  for (const SpanIndex partner : meeting(s)) ready = std::max(ready, timeline_.spans[partner].start_ps);
  return std::min(ready, timeline_.spans[s].end_ps);
}

}  // namespace orrery
