// SPDX-License-Identifier: Apache-2.0
// What the streams of one rank do when: the parts of which the attribution of time is made.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

/// Op classes and, behind them, waiting. What runs at the same time is attributed to the lowest place in line: compute,
/// host, copies, messages, collectives, waiting.
constexpr std::size_t kWaiting = kNumOpClasses;
constexpr std::size_t kNumActivities = kNumOpClasses + 1;
using Activity = std::size_t;
constexpr std::size_t kPlaceOfWaiting = kNumActivities - 1;

/// All activities from the first in line to the last.
std::array<Activity, kNumActivities> activities_in_line();

/// A time in which one thing runs.
struct PlacedTime {
  std::int64_t start_ps = 0, end_ps = 0;
  std::size_t place = 0;  // in line
};

/// What one stream of a rank does: written, straightened, then read from its start on.
class StreamLine {
 public:
  void clear();
  bool is_empty() const { return intervals_.empty(); }

  void add(std::int64_t start, std::int64_t end, std::size_t place) {
    if (start >= end) return;
    if (!intervals_.empty()) {
      PlacedTime& last = intervals_.back();
      if (last.end_ps == start && last.place == place) {
        last.end_ps = end;
        return;
      }
      is_in_line_ = is_in_line_ && last.end_ps <= start;
    }
    intervals_.push_back({start, end, place});
  }

  /// From here on each interval begins when the one before it has ended, or later, and instants may be asked for that
  /// never go back.
  void straighten();

  /// The place of what runs at an instant; kNumActivities: nothing. Lowers `until_ps` to when that changes.
  std::size_t place_at(std::int64_t at_ps, std::int64_t& until_ps) {
    if (at_ps >= until_ps_) look_at(at_ps);
    until_ps = std::min(until_ps, until_ps_);
    return place_;
  }
  /// The same where waiting counts as nothing.
  std::size_t active_place_at(std::int64_t at_ps, std::int64_t& until_ps) {
    if (at_ps >= active_until_ps_) look_for_activity(at_ps);
    until_ps = std::min(until_ps, active_until_ps_);
    return active_place_;
  }

 private:
  void look_at(std::int64_t at_ps);
  void look_for_activity(std::int64_t at_ps);

  std::vector<PlacedTime> intervals_;
  bool is_in_line_ = true;
  const PlacedTime *next_ = nullptr, *end_ = nullptr;  // the first that has not ended where the line is read
  std::size_t place_ = kNumActivities, active_place_ = kNumActivities;  // of what runs there
  std::int64_t until_ps_ = INT64_MIN, active_until_ps_ = INT64_MIN;
};

/// What the compute stream of a rank did in a block of ops that is repeated: times from the start of its first op on.
/// Other copies of the block that ran alike did the same.
class BlockTimes {
 public:
  struct Times {
    std::int64_t start_ps = 0, end_ps = 0;
  };

  /// What the next op did, which began when the one before it had ended, or later.
  void add(const PlacedTime& at, OpClass op_class, bool leads);
  std::int64_t end_ps() const { return times_.empty() ? 0 : times_.back().end_ps; }
  /// Whether ops of another copy, from the one with this number on, ran like these.
  bool is_as(std::span<const Span> ops, std::size_t first, std::int64_t start_ps) const;
  /// All times but those in which compute leads; kNumActivities: nothing ran.
  std::span<const PlacedTime> others() const { return others_; }
  bool is_idle() const { return is_idle_; }  // at times

  /// Durations by class: where compute leads, and where it does not.
  std::array<std::int64_t, kNumOpClasses> led_ps{}, other_ps{};
  /// How many copies ran like this, and of how many nothing ran beside that is earlier in line than what did not lead.
  std::int64_t copies = 0, quiet_copies = 0;

 private:
  void append(const PlacedTime& at);

  std::vector<Times> times_;  // of each op
  std::vector<PlacedTime> others_;
  bool is_idle_ = false;
};

}  // namespace orrery
