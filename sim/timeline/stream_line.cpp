// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/stream_line.hpp"

#include <bit>

namespace orrery {
namespace {

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

/// Intervals that overlap, cut so that each instant has the first in line of those that cover it.
std::vector<PlacedTime> without_overlaps(const std::vector<PlacedTime>& intervals) {
  struct Change {
    std::int64_t at_ps = 0;
    std::size_t place = 0;
    int by = 0;
  };
  std::vector<Change> changes;
  for (const PlacedTime& i : intervals) {
    changes.push_back({i.start_ps, i.place, +1});
    changes.push_back({i.end_ps, i.place, -1});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at_ps < b.at_ps; });
  std::vector<PlacedTime> out;
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

}  // namespace

std::array<Activity, kNumActivities> activities_in_line() {
  std::array<Activity, kNumActivities> line{};
  for (std::size_t i = 0; i < kNumActivities; ++i) line[i] = i;
  std::sort(line.begin(), line.end(), [](Activity a, Activity b) { return place_of(a) < place_of(b); });
  return line;
}

void StreamLine::clear() {
  intervals_.clear();
  is_in_line_ = true;
}

void StreamLine::straighten() {
  if (!is_in_line_) intervals_ = without_overlaps(intervals_);
  is_in_line_ = true;
  next_ = intervals_.data();
  end_ = next_ + intervals_.size();
  until_ps_ = active_until_ps_ = INT64_MIN;
}

void StreamLine::look_at(std::int64_t at_ps) {
  while (next_ != end_ && next_->end_ps <= at_ps) ++next_;
  const bool runs = next_ != end_ && next_->start_ps <= at_ps;
  place_ = runs ? next_->place : kNumActivities;
  until_ps_ = next_ == end_ ? INT64_MAX : runs ? next_->end_ps : next_->start_ps;
}

void StreamLine::look_for_activity(std::int64_t at_ps) {
  while (next_ != end_ && next_->end_ps <= at_ps) ++next_;
  const PlacedTime* i = next_;
  while (i != end_ && i->place == kPlaceOfWaiting) ++i;
  const bool runs = i != end_ && i->start_ps <= at_ps;
  active_place_ = runs ? i->place : kNumActivities;
  active_until_ps_ = i == end_ ? INT64_MAX : runs ? i->end_ps : i->start_ps;
}

void BlockTimes::add(const PlacedTime& at, OpClass op_class, bool leads) {
  const auto c = static_cast<std::size_t>(op_class);
  (leads ? led_ps : other_ps)[c] += at.end_ps - at.start_ps;
  if (end_ps() < at.start_ps) {
    append({end_ps(), at.start_ps, kNumActivities});
    is_idle_ = true;
  }
  times_.push_back({at.start_ps, at.end_ps});
  if (!leads) append(at);
}

void BlockTimes::append(const PlacedTime& at) {
  if (!others_.empty() && others_.back().place == at.place && others_.back().end_ps == at.start_ps)
    others_.back().end_ps = at.end_ps;
  else
    others_.push_back(at);
}

bool BlockTimes::is_as(std::span<const Span> ops, std::size_t first, std::int64_t start_ps) const {
  const std::span<const Times> times = std::span{times_}.subspan(first, ops.size());
  std::int64_t odd_start = 0, odd_end = 0;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    odd_start |= (ops[i].start_ps - start_ps) ^ times[i].start_ps;
    odd_end |= (ops[i].end_ps - start_ps) ^ times[i].end_ps;
  }
  return (odd_start | odd_end) == 0;
}

}  // namespace orrery
