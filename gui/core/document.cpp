// SPDX-License-Identifier: Apache-2.0
#include "gui/core/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "gui/core/event_sources.hpp"
#include "gui/core/parallel.hpp"
#include "sim/timeline/lanes.hpp"

namespace orrery::gui {
namespace {

/// Lowest lane that is free, so that calls lie below their caller.
class NestedLanes {
 public:
  explicit NestedLanes(std::vector<Track>& tracks) : tracks_{tracks} {}

  void begin(std::uint32_t owner, const std::string& thread) {
    owner_ = owner;
    thread_ = thread;
    first_ = tracks_.size();
    free_.clear();
  }
  void add(std::int64_t start, std::int64_t end, EventIndex e) {
    std::size_t lane = 0;
    while (lane < free_.size() && free_[lane] > start) ++lane;
    if (lane == free_.size()) {
      free_.push_back(0);
      Track& t = tracks_.emplace_back();
      t.owner = owner_;
      t.name = lane == 0 ? thread_ : fmt::format("{} {}", thread_, lane + 1);
      t.is_overflow = lane > 0;
    }
    tracks_[first_ + lane].slices.add(start, end, e);
    free_[lane] = end;
  }

 private:
  std::vector<Track>& tracks_;
  std::string thread_;
  std::uint32_t owner_ = 0;
  std::size_t first_ = 0;
  std::vector<std::int64_t> free_;  // when each lane is free again
};

/// Running sums per class before each block.
void sum_blocks(Track& track, const EventSource& events) {
  ClassTimes times{};
  ClassCounts counts{};
  for (std::size_t i = 0; i < track.slices.size(); ++i) {
    if (i % kBlock == 0) {
      track.times.push_back(times);
      track.counts.push_back(counts);
    }
    const auto c = static_cast<std::size_t>(events.facets(track.slices.event[i]).op_class);
    times[c] += track.slices.end[i] - track.slices.start[i];
    ++counts[c];
  }
  track.times.push_back(times);
  track.counts.push_back(counts);
}

}  // namespace

Document::Document(Trace trace, std::string name)
    : name_{std::move(name)}, trace_{std::make_unique<const Trace>(std::move(trace))} {
  events_ = make_event_source(*trace_);
  const Timeline& t = trace_->timeline;
  std::map<std::uint32_t, std::uint32_t> owner_of;
  const auto owner = [&](RankId rank) {
    const auto [it, is_new] = owner_of.try_emplace(rank.value, static_cast<std::uint32_t>(owners_.size()));
    if (is_new) add_owner(rank.value, fmt::format("rank {}", rank.value));
    return it->second;
  };
  for (Lane& lane : lanes_of(*trace_)) {
    Track& track = tracks_.emplace_back();
    track.owner = owner(lane.rank);
    track.name = name_of(lane);
    track.is_overflow = lane.number > 0;
    track.slices.start.reserve(lane.spans.size());
    track.slices.end.reserve(lane.spans.size());
    for (const SpanIndex s : lane.spans) {
      track.slices.start.push_back(t.spans[s].start_ps);
      track.slices.end.push_back(t.spans[s].end_ps);
    }
    track.slices.event = std::move(lane.spans);
  }
  for (const MemorySample& m : t.memory) owner(m.rank);
  std::int64_t start = 0;
  for (std::size_t i = 0; i < t.instance_ends_ps.size(); ++i) {
    const PlanDigest& plan = trace_->plans[t.plan_of(static_cast<std::uint32_t>(i))];
    markers_.push_back({fmt::format("{} {}", plan.name, i), start, t.instance_ends_ps[i]});
    start = t.instance_ends_ps[i];
  }
  add_memory(t);
  add_rates(*trace_);
  finish();
}

Document::Document(ForeignTrace trace, std::string name)
    : name_{std::move(name)}, foreign_{std::make_unique<const ForeignTrace>(std::move(trace))} {
  events_ = make_event_source(*foreign_);
  const ForeignTrace& f = *foreign_;
  for (std::size_t p = 0; p < f.processes.size(); ++p) add_owner(static_cast<std::uint32_t>(p), f.processes[p].name);
  std::vector<EventIndex> order(f.events.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<EventIndex>(i);
  const auto key = [&](EventIndex i) {
    const ForeignEvent& e = f.events[i];
    const ForeignThread& t = f.threads[e.thread];
    return std::tuple{t.process, t.order, e.thread, e.start_ps, -e.end_ps, i};
  };
  std::sort(order.begin(), order.end(), [&](EventIndex a, EventIndex b) { return key(a) < key(b); });
  NestedLanes lanes{tracks_};
  std::uint32_t thread = UINT32_MAX;
  for (const EventIndex i : order) {
    const ForeignEvent& e = f.events[i];
    if (e.thread != thread) lanes.begin(f.threads[e.thread].process, f.threads[e.thread].name);
    thread = e.thread;
    lanes.add(e.start_ps, e.end_ps, i);
    if (e.is_marker) markers_.push_back({std::string{f.names[e.name]}, e.start_ps, e.end_ps});
  }
  add_occupancy(f);
  for (const ForeignCounter& c : f.counters) {
    Counter& counter = counters_.emplace_back();
    counter.name = c.name;
    counter.unit = c.unit;
    counter.owner = c.process;
    for (const auto& [at, value] : c.samples) {
      counter.at.push_back(at);
      counter.value.push_back(value);
    }
  }
  finish();
}

void Document::add_owner(std::uint32_t id, std::string name) { owners_.push_back({std::move(name), id, {}, {}}); }

void Document::add_memory(const Timeline& timeline) {
  std::map<std::pair<std::uint32_t, Tier>, std::size_t> counter_of;
  std::map<std::uint32_t, std::uint32_t> owner_of;
  for (std::size_t i = 0; i < owners_.size(); ++i) owner_of[owners_[i].id] = static_cast<std::uint32_t>(i);
  for (const MemorySample& m : timeline.memory) {
    const auto [it, is_new] = counter_of.try_emplace({m.rank.value, m.tier}, counters_.size());
    if (is_new) {
      Counter& c = counters_.emplace_back();
      c.name = fmt::format("{} memory", orrery::name_of(m.tier));
      c.unit = "B";
      c.owner = owner_of.at(m.rank.value);
    }
    counters_[it->second].at.push_back(m.at_ps);
    counters_[it->second].value.push_back(double(m.bytes));
  }
}

namespace {

struct Change {
  std::int64_t at;
  double by;
};

/// What the spans of an owner move or compute per second while they run. A lane's changes are in order already.
std::vector<Change> rate_changes(const Trace& trace, const std::vector<const Track*>& lanes, bool is_link) {
  const auto before = [](const Change& a, const Change& b) { return a.at < b.at; };
  std::vector<Change> all;
  for (const Track* track : lanes) {
    const auto middle = static_cast<std::ptrdiff_t>(all.size());
    for (std::size_t i = 0; i < track->slices.size(); ++i) {
      const Span& span = trace.timeline.spans[track->slices.event[i]];
      const WorkDigest& work = plan_of(trace.timeline, trace.plans, span).work(span.op);
      const double amount = is_link ? work.message.base() : work.flops.base();
      const double seconds = double(span.end_ps - span.start_ps) * 1e-12;
      if (amount <= 0 || seconds <= 0) continue;
      all.push_back({span.start_ps, amount / seconds});
      all.push_back({span.end_ps, -amount / seconds});
    }
    std::inplace_merge(all.begin(), all.begin() + middle, all.end(), before);
  }
  return all;
}

/// The sum of what runs at a time.
Counter counter_of(const std::vector<Change>& changes, const char* name, const char* unit, std::uint32_t owner) {
  Counter c;
  c.name = name;
  c.unit = unit;
  c.owner = owner;
  double level = 0;
  int running = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    running += changes[i].by > 0 ? 1 : -1;
    level = running == 0 ? 0 : level + changes[i].by;  // no rounding is left when nothing runs
    if (i + 1 < changes.size() && changes[i + 1].at == changes[i].at) continue;
    c.at.push_back(changes[i].at);
    c.value.push_back(std::max(0.0, level));
  }
  return c;
}

/// How many of a kernel's warps an SM holds at a time, of those that it could, in percent, as the profiler of PyTorch
/// estimates it; 0 where it does not say.
double occupancy_of(const ForeignTrace& trace, const ForeignEvent& e) {
  double percent = 0;
  const std::string_view text = e.is_device ? trace.argument(e, "est. achieved occupancy %") : std::string_view{};
  std::from_chars(text.data(), text.data() + text.size(), percent);
  return std::isfinite(percent) ? std::clamp(percent, 0.0, 100.0) : 0;
}

}  // namespace

void Document::add_occupancy(const ForeignTrace& trace) {
  std::vector<std::vector<Change>> changes(owners_.size());
  for (const ForeignEvent& e : trace.events) {
    const double percent = occupancy_of(trace, e);
    if (percent <= 0 || e.end_ps <= e.start_ps) continue;
    changes[trace.threads[e.thread].process].push_back({e.start_ps, percent});
    changes[trace.threads[e.thread].process].push_back({e.end_ps, -percent});
  }
  for (std::size_t o = 0; o < owners_.size(); ++o) {
    if (changes[o].empty()) continue;
    std::sort(changes[o].begin(), changes[o].end(), [](const Change& a, const Change& b) { return a.at < b.at; });
    Counter c = counter_of(changes[o], "SM occupancy", "%", static_cast<std::uint32_t>(o));
    for (double& v : c.value) v = std::min(v, 100.0);  // kernels that run at once share the SMs
    counters_.push_back(std::move(c));
  }
}

void Document::add_rates(const Trace& trace) {
  std::vector<std::vector<const Track*>> lanes(owners_.size());
  for (const Track& track : tracks_)
    if (!track.is_overflow) lanes[track.owner].push_back(&track);
  for (const bool is_link : {true, false}) {
    std::vector<Counter> rates(owners_.size());
    in_parallel(owners_.size(), [&](std::size_t o) {
      rates[o] = counter_of(rate_changes(trace, lanes[o], is_link), is_link ? "link use" : "arithmetic",
                            is_link ? "B/s" : "FLOP/s", static_cast<std::uint32_t>(o));
    });
    for (Counter& c : rates)
      if (!c.at.empty()) counters_.push_back(std::move(c));
  }
}

void Document::finish() {
  places_.resize(events_->size());
  for (std::size_t t = 0; t < tracks_.size(); ++t)
    owners_[tracks_[t].owner].tracks.push_back(static_cast<std::uint32_t>(t));
  in_parallel(tracks_.size(), [&](std::size_t t) {
    Columns& slices = tracks_[t].slices;
    slices.category.resize(slices.size());
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const EventIndex e = slices.event[i];
      places_[e] = {static_cast<std::uint32_t>(t), static_cast<std::uint32_t>(i)};
      slices.category[i] = static_cast<std::uint8_t>(events_->facets(e).op_class);
    }
    tracks_[t].pyramid = Pyramid{slices};
    sum_blocks(tracks_[t], *events_);
  });
  for (std::size_t c = 0; c < counters_.size(); ++c) {
    owners_[counters_[c].owner].counters.push_back(static_cast<std::uint32_t>(c));
    counters_[c].sum_up();
  }
  find_range();
}

