// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "gui/core/alignment.hpp"
#include "gui/core/statistics.hpp"
#include "sim/timeline/span_graph.hpp"

namespace orrery::gui {
namespace {

/// Durations as comparisons mean them, in picoseconds: of a collective or message from when its last partner had begun.
/// Where clocks are apart so far that it seems to end before that, all of it counts.
std::vector<float> durations_of(const Document& document) {
  const EventSource& events = document.events();
  std::optional<SpanGraph> graph;
  if (document.trace() != nullptr) graph.emplace(document.trace()->timeline, document.trace()->plans);
  std::vector<float> out(events.size());
  std::unordered_map<EventIndex, std::int64_t> last_begin;  // of each meeting, by its first
  const auto ready_of = [&](EventIndex e) {
    const std::span<const SpanIndex> meeting = graph ? graph->meeting(e) : std::span<const SpanIndex>{};
    if (meeting.empty()) return events.start(e);
    const auto [it, is_new] = last_begin.try_emplace(meeting.front(), events.start(meeting.front()));
    for (std::size_t i = 0; is_new && i < meeting.size(); ++i)
      it->second = std::max(it->second, events.start(meeting[i]));
    return it->second;
  };
  for (EventIndex e = 0; e < out.size(); ++e) {
    const std::int64_t ready = ready_of(e);
    out[e] = static_cast<float>(events.end(e) - (ready < events.end(e) ? ready : events.start(e)));
  }
  return out;
}

std::vector<std::uint32_t> same_names(const Document& main, const Document& other) {
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> lanes;
  for (std::uint32_t t = 0; t < other.tracks().size(); ++t)
    lanes[{other.owners()[other.tracks()[t].owner].id, other.tracks()[t].name}] = t;
  std::vector<std::uint32_t> out;
  for (const Track& t : main.tracks()) {
    const auto it = lanes.find({main.owners()[t.owner].id, t.name});
    out.push_back(it != lanes.end() ? it->second : UINT32_MAX);
  }
  return out;
}

/// Lanes without one of the same name get the one in which most of their partners lie.
void assign_by_partners(const Document& main, const Document& other, const Matching& matching,
                        std::vector<std::uint32_t>& lanes) {
  for (std::size_t t = 0; t < lanes.size(); ++t) {
    if (lanes[t] != UINT32_MAX) continue;
    std::map<std::uint32_t, std::size_t> count;
    for (const EventIndex e : main.tracks()[t].slices.event)
      if (const EventIndex p = matching.partner_of_main[e]; p != kNoEvent) ++count[other.place(p).track];
    const auto most =
        std::max_element(count.begin(), count.end(), [](auto& a, auto& b) { return a.second < b.second; });
    if (most != count.end()) lanes[t] = most->first;
  }
}

/// With each lane those further ones of its stream that lie beside no other lane: ops that overlap in the second
/// timeline only.
std::vector<std::vector<std::uint32_t>> with_further_lanes(const Document& other,
                                                           const std::vector<std::uint32_t>& lanes) {
  std::vector<bool> is_taken(other.tracks().size(), false);
  for (const std::uint32_t t : lanes)
    if (t != UINT32_MAX) is_taken[t] = true;
  std::vector<std::vector<std::uint32_t>> out(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i] == UINT32_MAX) continue;
    out[i].push_back(lanes[i]);
    for (std::uint32_t t = lanes[i] + 1; t < other.tracks().size(); ++t) {
      if (!other.tracks()[t].is_overflow || other.tracks()[t].owner != other.tracks()[lanes[i]].owner || is_taken[t])
        break;
      is_taken[t] = true;
      out[i].push_back(t);
    }
  }
  return out;
}

/// Time in which the rank of an event computes and communicates at once while the event runs.
std::int64_t overlap(const Document& d, EventIndex e) {
  const Track& own = d.tracks()[d.place(e).track];
  const std::int64_t start = d.start(e), end = d.end(e);
  const auto is_message = [&](EventIndex x) {
    const OpClass c = d.events().facets(x).op_class;
    return c == OpClass::Collective || c == OpClass::PointToPoint;
  };
  std::int64_t sum = 0;
  for (const std::uint32_t t : d.owners()[own.owner].tracks) {
    const Columns& s = d.tracks()[t].slices;
    if (&d.tracks()[t] == &own) continue;
    for (std::size_t i = s.first_after(start); i < s.size() && s.start[i] < end; ++i)
      if (is_message(s.event[i]) != is_message(e)) sum += std::min(end, s.end[i]) - std::max(start, s.start[i]);
  }
  return std::min(sum, end - start);
}

std::int64_t gap_before(const Document& d, EventIndex e) {
  const EventIndex before = neighbour(d, e, -1);
  return before == kNoEvent ? 0 : d.start(e) - d.end(before);
}

}  // namespace

