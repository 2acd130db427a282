// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/attribution.hpp"

#include <algorithm>
#include <bit>
#include <map>

namespace orrery {
namespace {

/// Op classes and, behind them, waiting; what runs at the same time is attributed to the lowest place in line.
constexpr std::size_t kWaiting = kNumOpClasses;
constexpr std::size_t kNumActivities = kNumOpClasses + 1;
using Activity = std::size_t;

/// Place in line of an activity: compute, host, copies, messages, collectives, waiting.
std::size_t place_of(Activity a) {
  constexpr std::size_t kLate = 100;
  if (a == kWaiting) return kLate + 4;
  switch (static_cast<OpClass>(a)) {
    case OpClass::Collective:
      return kLate + 3;
    case OpClass::PointToPoint:
      return kLate + 2;
    case OpClass::Copy:
      return kLate + 1;
    case OpClass::Host:
      return kLate;
    default:
      return a;
  }
}

/// All activities from the first in line to the last.
std::array<Activity, kNumActivities> activities_in_line() {
  std::array<Activity, kNumActivities> line{};
  for (std::size_t i = 0; i < kNumActivities; ++i) line[i] = i;
  std::sort(line.begin(), line.end(), [](Activity a, Activity b) { return place_of(a) < place_of(b); });
  return line;
}

struct Interval {
  std::int64_t start_ps = 0, end_ps = 0;
  std::size_t place = 0;  // in line
};

/// Intervals that overlap, cut so that each instant has the first in line of those that cover it.
std::vector<Interval> without_overlaps(const std::vector<Interval>& intervals) {
  struct Change {
    std::int64_t at_ps = 0;
    std::size_t place = 0;
    int by = 0;
  };
  std::vector<Change> changes;
  for (const Interval& i : intervals) {
    changes.push_back({i.start_ps, i.place, +1});
    changes.push_back({i.end_ps, i.place, -1});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at_ps < b.at_ps; });
  std::vector<Interval> out;
  std::array<int, kNumActivities> running{};
  std::uint32_t busy = 0;  // one bit per place with something running
  std::int64_t now = 0;
  for (const Change& c : changes) {
    if (busy != 0 && now < c.at_ps) out.push_back({now, c.at_ps, static_cast<std::size_t>(std::countr_zero(busy))});
    now = c.at_ps;
    running[c.place] += c.by;
    busy = running[c.place] > 0 ? busy | 1u << c.place : busy & ~(1u << c.place);
  }
  return out;
}
static_assert(kNumActivities < 32);

/// What one stream of a rank does: written, straightened, then read from its start on.
class Lane {
 public:
  void clear() { intervals_.clear(), next_ = 0, is_in_line_ = true; }
  bool is_empty() const { return intervals_.empty(); }

  void add(std::int64_t start, std::int64_t end, std::size_t place) {
    if (start >= end) return;
    if (!intervals_.empty()) {
      Interval& last = intervals_.back();
      if (last.end_ps == start && last.place == place) {
        last.end_ps = end;
        return;
      }
      is_in_line_ = is_in_line_ && last.end_ps <= start;
    }
    intervals_.push_back({start, end, place});
  }

  /// From here on each interval begins when the one before it has ended, or later.
  void straighten() {
    if (!is_in_line_) intervals_ = without_overlaps(intervals_);
    is_in_line_ = true;
  }

  /// The place of what runs at an instant that never goes back; kNumActivities: nothing. Lowers `until_ps` to when that
  /// changes.
  std::size_t place_at(std::int64_t at_ps, std::int64_t& until_ps) {
    while (next_ < intervals_.size() && intervals_[next_].end_ps <= at_ps) ++next_;
    if (next_ == intervals_.size()) return kNumActivities;
    const Interval& i = intervals_[next_];
    const bool runs = i.start_ps <= at_ps;
    until_ps = std::min(until_ps, runs ? i.end_ps : i.start_ps);
    return runs ? i.place : kNumActivities;
  }

 private:
  std::vector<Interval> intervals_;
  std::size_t next_ = 0;  // the first that has not ended where the lane is read
  bool is_in_line_ = true;
};

/// Length of the union of intervals that come in order of their start, from `until` on; moves `until`.
std::int64_t covered(std::int64_t start, std::int64_t end, std::int64_t& until) {
  const std::int64_t from = std::max(start, until);
  until = std::max(until, end);
  return std::max<std::int64_t>(0, end - from);
}

/// Attributes the time of one rank after another. As a rule the compute stream alone does what comes first in line, one
/// op after another: then it leads, none of its ops need be compared with anything, and only what lies between them is
/// looked into.
class Attribution {
 public:
  Attribution(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph)
      : timeline_{timeline}, plans_{plans}, graph_{graph}, line_{activities_in_line()} {
    for (std::size_t place = 0; place < line_.size(); ++place) places_[line_[place]] = static_cast<std::uint8_t>(place);
    for (const PlanDigest& plan : plans) {
      std::vector<WorkRow>& rows = works_.emplace_back();
      for (const WorkDigest& w : plan.works) {
        const auto c = static_cast<std::uint8_t>(w.op_class);
        const bool meets = w.meeting != Meeting::None;
        rows.push_back({c, places_[c], meets, !meets && places_[c] < first_other_place()});
      }
    }
  }

