// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/base/unset_vector.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// The interval in which one op of one rank ran. `part` counts the pieces of a detailed collective; 0 for the op
/// itself. Times are picoseconds since the start of the run; the runtime measures in nanoseconds.
struct Span {
  std::int64_t start_ps = 0, end_ps = 0;
  OpId op;
  RankId rank;
  std::uint32_t instance = 0;  // which execution of the plan
  std::uint32_t part = 0;
};

using Spans = UnsetVector<Span>;

/// Memory of one tier of one rank from this instant on.
struct MemorySample {
  std::int64_t at_ps = 0;
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0;
};

/// The most memory that one rank held in one tier, and which op asked for the last of it.
struct Peak {
  RankId rank;
  Tier tier = Tier::Device;
  std::int64_t bytes = 0;        // live tensors, each rounded up to kAllocationUnit
  std::int64_t arena_bytes = 0;  // what the allocator needed to hold them
  OpId op;                       // none: before the first op
  std::uint32_t instance = 0;
  std::vector<std::pair<TensorId, std::int64_t>> owners;  // live at that instant, largest first
};

/// What one rank has copied from one tier to another.
struct Transfers {
  RankId rank;
  Tier from = Tier::Device, to = Tier::Device;
  std::int64_t moves = 0, bytes = 0;
  bool operator==(const Transfers&) const = default;
};

enum class TimelineSource : std::uint8_t { Predicted, Measured };

/// Of how many ranks a recorded one stands, where a folded simulation had to tell ranks of one class apart.
struct Standing {
  RankId rank;
  std::int64_t ranks = 1;
};

/// What the engine predicts and the runtime measures, keyed by (plan instance, op, rank, part): validation is a join on
/// that key.
struct Timeline {
  TimelineSource source = TimelineSource::Predicted;
  std::string plan_name;  // of Plan::name
  std::string machine;    // cluster and parameter file, or the machine that ran
  std::int64_t num_ranks = 1;
  Spans spans;                       // of engine and runtime: in order of instance, rank, op and part
  std::vector<MemorySample> memory;  // of each rank and tier in order of time
  std::vector<Peak> peaks;           // one per (rank, tier) in use
  std::vector<Transfers> transfers;  // one per (rank, from, to) in use
  std::int64_t makespan_ps = 0;
  std::vector<std::int64_t> instance_ends_ps;  // when each execution of the plan had ended on all ranks
  std::vector<std::uint32_t> instance_plans;   // which plan of the caller's list each executed; empty: all the first
  std::vector<Standing> standing;              // of some recorded ranks, ascending; the others stand for their class

  /// The plan, in the list that the caller holds, that an instance executed.
  std::uint32_t plan_of(std::uint32_t instance) const {
    return instance < instance_plans.size() ? instance_plans[instance] : 0;
  }
  Seconds makespan() const { return Seconds{double(makespan_ps) * 1e-12}; }
};

}  // namespace orrery