EventErrors errors_of(const Document& main, const Document& other, const Matching& matching) {
  const std::vector<float> of_main = durations_of(main), of_other = durations_of(other);
  const double sign = main.source() == "measured" && other.source() == "predicted" ? -1 : 1;
  EventErrors out(main.events().size(), NAN);
  const auto set = [&](EventIndex e, double m, double o) {
    if (m > 0 && o > 0) out[e] = static_cast<float>(sign * std::log(o / m));
  };
  for (EventIndex e = 0; e < out.size(); ++e)
    if (matching.partner_of_main[e] != kNoEvent) set(e, of_main[e], of_other[matching.partner_of_main[e]]);
  for (const Fusion& f : matching.fusions) {
    double m = 0, o = 0;
    for (const EventIndex e : f.main) m += of_main[e];
    for (const EventIndex e : f.other) o += of_other[e];
    for (const EventIndex e : f.main) set(e, m, o);
  }
  return out;
}

namespace {

void make_strips(const Document& main, Companion& other) {
  const EventErrors& errors = other.shown().values;
  other.strips.resize(main.tracks().size());
  in_parallel(main.tracks().size(),
              [&](std::size_t t) { other.strips[t] = error_buckets(main.tracks()[t].slices, errors); });
}

std::int64_t of_channel(const OpError& error, ErrorChannel channel) {
  switch (channel) {
    case ErrorChannel::Start:
      return error.start_skew_ps;
    case ErrorChannel::Gap:
      return error.gap_ps;
    case ErrorChannel::Overlap:
      return error.overlap_ps;
    default:
      return error.absolute_ps;
  }
}

/// The size that 19 of 20 do not exceed, rounded up to 1, 2 or 5 times a power of ten; at least a nanosecond.
double usual_size(const EventErrors& errors) {
  std::vector<float> sizes;
  for (const float e : errors)
    if (!std::isnan(e)) sizes.push_back(std::abs(e));
  double out = 1000;
  if (sizes.empty()) return out;
  const auto at = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() * 19 / 20);
  std::nth_element(sizes.begin(), at, sizes.end());
  for (int i = 0; out < double(*at); ++i) out *= i % 3 == 1 ? 2.5 : 2;
  return out;
}

}  // namespace

void show_errors(const Document& main, Companion& other, ErrorChannel channel) {
  other.channel = channel;
  other.of_channel.clear();
  other.channel_range_ps = 0;
  if (channel != ErrorChannel::Duration) {
    const bool is_reverse = main.source() == "measured" && other.document.source() == "predicted";
    other.of_channel.assign(main.events().size(), NAN);
    in_parallel(main.tracks().size(), [&](std::size_t t) {
      for (const EventIndex e : main.tracks()[t].slices.event) {
        if (other.matching.partner_of_main[e] == kNoEvent) continue;
        const std::int64_t ps = of_channel(op_error(main, other, e), channel);
        other.of_channel[e] = static_cast<float>(is_reverse ? -ps : ps);
      }
    });
    other.channel_range_ps = usual_size(other.of_channel);
    for (float& e : other.of_channel) e = static_cast<float>(double(e) / other.channel_range_ps * kErrorRange);
  }
  make_strips(main, other);
}

void realign(const Document& main, Companion& other, const CompareOptions& options) {
  const Aligned aligned = align(main, other.document, other.matching, options.alignment, options.manual_ps);
  other.document.move_times([&](std::uint32_t owner, std::int64_t at) {
    const auto it = aligned.warps.find(owner);
    return it != aligned.warps.end() ? it->second(at) : at;
  });
  other.residual_ns = aligned.residual_ns;
  if (other.channel != ErrorChannel::Duration) show_errors(main, other, other.channel);
}

std::unique_ptr<Companion> compare_documents(const Document& main, Document other, const CompareOptions& options) {
  auto out = std::make_unique<Companion>(Companion{.document = std::move(other), .colouring = {}, .matching = {}});
  out->matching = match(main, out->document);
  out->errors = errors_of(main, out->document, out->matching);
  std::vector<std::uint32_t> lanes = same_names(main, out->document);
  assign_by_partners(main, out->document, out->matching, lanes);
  out->lanes_of = with_further_lanes(out->document, lanes);
  realign(main, *out, options);
  make_strips(main, *out);
  return out;
}

OpError op_error(const Document& main, const Companion& other, EventIndex e) {
  OpError out;
  const EventIndex p = other.matching.partner_of_main[e];
  if (p == kNoEvent) return out;
  const Document& o = other.document;
  out.ratio = other.errors[e];
  out.absolute_ps = (o.events().end(p) - o.events().start(p)) - (main.end(e) - main.start(e));
  out.start_skew_ps = o.start(p) - main.start(e);
  out.gap_ps = gap_before(o, p) - gap_before(main, e);
  out.overlap_ps = overlap(o, p) - overlap(main, e);
  return out;
}

}  // namespace orrery::gui
