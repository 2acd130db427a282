// SPDX-License-Identifier: Apache-2.0
#include "gui/core/matching.hpp"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "gui/core/readings.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery::gui {
namespace {

constexpr std::size_t kMaxFused = 8;

class LevelMatcher {
 public:
  LevelMatcher(std::size_t num_main, std::size_t num_other) : out{num_main, num_other} {}

  void by_collective(std::span<const MatchStream> main, std::span<const MatchStream> other) {
    std::unordered_map<std::uint64_t, EventIndex> events;
    for (const MatchStream& s : other)
      for (const MatchItem& i : s.items)
        if (i.collective != 0) events.try_emplace(i.collective, i.event);
    for (const MatchStream& s : main)
      for (const MatchItem& i : s.items) {
        const auto it = i.collective != 0 ? events.find(i.collective) : events.end();
        if (it != events.end() && out.partner_of_other[it->second] == kNoEvent)
          out.pair(i.event, it->second, MatchTier::Collective);
      }
  }

  /// Segments of a stream by their key; the part outside of any only in the last tier.
  void by_segment(const MatchStream& main, const MatchStream& other) {
    std::map<std::uint64_t, std::pair<std::vector<MatchItem>, std::vector<MatchItem>>> segments;
    for (const MatchItem& i : main.items)
      if (i.segment != 0 && i.kind != 0 && out.partner_of_main[i.event] == kNoEvent)
        segments[i.segment].first.push_back(i);
    for (const MatchItem& i : other.items)
      if (i.segment != 0 && i.kind != 0 && out.partner_of_other[i.event] == kNoEvent)
        segments[i.segment].second.push_back(i);
    // What was done to some layers may have been done to the others too.
    Readings::Seen seen;
    std::vector<Readings> all;
    for (const auto& [key, both] : segments) {
      all.push_back(read(both.first, both.second, MatchTier::Marked, {}));
      seen += all.back().seen;
    }
    std::size_t i = 0;
    for (const auto& [key, both] : segments) {
      const Readings r = seen.swapped > 0 ? read(both.first, both.second, MatchTier::Marked, seen) : std::move(all[i]);
      take(both.first, both.second, r, MatchTier::Marked);
      ++i;
    }
  }

  void by_sequence(const MatchStream& main, const MatchStream& other) {
    std::map<std::uint64_t, std::pair<std::vector<MatchItem>, std::vector<MatchItem>>> stretches;
    for (const MatchItem& i : main.items)
      if (i.segment == 0 && i.kind != 0 && out.partner_of_main[i.event] == kNoEvent)
        stretches[i.stretch].first.push_back(i);
    for (const MatchItem& i : other.items)
      if (i.segment == 0 && i.kind != 0 && out.partner_of_other[i.event] == kNoEvent)
        stretches[i.stretch].second.push_back(i);
    for (const auto& [key, both] : stretches)
      take(both.first, both.second, read(both.first, both.second, MatchTier::Sequence, {}), MatchTier::Sequence);
  }

  Matching out;

 private:
  void pair_all(const std::vector<MatchItem>& a, const std::vector<MatchItem>& b, const Places& places,
                MatchTier tier) {
    for (const auto& [i, j] : places)
      if (out.partner_of_main[a[i].event] == kNoEvent && out.partner_of_other[b[j].event] == kNoEvent)
        out.pair(a[i].event, b[j].event, tier);
  }

  /// Ops of one layer, or of a stretch of a stream. What may be read in another way is left to the last tier.
  static Readings read(const std::vector<MatchItem>& a, const std::vector<MatchItem>& b, MatchTier tier,
                       const Readings::Seen& elsewhere) {
    if (a.empty() || b.empty()) return {};
    return readings(sequence_of(a), sequence_of(b), tier == MatchTier::Marked ? kMaxFused : 1, elsewhere);
  }

  void take(const std::vector<MatchItem>& a, const std::vector<MatchItem>& b, const Readings& r, MatchTier tier) {
    pair_all(a, b, r.sure, tier);
    pair_all(a, b, r.likely, MatchTier::Sequence);
    for (const Readings::Run& run : r.fused) {
      Fusion f;
      for (std::size_t i = run.a; i < run.a + run.num_a; ++i) f.main.push_back(a[i].event);
      for (std::size_t j = run.b; j < run.b + run.num_b; ++j) f.other.push_back(b[j].event);
      out.fusions.push_back(std::move(f));
    }
  }

