// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/timeline/critical_path.hpp"
#include "sim/timeline/digest.hpp"

namespace orrery {

/// Seconds per op class, indexed by OpClass.
using ClassSeconds = std::array<double, kNumOpClasses>;

/// What one recorded rank did with its time: classes, waiting and idle add up to the makespan.
struct RankTime {
  RankId rank;
  /// Of how many ranks it stands for: as the timeline says, else members of its class per recorded rank of that class.
  /// 1 in an expanded timeline, the size of the class in a folded one.
  double weight = 1;
  std::array<std::int64_t, kNumOpClasses> exposed_ps{};  // each instant belongs to one class
  std::int64_t waiting_ps = 0;                           // in a collective or message whose partners had not begun
  std::int64_t idle_ps = 0;                              // nothing ran
  std::int64_t longest_idle_start_ps = 0, longest_idle_end_ps = 0;
  std::array<std::int64_t, kNumStreams> busy_ps{};       // per stream; streams overlap
  std::array<std::int64_t, kNumOpClasses> running_ps{};  // durations of the ops, overlapped or not, without waiting
  std::uint64_t ops = 0;                                 // spans with part 0
};

/// A peak by what the memory is for.
struct PeakSummary {
  struct Owner {
    std::string name;
    TensorRole role = TensorRole::Activation;
    std::int64_t bytes = 0;
  };
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0, arena_bytes = 0;
  std::string op;  // name of the op that asked for the last of it; empty: before the first
  std::array<std::int64_t, kNumRoles> by_role{};  // of the owners listed in the timeline
  std::vector<Owner> largest;
};

/// Where the time and the memory of a run went. Times are means over all ranks, those that a folded timeline leaves out
/// included.
struct Analysis {
  Seconds makespan;
  std::vector<RankTime> ranks;    // recorded ones, sorted
  ClassSeconds by_class{};        // exposed: adds up with waiting and idle to the makespan
  ClassSeconds busy_by_class{};   // durations of the ops, overlapped or not
  Seconds communication;          // while a collective or message moves data on a rank
  Seconds exposed_communication;  // the same while nothing else runs on the rank
  Seconds waiting, idle;
  double bubble = 0;  // (waiting + idle) / makespan
  CriticalPath path;
  std::vector<PeakSummary> peaks;  // one per (rank, tier)
  std::uint64_t ops = 0;           // spans with part 0
};

/// Attributes each instant of each rank to one class: of the ops running then, the class that comes first in the order
/// of OpClass with copies, point-to-point messages and collectives last, so compute wins over communication. The time
/// in a collective before its last partner began is waiting, not communication; partners that were not recorded count
/// as ready.
Analysis analyse(const Timeline& timeline, const PlanDigests& plans);
Analysis analyse(const Timeline& timeline, const PlanDigests& plans, const SpanGraph& graph);

/// The largest of the peaks in a tier; null when there is none.
const PeakSummary* highest_peak(const Analysis& analysis, Tier tier = Tier::Device);

struct Throughput {
  double tokens_per_second = 0;
  double mfu = 0;        // model FLOP / (makespan · peak of all ranks); 0 when the peak is unknown
  Seconds per_instance;  // mean over the executions of plans
};

/// From the purposes of the executed plans; `peak_of_all_ranks` is arithmetic per second of all devices together.
Throughput throughput(const Timeline& timeline, const PlanDigests& plans, FlopsPerSecond peak_of_all_ranks);

}  // namespace orrery
