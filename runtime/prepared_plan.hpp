// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/class_program.hpp"
#include "runtime/core_watch.hpp"
#include "runtime/executor.hpp"
#include "runtime/rank_memory.hpp"
#include "runtime/rendezvous.hpp"

namespace orrery {

/// Where a rank stands in a meeting.
struct Seat {
  Meeting* meeting = nullptr;
  std::uint32_t member = 0;
};

struct RawSpan {
  std::int64_t start_ns, end_ns;
  OpId op;
  std::uint32_t instance;
};

/// Scratch of the collectives of a lane: of the host, or of the rank's device.
struct Stage {
  std::size_t bytes = 0;
  std::vector<std::byte> of_host;
  std::unique_ptr<DeviceMemory> of_device;
};

/// One rank of a prepared plan: its storage table, signals and spans. One that another process executes has only its
/// program and its seats.
struct RankRun {
  RankId rank;
  const ClassProgram* program = nullptr;
  RankMemory* memory = nullptr;        // null: of another process
  int process = 0;                     // of those that have a share of the ranks
  std::vector<std::uintptr_t> places;  // per tensor of the plan
  std::array<std::byte*, kNumStreams> workspaces{};
  std::vector<Signal> signals;
  std::vector<std::uint32_t> counters;      // of the running execution, see ClassProgram
  std::vector<Seat> seats;                  // per meeting ordinal of the class
  std::vector<std::vector<RawSpan>> spans;  // per lane
  std::vector<CoreSample> cores;            // of the thread of its compute stream, while cores are watched
  std::vector<Stage> stages;                // per lane
  PlacementScript script;

  bool is_here() const { return memory != nullptr; }
};

/// A plan that is ready to run: compiled classes, ranks with storage, and the meetings between them. Devices differ in
/// who goes through the lanes.
class PreparedPlan {
 public:
  PreparedPlan(const Preparation& preparation, const Device& device);
  virtual ~PreparedPlan() = default;

  const Plan& plan() const { return plan_; }
  std::vector<RankRun>& ranks() { return ranks_; }
  const std::vector<RankRun>& ranks() const { return ranks_; }

  /// Runs the plan once. Rethrows what failed first, when all has stopped.
  void execute(const Bindings& bindings, std::uint32_t instance);

 protected:
  /// Goes through all lanes of all ranks. What it throws ends the execution.
  virtual void run_lanes(const Bindings& bindings) = 0;
  /// After a failure.
  virtual void clean_up();

  const Plan& plan_;
  TierLinks& links_;
  std::vector<ClassProgram> programs_;  // per class
  std::vector<RankRun> ranks_;
  std::vector<std::unique_ptr<Meeting>> meetings_;
  bool records_spans_;
  std::uint32_t instance_ = 0;

 private:
  void begin(std::uint32_t instance);
  void place_rank_views(RankRun& r);
  void ready_rank(RankRun& r, ClassId id, RankMemory& memory);
};

}  // namespace orrery