  static Sequence sequence_of(const std::vector<MatchItem>& items) {
    Sequence out;
    for (const MatchItem& i : items) out.push_back({i.kind, i.is_fused});
    return out;
  }
};

std::unordered_set<EventIndex> fused(const Matching& m, std::vector<EventIndex> Fusion::*side) {
  std::unordered_set<EventIndex> out;
  for (const Fusion& f : m.fusions) out.insert((f.*side).begin(), (f.*side).end());
  return out;
}

/// What takes part and has neither a partner nor a share of one.
std::vector<EventIndex> unmatched(std::span<const MatchStream> streams, const std::vector<EventIndex>& partners,
                                  const std::unordered_set<EventIndex>& fused) {
  std::vector<EventIndex> out;
  for (const MatchStream& s : streams)
    for (const MatchItem& i : s.items)
      if (partners[i.event] == kNoEvent && !fused.contains(i.event)) out.push_back(i.event);
  return out;
}

bool same_plans(const Trace& a, const Trace& b) {
  return std::equal(a.plans.begin(), a.plans.end(), b.plans.begin(), b.plans.end(), same_ops);
}

double seconds_of(const Document& d, EventIndex e) { return double(d.events().end(e) - d.events().start(e)) * 1e-12; }

/// Spans of two runs of one plan by step, rank, op and part.
Matching match_by_ids(const Document& main, const Document& other) {
  Matching out{main.events().size(), other.events().size()};
  const SpanTable of_main{main.trace()->timeline}, of_other{other.trace()->timeline};
  for (const SpanTable::Block& block : of_main.blocks()) {
    const SpanTable::Block* there = of_other.block(block.instance, block.rank);
    if (there == nullptr) continue;
    for (const SpanIndex s : of_main.of(block)) {
      const Span& span = main.trace()->timeline.spans[s];
      const SpanIndex p = of_other.find(*there, span.op, span.part);
      if (p != kNoSpan && out.partner_of_other[p] == kNoEvent) out.pair(s, p, MatchTier::Id);
    }
  }
  const auto count = [](const Document& d, const std::vector<EventIndex>& partners, std::uint64_t& number,
                        Seconds& time) {
    for (EventIndex e = 0; e < partners.size(); ++e) {
      if (partners[e] != kNoEvent) continue;
      ++number;
      time = time + Seconds{seconds_of(d, e)};
    }
  };
  count(main, out.partner_of_main, out.unmatched_main, out.unmatched_main_time);
  count(other, out.partner_of_other, out.unmatched_other, out.unmatched_other_time);
  return out;
}

}  // namespace

Matching::Matching(std::size_t num_main, std::size_t num_other)
    : partner_of_main(num_main, kNoEvent), partner_of_other(num_other, kNoEvent), tier_of_main(num_main, kUnmatched) {}

void Matching::pair(EventIndex main, EventIndex other, MatchTier tier) {
  partner_of_main[main] = other;
  partner_of_other[other] = main;
  tier_of_main[main] = static_cast<std::uint8_t>(tier);
  ++pairs[static_cast<std::size_t>(tier)];
}

const Fusion* Matching::fusion_of(EventIndex main) const {
  const auto it = std::find_if(fusions.begin(), fusions.end(), [&](const Fusion& f) {
    return std::find(f.main.begin(), f.main.end(), main) != f.main.end();
  });
  return it != fusions.end() ? &*it : nullptr;
}

std::string_view name_of(MatchTier t) {
  constexpr std::string_view kNames[] = {"op id", "collective", "inside layer", "order only"};
  return kNames[static_cast<std::size_t>(t)];
}

Matching match(std::span<const MatchStream> main, std::size_t num_main, std::span<const MatchStream> other,
               std::size_t num_other) {
  LevelMatcher m{num_main, num_other};
  m.by_collective(main, other);
  std::map<std::pair<std::uint32_t, std::string_view>, const MatchStream*> streams;
  for (const MatchStream& s : other) streams[{s.rank, s.name}] = &s;
  for (const MatchStream& s : main) {
    const auto it = streams.find({s.rank, s.name});
    if (it == streams.end()) continue;
    m.by_segment(s, *it->second);
    m.by_sequence(s, *it->second);
  }
  m.out.unmatched_main = unmatched(main, m.out.partner_of_main, fused(m.out, &Fusion::main)).size();
  m.out.unmatched_other = unmatched(other, m.out.partner_of_other, fused(m.out, &Fusion::other)).size();
  return std::move(m.out);
}

Matching match(const Document& main, const Document& other) {
  if (main.trace() != nullptr && other.trace() != nullptr && same_plans(*main.trace(), *other.trace()))
    return match_by_ids(main, other);
  const MatchInput input = match_input(main, other);
  Matching out = match(input.main, main.events().size(), input.other, other.events().size());
  const auto time = [](const Document& d, const std::vector<EventIndex>& events) {
    double seconds = 0;
    for (const EventIndex e : events) seconds += seconds_of(d, e);
    return Seconds{seconds};
  };
  out.unmatched_main_time = time(main, unmatched(input.main, out.partner_of_main, fused(out, &Fusion::main)));
  out.unmatched_other_time = time(other, unmatched(input.other, out.partner_of_other, fused(out, &Fusion::other)));
  return out;
}

}  // namespace orrery::gui
