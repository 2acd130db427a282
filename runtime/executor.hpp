// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/base/allocator.hpp"
#include "sim/plan/builder.hpp"
#include "sim/plan/collective_choice.hpp"
#include "sim/plan/plan.hpp"
#include "sim/timeline/timeline.hpp"

namespace orrery {

/// Executes plans with real data: threads as streams, events between them, arenas as memory tiers. The timeline that it
/// returns has the plan's op ids and the ranks of its mesh; times are nanoseconds (stored as picoseconds).
///
/// Persistent tensors live from one execution to the next and are shared between plans by (name, tier, rank): a
/// training step and its evaluation share parameters, prefill and decode share the cache. Sizes of equal names must
/// agree.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Takes storage for the plan's persistent tensors and readies its ops, so that `execute` allocates nothing.
  /// Parameters without contents yet are zero. The plan must outlive the executor. Throws UserError when the device
  /// cannot run an op or a data type.
  virtual void prepare(const Plan& plan) = 0;

  /// Runs the plan once on all ranks of its mesh. Throws DeviceError when an arena is full.
  virtual void execute(const Plan& plan, const Bindings& bindings) = 0;

  /// Contents of a persistent tensor (or a view of one) on one rank, row-major, converted to and from the tensor's
  /// type.
  virtual void write(const Plan& plan, TensorId tensor, RankId rank, std::span<const double> values) = 0;
  virtual void write(const Plan& plan, TensorId tensor, RankId rank, std::span<const std::int32_t> values) = 0;
  virtual std::vector<double> read(const Plan& plan, TensorId tensor, RankId rank) const = 0;

  /// Whether this process executes a rank. What is written to others is left to their processes.
  virtual bool holds(const Plan&, RankId) const { return true; }
  /// As read, of any rank: where several processes execute the plan, all of them ask, and all are told.
  virtual std::vector<double> fetch(const Plan& plan, TensorId tensor, RankId rank) const {
    return read(plan, tensor, rank);
  }

  /// The timeline of all executions so far; recording starts anew.
  virtual Timeline take() = 0;
  /// Of each execution of the timeline that was taken last: how much longer a fixed work took meanwhile on the cores that
  /// it ran on than it does where nothing else uses them, 0.3 for 30 %; on average over its ranks. Empty where nobody
  /// watches them.
  virtual std::vector<double> disturbed() const { return {}; }
  /// The same while a span of that timeline lasted, on the core of its rank; 0 where nobody watches it.
  virtual double disturbed(const Span&) const { return 0; }
};

/// What copies from one tier to another take on the machine that this computer stands for: latency + bytes / bandwidth,
/// more while others use the same links. A copy takes bytes / capacity of each link that it crosses.
struct PacedCopy {
  enum class Link : std::uint8_t { ToDevice, ToHost, Disk };
  struct Crossing {
    Link link = Link::ToDevice;
    BytesPerSecond capacity;
  };
  Tier from = Tier::Device, to = Tier::Device;
  Seconds latency;
  BytesPerSecond bandwidth;
  std::vector<Crossing> crossings;
};
/// How long an op is held at least, counted from its start: numbers are computed, time is a model's.
using Pace = std::function<Seconds(const Plan& plan, OpId op, const Bindings& bindings, RankId rank)>;

struct HostOptions {
  std::int64_t arena_bytes = 0;                         // capacity per rank of each tier; 0: what the machine has
  std::array<std::int64_t, kNumTiers> tier_bytes = {};  // the same of one tier; 0: arena_bytes
  std::vector<PacedCopy> paced = {};                    // other copies go as fast as they can
  std::int64_t ranks_per_switch = 1;                    // that share the links between their devices and the host
  bool record_spans = true;
  bool record_memory = true;
  CollectiveChoice collectives = {};  // left out or auto: direct, and trees for broadcast and reduce
  std::int64_t ranks_per_node = 1;    // of hierarchical collectives
  AllocatorOptions allocator = {};    // of the device tier
  Pace pace = {};                     // left out: ops take the time that they take
  bool watch_cores = false;           // for Executor::disturbed; costs 14 µs every 4 ms
};

/// CPU threads. Plans in f32 or f64; one thread per rank and stream in use. Throws MissingError on a computer whose
/// processor lacks instructions of the one that the program was built on.
std::unique_ptr<Executor> make_host_executor(const HostOptions& options = {});
/// Follows the order of the plan, takes and gives back memory, computes nothing.
std::unique_ptr<Executor> make_null_executor(const HostOptions& options = {});

/// Scratch that the host kernels need.
const WorkspaceModel& host_workspaces();

}  // namespace orrery
