// SPDX-License-Identifier: Apache-2.0
// What of two documents without common op ids can be compared: numbers of collectives, steps and layers, and kinds of
// ops.
#include <algorithm>
#include <utility>

#include "gui/core/foreign_marks.hpp"
#include "gui/core/match_keys.hpp"
#include "gui/core/match_mixed.hpp"
#include "gui/core/readings.hpp"

namespace orrery::gui {
namespace {

class TraceItems {
 public:
  explicit TraceItems(const Document& document) : trace_{*document.trace()} {}

  MatchItem item(EventIndex e) {
    const Span& s = trace_.timeline.spans[e];
    const PlanDigest& plan = plan_of(trace_.timeline, trace_.plans, s);
    const Op& op = plan[s.op];
    const WorkDigest& work = plan.work(s.op);
    MatchItem item;
    item.event = e;
    if (s.part != 0) return item;
    item.segment = key_of(s.instance, op.layer, static_cast<int>(op.phase), op.microbatch);
    if (work.meeting == MeetingKind::Collective)
      item.collective = key_of(s.rank.value, hash_of(plan.groups[work.group.index()].name), item.segment);
    item.kind = hash_of(plan.names[work.text]);
    return item;
  }

 private:
  const Trace& trace_;
};

class ForeignItems {
 public:
  explicit ForeignItems(const Document& document) : trace_{*document.foreign()}, marks_{trace_} {}

  MatchItem item(EventIndex e) {
    const ForeignEvent& event = trace_.events[e];
    const std::uint32_t process = trace_.threads[event.thread].process;
    MatchItem item;
    item.event = e;
    if (event.is_marker) return item;
    const std::string_view group = trace_.argument(event, "Process Group Name"), number = trace_.argument(event, "Seq");
    if (event.is_device && !group.empty() && !number.empty())
      item.collective = key_of(process, hash_of(group), hash_of(number));
    const ForeignPlace place = marks_.place(e);
    if (place.step || place.layer) item.segment = key_of(place.step.value_or(0), place.layer ? *place.layer + 1 : 0);
    item.kind = hash_of(trace_.names[event.name]);
    return item;
  }

 private:
  const ForeignTrace& trace_;
  ForeignMarks marks_;
};

/// The streams of a document, further lanes of one with their first.
template <class Items>
std::vector<MatchStream> streams(const Document& document, Items&& items) {
  std::vector<MatchStream> out;
  for (const Owner& owner : document.owners())
    for (const std::uint32_t t : owner.tracks) {
      const Track& track = document.tracks()[t];
      if (!track.is_overflow || out.empty()) out.push_back({owner.id, track.name, {}});
      for (const EventIndex e : track.slices.event)
        if (const MatchItem i = items.item(e); i.kind != 0) out.back().items.push_back(i);
      if (track.is_overflow)
        std::sort(out.back().items.begin(), out.back().items.end(), [&](const MatchItem& a, const MatchItem& b) {
          return std::pair{document.start(a.event), a.event} < std::pair{document.start(b.event), b.event};
        });
    }
  return out;
}

/// Takes the keys of groups out of the items.
CollectiveGroups collectives(std::vector<MatchStream>& streams) {
  CollectiveGroups out;
  for (MatchStream& s : streams)
    for (MatchItem& i : s.items)
      if (const std::uint64_t key = std::exchange(i.collective, 0); key != 0) out[key].push_back(&i);
  return out;
}

}  // namespace

void join_collectives(const CollectiveGroups& a, const CollectiveGroups& b) {
  const auto kinds = [](const std::vector<MatchItem*>& items) {
    Sequence out;
    for (const MatchItem* i : items) out.push_back({i->kind});
    return out;
  };
  std::uint64_t next = 1;
  for (const auto& [key, ours] : a) {
    const auto it = b.find(key);
    if (it == b.end()) continue;
    for (const auto& [i, j] : readings(kinds(ours), kinds(it->second), 1).sure)
      ours[i]->collective = it->second[j]->collective = next++;
  }
}

MatchInput match_input(const Document& main, const Document& other) {
  if (main.trace() != nullptr && other.trace() == nullptr) return mixed_input(main, other);
  if (main.trace() == nullptr && other.trace() != nullptr) {
    MatchInput in = mixed_input(other, main);
    return {std::move(in.other), std::move(in.main)};
  }
  if (main.trace() == nullptr) return {streams(main, ForeignItems{main}), streams(other, ForeignItems{other})};
  MatchInput in{streams(main, TraceItems{main}), streams(other, TraceItems{other})};
  join_collectives(collectives(in.main), collectives(in.other));
  return in;
}

}  // namespace orrery::gui
