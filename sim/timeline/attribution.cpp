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

/// What one stream of a rank does.
struct Lane {
  std::vector<Interval> intervals;
  std::uint32_t places = 0;  // one bit each

  void clear() {
    intervals.clear();
    places = 0;
  }
  void add(std::int64_t start, std::int64_t end, std::size_t place) {
    if (start >= end) return;
    places |= 1u << place;
    if (!intervals.empty() && intervals.back().end_ps == start && intervals.back().place == place)
      intervals.back().end_ps = end;
    else
      intervals.push_back({start, end, place});
  }
  /// Whether each interval begins when the one before it has ended, or later.
  bool is_in_line() const {
    return std::adjacent_find(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
             return b.start_ps < a.end_ps;
           }) == intervals.end();
  }
};
using Lanes = std::array<Lane, kNumStreams>;
static_assert(kNumActivities < 31);

/// Attributes the time of one rank. While the compute stream does what stands before all that other streams ever do,
/// they do not matter: only the rest is swept over.
class Sweep {
 public:
  Sweep(RankTime& out, std::int64_t makespan_ps, const std::array<Activity, kNumActivities>& line)
      : out_{out}, makespan_ps_{makespan_ps}, line_{line} {}

  void run(const Lanes& lanes) {
    attribute_leading(lanes);
    for (std::size_t s = 0; s < lanes.size(); ++s) {
      add_rest(lanes[s].intervals, s == kCompute);
      end_run();
    }
    for (const Interval& i : leading_) add_changes(i);
    end_run();
    merge_runs();
    for (const Change& change : changes_) {
      advance(std::min(change.at_ps, makespan_ps_));
      int& running = running_[change.place];
      running += change.by;
      busy_ = running > 0 ? busy_ | 1u << change.place : busy_ & ~(1u << change.place);
    }
    advance(makespan_ps_);
  }

 private:
  static constexpr std::size_t kCompute = static_cast<std::size_t>(Stream::Compute);
  static constexpr std::size_t kAttributed = kNumActivities;  // in place of a place in line
  struct Change {
    std::int64_t at_ps = 0;
    std::uint32_t place = 0;
    std::int32_t by = 0;
  };
  static bool is_before(const Change& a, const Change& b) { return a.at_ps < b.at_ps; }

  void attribute_leading(const Lanes& lanes) {
    if (!lanes[kCompute].is_in_line()) return;
    std::uint32_t others = 0;
    for (std::size_t s = 0; s < lanes.size(); ++s) others |= s == kCompute ? 0u : lanes[s].places;
    num_leading_ = static_cast<std::size_t>(std::countr_zero(others | 1u << kNumActivities));
    for (const Interval& i : lanes[kCompute].intervals) {
      if (i.place >= num_leading_) continue;
      const auto clipped = [&](std::int64_t at) { return std::clamp(at, std::int64_t{0}, makespan_ps_); };
      attribute(i.place, clipped(i.end_ps) - clipped(i.start_ps));
      if (!leading_.empty() && leading_.back().end_ps == i.start_ps)
        leading_.back().end_ps = i.end_ps;
      else
        leading_.push_back({i.start_ps, i.end_ps, kAttributed});
    }
  }

  void add_rest(const std::vector<Interval>& intervals, bool is_compute) {
    std::size_t over = 0;  // of leading_: the first that ends behind the start of an interval
    for (const Interval& i : intervals) {
      if (is_compute && i.place < num_leading_) continue;
      while (over < leading_.size() && leading_[over].end_ps <= i.start_ps) ++over;
      const bool is_hidden =
          over < leading_.size() && leading_[over].start_ps <= i.start_ps && i.end_ps <= leading_[over].end_ps;
      if (!is_hidden) add_changes(i);
    }
  }

  void add_changes(const Interval& i) {
    changes_.push_back({i.start_ps, static_cast<std::uint32_t>(i.place), +1});
    changes_.push_back({i.end_ps, static_cast<std::uint32_t>(i.place), -1});
  }

  /// Changes of one lane most often come in order of time.
  void end_run() {
    const auto first = changes_.begin() + static_cast<std::ptrdiff_t>(runs_.back());
    if (!std::is_sorted(first, changes_.end(), is_before)) std::sort(first, changes_.end(), is_before);
    runs_.push_back(changes_.size());
  }

