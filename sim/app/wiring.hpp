// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/host_parameters.hpp"
#include "runtime/executor.hpp"
#include "sim/app/locations.hpp"
#include "sim/app/scenario.hpp"
#include "sim/engine/engine.hpp"
#include "sim/program/program.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {

struct ActivityAccount;
class GpuDriver;
class Peers;
/// Opens the GPUs of a computer. Throws MissingError when there are none.
using GpuSource = std::function<std::shared_ptr<GpuDriver>()>;
using Warn = std::function<void(std::string_view)>;

/// A cluster with the parameters of its devices.
struct Machine {
  std::unique_ptr<ClusterCostModel> cost;
  std::unique_ptr<ResourceMap> resources;
  const WorkspaceModel* workspaces = nullptr;  // scratch of the kernels that run there; null: they are not ours
  double drift = 0;        // relative σ that all ops of a run share: how much the speed varied when it was calibrated
  double sharing = 0;      // the same of what ranks of this computer do at once, on top
  double software = 0;     // the same of what drives the devices, where it is not our own runtime
  double experts = 0;      // in its place where a network has layers of experts
  std::string parameters;  // the file; empty when unknown
  std::string doubt;       // why the parameters may be wrong here: measured on other cores, or fewer; else empty

  const Cluster& cluster() const { return cost->cluster(); }
};

/// Where plans can be executed.
enum class DeviceKind { Host, Null, Paced, Cuda };
/// Throws UserError for unknown names, MissingError for devices that are not in this build.
DeviceKind device_kind(std::string_view name);
/// Where plans of a cluster are executed when nobody says where: its devices are this computer's processor, or GPUs.
DeviceKind device_kind(const Cluster& cluster);

/// How a device is used: all but the last are for the device cuda, that one for the processor.
struct DeviceUse {
  bool tf32 = false;        // products of f32 may round their operands to it
  bool activities = false;  // times from CUPTI's records of kernels and copies, in place of events around each op
  bool graphs = false;      // plans that come again are replayed by CUDA graphs
  bool plain = false;       // ask the device for each tensor, instead of one arena
  std::shared_ptr<ActivityAccount> account = nullptr;  // what the activities come to; null: nobody asks
  std::shared_ptr<Peers> peers = nullptr;  // processes that have a share of the ranks; null: none but this one
  bool watch_cores = false;                // tell when something else uses them
};

/// What a simulation keeps beside spans and peaks: nothing; how much memory is in use when, which a written timeline
/// shows; or what ranks ask of the memory of their devices.
enum class Logged : std::uint8_t { Nothing, Memory, Allocations };

/// Makes the objects of other folders: the only place that names concrete classes.
class Wiring {
 public:
  explicit Wiring(const Environment& environment, Warn warn = {});
  /// With GPUs that do not come from the driver of this computer, or that are open already. `warn` is told what GPUs
  /// are not used for although they should be able to, and keys of clusters that do nothing.
  Wiring(const Environment& environment, GpuSource gpus, Warn warn = {})
      : locations_{environment}, gpus_{std::move(gpus)}, warn_{std::move(warn)} {}

  const Locations& locations() const { return locations_; }
  bool is_calibrated() const;
  /// Of this computer, read from its file; those of none where it is not calibrated.
  HostParameters host_parameters() const;
  /// Throws UserError when this computer is to be predicted and was not calibrated.
  /// `profile`: of the software that runs on it; empty for none. Unknown ones are user errors too.
  Machine machine(const Cluster& cluster, std::string_view profile = {}) const;
  /// That of a scenario: its cluster, its software, and how this starts ops.
  Machine machine(const ScenarioOptions& options, const Cluster& cluster) const;
  std::unique_ptr<Strategy> strategy(std::string_view name, const Node& options) const;
  std::unique_ptr<Engine> engine(const Machine& machine, const Fidelity& fidelity = {},
                                 const AllocatorOptions& memory = {}, Logged logged = Logged::Nothing) const;
  /// Whose tiers are as large, and whose copies between them as fast, as the cluster says.
  std::unique_ptr<Executor> executor(DeviceKind kind, const Cluster& cluster, const CollectiveChoice& collectives = {},
                                     const AllocatorOptions& memory = {}, const DeviceUse& use = {}) const;
  /// This computer, but each op is held for `factor` times what it takes alone on a machine, which has to outlive it:
  /// numbers are computed, times are modelled.
  std::unique_ptr<Executor> paced(const Machine& machine, double factor) const;
  std::unique_ptr<OutcomeSource> outcomes(std::uint64_t seed) const;
  /// Finds the schedules of `recompute: checkmate`.
  std::unique_ptr<RematSolver> remat() const;
  std::shared_ptr<GpuDriver> gpus() const { return gpus_(); }
  /// Scratch that the kernels of a device need.
  const WorkspaceModel& workspaces(DeviceKind kind = DeviceKind::Host) const;

 private:
  Locations locations_;
  GpuSource gpus_;
  Warn warn_;
};

}  // namespace orrery
