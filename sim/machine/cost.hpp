// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/plan/collective_steps.hpp"
#include "sim/plan/plan.hpp"
#include "sim/plan/reuse.hpp"

namespace orrery {

/// Something of a machine that ops share. Units of capacity are shares: 1 is all of it. Links and cards carry as much
/// in as out; what is said of both directions together is said of `Link` and `Nic`.
enum class Resource : std::uint8_t {
  Sm,
  Hbm,
  CopyEngineIn,
  CopyEngineOut,
  PcieIn,
  PcieOut,
  Link,
  Nic,
  Disk,
  CpuCores,
  DramBandwidth,
  LinkIn,
  NicIn
};
constexpr int kNumResources = 13;
std::string_view name_of(Resource r);

/// The share of a resource that an op uses while nothing disturbs it.
struct Demand {
  Resource resource = Resource::Sm;
  float share = 0;
};
constexpr std::size_t kMaxDemands = 4;

/// One op on hardware that runs nothing else.
struct OpCost {
  Seconds duration;
  float deviation = 0;     // one standard deviation of ln(measured/predicted) for one op, independent of other ops
  float bias = 0;          // the same for what all ops of this kind share (the fit's own uncertainty)
  float memory = 0;        // the same for what all ops share: how long that takes which has left a cache
  float sensitivity = 0;   // the duration goes with this power of how much longer a fixed work takes on the core
  bool calibrated = true;  // inside the range that the parameters were fitted on
  std::uint8_t num_demands = 0;
  std::array<Demand, kMaxDemands> demands{};

  /// One standard deviation of all of it.
  double error() const { return std::hypot(double(deviation), double(bias), double(memory)); }
  void demand(Resource r, double share) { demands[num_demands++] = {r, static_cast<float>(share)}; }
  std::span<const Demand> used() const& { return {demands.data(), num_demands}; }
  std::span<const Demand> used() const&& = delete;  // would outlive what it views
};

/// What the host thread of a rank spends to start one op, and whether it runs ahead of the device (GPU) or does the
/// work itself.
struct LaunchCost {
  Seconds enqueue;        // host time per op
  Seconds start_latency;  // from the end of the enqueue to the earliest start on an idle stream
  bool runs_ahead = true;
  std::optional<Seconds> joined = {};  // host time of an op that joins the call of another; none: `enqueue`
  Seconds behind = {};                 // for which its stream stands still behind it: a part of the op's duration
};

/// How a collective runs that is taken step by step, or as flows where `flowing` is known.
struct CollectiveSetup {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::Ring;
  std::int64_t per_node = 1;              // of its members, one node after another; 1 where they lie otherwise
  Seconds start;                          // before the first step
  double sm_share = 0, memory_share = 0;  // that each rank's device is without meanwhile
  std::optional<Seconds> flowing;         // after `start`, while nothing disturbs its messages
};

/// The way of a message from rank to rank: latency + bytes / bandwidth, all of `out` at the sender and of `in` at the
/// receiver.
struct Way {
  Seconds latency;
  BytesPerSecond bandwidth;
  Resource out = Resource::Link, in = Resource::LinkIn;
};

/// Turns work into time. Implemented by hw_models; pure: equal arguments give equal results.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// An op of one rank; collectives and send/receive excepted.
  virtual OpCost cost(const Work& work, const Bindings& bindings, RankId rank) const = 0;
  /// A collective over these ranks, from when the last of them has arrived; `bytes` as in Collective.
  virtual OpCost collective(const Collective& work, std::span<const RankId> ranks) const = 0;
  /// A message between two ranks, from when both are ready.
  virtual OpCost transfer(Bytes bytes, RankId from, RankId to) const = 0;
  virtual LaunchCost launch(const Work& work, RankId rank) const = 0;
  /// For collectives that run step by step: how, and over what ways, which are equal to and from all ranks of a node.
  virtual CollectiveSetup setup(const Collective& work, std::span<const RankId> ranks) const;
  virtual Way way(RankId from, RankId to) const;
  virtual std::int64_t node_of(RankId) const { return 0; }
  /// Ranks of equal kind have equal `cost` and `launch`: a simulation asks once per kind and work.
  virtual std::uint32_t device_kind(RankId) const { return 0; }
  /// Whether `cost` looks at what caches keep: at Bindings::reuse, and at how large Bindings::working_set is. Others
  /// may ask only whether there is a working set.
  virtual bool sees_reuse() const { return false; }
  /// Names of the parameters that were used outside of their calibrated range since construction are not kept here: the
  /// reason for one op, empty when calibrated.
  virtual std::string extrapolation(const Work& work, const Bindings& bindings, RankId rank) const = 0;
};

/// Finds what plans reuse once for executions that are alike: of the same plan, with bound values that agree in their
/// first four binary digits, rounded. Keeps the last few.
class KnownReuse {
 public:
  using Works = std::shared_ptr<const std::vector<Reuse>>;
  Works of(const Plan& plan, const Bindings& bindings);

 private:
  struct Entry {
    std::vector<Work> works;
    std::vector<Bytes> scratch;
    std::size_t ops = 0, operands = 0;
    Bindings bindings;  // rounded
    Works reuse;
  };
  std::vector<Entry> entries_;  // the latest last
};

/// What a cost model may know of the rest of a plan that all ranks of its mesh execute. A working set that the bindings
/// know already is not looked for again.
class Surroundings {
 public:
  Surroundings(const Plan& plan, const Bindings& bindings, const CostModel& model, KnownReuse& known);

  /// As any op of the plan sees them.
  const Bindings& bindings() const { return bindings_; }
  /// As ops of one work see them; valid as long as this.
  Bindings of(WorkId work) const {
    Bindings b = bindings_;
    if (reuse_) b.reuse = &(*reuse_)[work.index()];
    return b;
  }

 private:
  Bindings bindings_;
  KnownReuse::Works reuse_;  // null when the model does not look at it
};

/// Which physical thing a rank's share of a resource is: ranks with the same instance number contend. 0 … count − 1 per
/// resource.
class ResourceMap {
 public:
  virtual ~ResourceMap() = default;
  virtual std::uint32_t instance(Resource r, RankId rank) const = 0;
  virtual std::uint32_t count(Resource r) const = 0;
  /// Capacity in shares (CpuCores of a node with 2 cores and demands in cores: 2).
  virtual double capacity(Resource r, std::uint32_t instance) const = 0;
};

}  // namespace orrery