  void merge_runs() {
    std::vector<Change> merged(changes_.size());
    while (runs_.size() > 2) {
      std::vector<std::size_t> ends{0};
      for (std::size_t r = 0; r + 1 < runs_.size(); r += 2) {
        const auto at = [&](std::size_t run) {
          return changes_.begin() + static_cast<std::ptrdiff_t>(runs_[std::min(run, runs_.size() - 1)]);
        };
        std::merge(at(r), at(r + 1), at(r + 1), at(r + 2), merged.begin() + (at(r) - changes_.begin()), is_before);
        ends.push_back(static_cast<std::size_t>(at(r + 2) - changes_.begin()));
      }
      changes_.swap(merged);
      runs_ = std::move(ends);
    }
  }

  void advance(std::int64_t to) {
    if (to <= now_) return;
    if (busy_ == 0)
      add_idle(to);
    else if ((busy_ >> kAttributed & 1u) == 0)
      attribute(static_cast<std::size_t>(std::countr_zero(busy_)), to - now_);
    now_ = to;
  }

  void attribute(std::size_t place, std::int64_t duration_ps) {
    if (line_[place] == kWaiting)
      out_.waiting_ps += duration_ps;
    else
      out_.exposed_ps[line_[place]] += duration_ps;
  }

  void add_idle(std::int64_t to) {
    out_.idle_ps += to - now_;
    if (to - now_ <= out_.longest_idle_end_ps - out_.longest_idle_start_ps) return;
    out_.longest_idle_start_ps = now_;
    out_.longest_idle_end_ps = to;
  }

  RankTime& out_;
  std::int64_t makespan_ps_ = 0, now_ = 0;
  const std::array<Activity, kNumActivities>& line_;
  std::size_t num_leading_ = 0;    // places in line that only the compute stream has
  std::vector<Interval> leading_;  // when it has them
  std::vector<Change> changes_;
  std::vector<std::size_t> runs_{0};  // where changes in order of time begin, and the end
  std::array<int, kNumActivities + 1> running_{};
  std::uint32_t busy_ = 0;  // one bit per place with something running
};

/// Length of the union of intervals that come in order of their start, from `until` on; moves `until`.
std::int64_t covered(std::int64_t start, std::int64_t end, std::int64_t& until) {
  const std::int64_t from = std::max(start, until);
  until = std::max(until, end);
  return std::max<std::int64_t>(0, end - from);
}

}  // namespace

std::vector<RankTime> attribute_time(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph) {
  std::map<RankId, std::vector<const SpanTable::Block*>> blocks;
  for (const SpanTable::Block& block : graph.table().blocks()) blocks[block.rank].push_back(&block);
  std::vector<RankTime> out;
  const std::array<Activity, kNumActivities> line = activities_in_line();
  std::array<std::size_t, kNumActivities> places{};
  for (std::size_t place = 0; place < line.size(); ++place) places[line[place]] = place;
  Lanes lanes;
  for (const auto& [rank, mine] : blocks) {
    RankTime& time = out.emplace_back();
    time.rank = rank;
    std::array<std::int64_t, kNumStreams> busy_until{};
    for (Lane& lane : lanes) lane.clear();
    for (const SpanTable::Block* block : mine) {
      const PlanDigest& plan = plan_of(timeline, plans, timeline.spans[graph.table().of(*block).front()]);
      for (const SpanIndex s : graph.table().of(*block)) {
        const Span& span = timeline.spans[s];
        if (span.part != 0) continue;
        const auto stream = static_cast<std::size_t>(plan[span.op].stream);
        const std::int64_t ready = graph.ready_ps(s);
        time.busy_ps[stream] += covered(span.start_ps, span.end_ps, busy_until[stream]);
        lanes[stream].add(span.start_ps, ready, places[kWaiting]);
        lanes[stream].add(ready, span.end_ps, places[static_cast<Activity>(plan.work(span.op).op_class)]);
      }
    }
    Sweep{time, timeline.makespan_ps, line}.run(lanes);
  }
  return out;
}

}  // namespace orrery