void Document::categorise_by_class() {
  if (is_by_class_) return;
  categorise([&](EventIndex e) { return static_cast<std::uint8_t>(events_->facets(e).op_class); });
  is_by_class_ = true;
}

void Document::find_range() {
  begin_ = 0;
  end_ = trace_ ? trace_->timeline.makespan_ps : 0;
  for (const Track& t : tracks_) {
    if (t.slices.size() == 0) continue;
    begin_ = std::min(begin_, t.slices.start.front());
    end_ = std::max(end_, t.slices.end.back());
  }
}

std::string_view Document::source() const {
  if (!trace_) return "recorded";
  return trace_->timeline.source == TimelineSource::Measured ? "measured" : "predicted";
}

std::string Document::machine() const { return trace_ ? trace_->timeline.machine : foreign_->program; }

std::int64_t Document::devices_per_node() const {
  if (!trace_) return kNoNodes;
  for (const auto& [key, value] : trace_->metadata) {
    if (key != "devices_per_node") continue;
    std::int64_t n = 0;
    std::from_chars(value.data(), value.data() + value.size(), n);
    return std::max(n, kNoNodes);
  }
  return kNoNodes;
}

std::int64_t Document::start(EventIndex e) const { return tracks_[places_[e].track].slices.start[places_[e].slice]; }
std::int64_t Document::end(EventIndex e) const { return tracks_[places_[e].track].slices.end[places_[e].slice]; }

std::size_t Document::num_slices() const {
  std::size_t n = 0;
  for (const Track& t : tracks_) n += t.slices.size();
  return n;
}

}  // namespace orrery::gui