  RankTime of(RankId rank, std::span<const SpanTable::Block* const> blocks) {
    RankTime out;
    const auto gather = [&](bool compute_leads) {
      start(out, rank);
      return std::all_of(blocks.begin(), blocks.end(),
                         [&](const SpanTable::Block* b) { return add(*b, compute_leads, out); });
    };
    if (!gather(true)) gather(false);
    used_.clear();
    for (Lane& lane : lanes_) {
      lane.straighten();
      if (!lane.is_empty()) used_.push_back(&lane);
    }
    std::int64_t now = 0;
    for (const auto& [from, to] : leading_) {
      fill(now, from, out);
      now = to;
    }
    fill(now, timeline_.makespan_ps, out);
    return out;
  }

 private:
  static constexpr std::size_t kCompute = static_cast<std::size_t>(Stream::Compute);
  struct WorkRow {
    std::uint8_t op_class = 0, place = 0;
    bool meets = false;
    bool leads = false;  // on the compute stream
  };
  std::uint8_t first_other_place() const { return places_[static_cast<std::size_t>(OpClass::Host)]; }

  void start(RankTime& out, RankId rank) {
    out = {};
    out.rank = rank;
    for (Lane& lane : lanes_) lane.clear();
    leading_.clear();
    busy_until_ = {};
  }

  /// False where compute should lead, but does not.
  bool add(const SpanTable::Block& block, bool compute_leads, RankTime& out) {
    const PlanDigest& plan = plan_of(timeline_, plans_, timeline_.spans[graph_.table().of(block).front()]);
    const std::span<const Op> ops = plan.ops;
    const std::span<const WorkRow> works = works_[timeline_.plan_of(block.instance)];
    const std::int64_t makespan_ps = timeline_.makespan_ps;
    std::array<std::int64_t, kNumOpClasses> led_ps{};
    for (const SpanIndex s : graph_.table().of(block)) {
      const Span& span = timeline_.spans[s];
      if (span.part != 0) continue;
      ++out.ops;
      const Op& op = ops[span.op.index()];
      const WorkRow work = works[op.work.index()];
      if (compute_leads && op.stream == Stream::Compute) {
        std::int64_t& until = busy_until_[kCompute];
        if (span.start_ps < until || span.end_ps > makespan_ps) return false;
        if (work.leads) {
          until = span.end_ps;
          led_ps[work.op_class] += span.end_ps - span.start_ps;
          lead(span.start_ps, span.end_ps);
          continue;
        }
      } else if (compute_leads && work.place < first_other_place()) {
        return false;
      }
      add_beside(s, work, static_cast<std::size_t>(op.stream), out);
    }
    for (std::size_t c = 0; c < led_ps.size(); ++c) {
      out.exposed_ps[c] += led_ps[c];
      out.running_ps[c] += led_ps[c];
      out.busy_ps[kCompute] += led_ps[c];
    }
    return true;
  }

  void add_beside(SpanIndex s, WorkRow work, std::size_t stream, RankTime& out) {
    const Span& span = timeline_.spans[s];
    const std::int64_t ready = work.meets ? graph_.ready_ps(s) : span.start_ps;
    out.running_ps[work.op_class] += span.end_ps - ready;
    out.busy_ps[stream] += covered(span.start_ps, span.end_ps, busy_until_[stream]);
    lanes_[stream].add(span.start_ps, ready, places_[kWaiting]);
    lanes_[stream].add(ready, span.end_ps, work.place);
  }

  void lead(std::int64_t from, std::int64_t to) {
    if (!leading_.empty() && leading_.back().second == from)
      leading_.back().second = to;
    else if (from < to)
      leading_.emplace_back(from, to);
  }

  /// Attributes a time in which compute does not lead.
  void fill(std::int64_t from, std::int64_t to, RankTime& out) {
    while (from < to) {
      std::int64_t until = to;
      std::size_t place = kNumActivities;
      for (Lane* lane : used_) place = std::min(place, lane->place_at(from, until));
      if (place == kNumActivities)
        add_idle(from, until, out);
      else
        (line_[place] == kWaiting ? out.waiting_ps : out.exposed_ps[line_[place]]) += until - from;
      from = until;
    }
  }

  static void add_idle(std::int64_t from, std::int64_t to, RankTime& out) {
    out.idle_ps += to - from;
    if (to - from <= out.longest_idle_end_ps - out.longest_idle_start_ps) return;
    out.longest_idle_start_ps = from;
    out.longest_idle_end_ps = to;
  }

  const Timeline& timeline_;
  const PlanDigests& plans_;
  const SpanGraph& graph_;
  std::array<Activity, kNumActivities> line_;
  std::array<std::uint8_t, kNumActivities> places_{};  // in line, per activity
  std::vector<std::vector<WorkRow>> works_;            // per plan
  // Of the rank at hand.
  std::array<Lane, kNumStreams> lanes_;
  std::vector<Lane*> used_;
  std::vector<std::pair<std::int64_t, std::int64_t>> leading_;  // when compute leads
  std::array<std::int64_t, kNumStreams> busy_until_{};
};

}  // namespace

std::vector<RankTime> attribute_time(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph) {
  std::map<RankId, std::vector<const SpanTable::Block*>> blocks;
  for (const SpanTable::Block& block : graph.table().blocks()) blocks[block.rank].push_back(&block);
  std::vector<RankTime> out;
  Attribution attribution{timeline, plans, graph};
  for (const auto& [rank, mine] : blocks) out.push_back(attribution.of(rank, mine));
  return out;
}

}  // namespace orrery
