// SPDX-License-Identifier: Apache-2.0
#include "sim/app/wiring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "calibrate/this_machine.hpp"
#include "hw_models/graph_launch.hpp"
#include "hw_models/host_model.hpp"
#include "hw_models/parameters.hpp"
#include "hw_models/software_profile.hpp"
#include "runtime/cuda/gpu_executor.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/machine/resources.hpp"
#include "sim/search/checkmate.hpp"

namespace orrery {
namespace {

std::string parameter_file(std::string_view device, const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::string path = fmt::format("{}/{}.yaml", folder, device);
    if (std::filesystem::exists(path)) return path;
  }
  return {};
}

}  // namespace

DeviceKind device_kind(std::string_view name) {
  if (name == "host") return DeviceKind::Host;
  if (name == "null") return DeviceKind::Null;
  if (name == "paced") return DeviceKind::Paced;
  if (name == "cuda") return DeviceKind::Cuda;
  throw unknown_name("device", name, {"host", "null", "paced", "cuda"});
}

DeviceKind device_kind(const Cluster& cluster) {
  return cluster.device == kThisComputer ? DeviceKind::Host : DeviceKind::Cuda;
}

Wiring::Wiring(const Environment& environment, Warn warn) : Wiring{environment, open_gpu_driver, std::move(warn)} {}

bool Wiring::is_calibrated() const { return !parameter_file(kThisComputer, locations_.parameter_folders()).empty(); }

namespace {

/// A device that is this computer has the cores that were calibrated, and where this process may use fewer of the same
/// computer's, only these; other devices are as they were. Leaves out that two computers of a kind may have more and
/// fewer cores.
std::unique_ptr<DeviceModel> with_usable_cores(std::unique_ptr<DeviceModel> device) {
  const auto* host = dynamic_cast<const HostModel*>(device.get());
  if (!host || host->provenance().machine != detected_processor() || host->parameters().cores <= detected_cores())
    return device;
  HostParameters fewer = host->parameters();
  fewer.cores = detected_cores();
  return std::make_unique<HostModel>(std::string{host->name()}, std::move(fewer));
}

/// The cluster with cores where its file leaves them to the device.
Cluster with_cores(Cluster cluster, const std::vector<std::unique_ptr<DeviceModel>>& devices) {
  for (std::size_t g = 0; g < cluster.num_groups(); ++g) {
    NodeGroup& nodes = g == 0 ? cluster : cluster.more_nodes[g - 1];
    const auto* host = dynamic_cast<const HostModel*>(devices[g].get());
    if (host && !nodes.host.cores) nodes.host.cores = host->parameters().cores;
  }
  return cluster;
}

/// Why parameters of a computer may be wrong on this one; empty where nothing says so.
std::string doubt_of(const HostModel& host) {
  const std::string& processor = host.provenance().machine;
  if (processor != detected_processor())
    return fmt::format(
        "the parameters of this computer were measured on another processor ({}): run `orrery calibrate`", processor);
  if (host.parameters().cores < detected_cores())
    return fmt::format("the parameters of this computer were measured on {} of its {} cores: run `orrery calibrate`",
                       host.parameters().cores, detected_cores());
  return {};
}

}  // namespace

HostParameters Wiring::host_parameters() const {
  const auto folders = locations_.parameter_folders();
  if (!is_calibrated()) return {};
  const auto device = find_device(kThisComputer, folders);
  const auto* host = dynamic_cast<const HostModel*>(device.get());
  return host != nullptr ? host->parameters() : HostParameters{};
}

Machine Wiring::machine(const Cluster& as_read, std::string_view profile) const {
  std::vector<std::string> names;
  for (std::size_t g = 0; g < as_read.num_groups(); ++g) names.push_back(as_read.group(g).device);
  if (std::find(names.begin(), names.end(), kThisComputer) != names.end() && !is_calibrated())
    throw UserError{"this computer is not calibrated: there are no parameters to predict it with",
                    "run `orrery calibrate` (about a minute), or `orrery validate`, which does it first"};
  for (const std::string& key : unused_keys(as_read.network))
    if (warn_)
      warn_(fmt::format("`network.{}` does nothing where the network is {}: set its `shape`", key,
                        enum_name(as_read.network.shape)));
  const std::vector<std::string> folders = locations_.parameter_folders();
  Machine m;
  m.parameters = parameter_file(as_read.device, folders);
  std::vector<std::unique_ptr<DeviceModel>> devices;
  for (const std::string& name : names) devices.push_back(with_usable_cores(find_device(name, folders)));
  const Cluster cluster = with_cores(as_read, devices);
  m.cost = std::make_unique<ClusterCostModel>(cluster, std::move(devices));
  m.resources = std::make_unique<ClusterResources>(cluster);
  if (const auto* host = dynamic_cast<const HostModel*>(&m.cost->device())) {
    m.workspaces = &workspaces();
    m.drift = host->parameters().drift;
    m.sharing = host->parameters().sharing;
    m.doubt = doubt_of(*host);
  }
  const SoftwareProfile software = profile.empty() ? SoftwareProfile{} : find_profile(profile);
  if (!profile.empty()) software.apply(*m.cost);
  if (m.workspaces == nullptr || !profile.empty()) {
    m.software = software.deviation_of({.device = cluster.device});
    m.experts = software.deviation_of({.device = cluster.device, .experts = true});
  }
  return m;
}

Machine Wiring::machine(const ScenarioOptions& options, const Cluster& cluster) const {
  Machine m = machine(cluster, options.profile);
  if (options.launch == LaunchRegime::Graph) launch_by_graph(*m.cost);
  return m;
}

std::unique_ptr<Strategy> Wiring::strategy(std::string_view name, const Node& options) const {
  return find_strategy(name).make(options);
}

std::unique_ptr<Engine> Wiring::engine(const Machine& machine, const Fidelity& fidelity, const AllocatorOptions& memory,
                                       Logged logged) const {
  EngineOptions options{.expansion = fidelity.ranks, .collectives = fidelity.collectives};
  if (logged == Logged::Memory) options.record = Record::SpansAndMemory;
  options.allocator = memory;
  options.log_allocations = logged == Logged::Allocations;
  options.device_capacity = [cost = machine.cost.get()](RankId r) {
    const double bytes = cost->capacity(Tier::Device, r).base();
    return bytes > 0 && bytes < 9e18 ? static_cast<std::int64_t>(bytes) : INT64_MAX;
  };
  if (fidelity.network == NetworkKind::Flow) {
    options.expansion = Expansion::Expanded;
    options.collectives = Collectives::Detailed;
    options.network = make_flow_network(Topology{machine.cost->reached()});
  }
  return std::make_unique<Engine>(*machine.cost, *machine.resources, options);
}

namespace {

/// The links of a cluster that stands for another one.
std::vector<PacedCopy> paced_copies(const ClusterCostModel& cost) {
  std::vector<PacedCopy> out;
  for (int from = 0; from < kNumTiers; ++from)
    for (int to = 0; to < kNumTiers; ++to) {
      const auto path = cost.copy_path(static_cast<Tier>(from), static_cast<Tier>(to));
      if (!path || path->bandwidth.base() <= 0) continue;
      PacedCopy p{static_cast<Tier>(from), static_cast<Tier>(to), path->latency, path->bandwidth, {}};
      for (const CopyPath::Use& use : path->uses) {
        if (use.resource == Resource::PcieIn) p.crossings.push_back({PacedCopy::Link::ToDevice, use.capacity});
        if (use.resource == Resource::PcieOut) p.crossings.push_back({PacedCopy::Link::ToHost, use.capacity});
        if (use.resource == Resource::Disk) p.crossings.push_back({PacedCopy::Link::Disk, use.capacity});
      }
      out.push_back(std::move(p));
    }
  return out;
}

}  // namespace

std::unique_ptr<Executor> Wiring::executor(DeviceKind kind, const Cluster& cluster, const CollectiveChoice& collectives,
                                           const AllocatorOptions& memory, const DeviceUse& use) const {
  HostOptions options{.collectives = collectives, .allocator = memory, .watch_cores = use.watch_cores};
  if (cluster.device == kThisComputer) {
    if (cluster.host_link || cluster.disk) options.paced = paced_copies(*machine(cluster).cost);
    if (cluster.host_link) options.ranks_per_switch = cluster.host_link->devices_per_switch;
    const auto tier = [&](Tier t) -> std::int64_t& { return options.tier_bytes[static_cast<std::size_t>(t)]; };
    if (cluster.device_memory) tier(Tier::Device) = static_cast<std::int64_t>(cluster.device_memory->base());
    if (cluster.host.memory && *cluster.host.memory < detected_memory())
      tier(Tier::Pinned) = tier(Tier::Host) = static_cast<std::int64_t>(cluster.host.memory->base());
    if (cluster.disk) tier(Tier::Disk) = static_cast<std::int64_t>(cluster.disk->size.base());
  }
  if (kind == DeviceKind::Cuda) {
    std::shared_ptr<GpuDriver> driver = gpus();
    GpuOptions used{.fast_f32 = use.tf32,
                    .plain = use.plain,
                    .graphs = use.graphs,
                    .account = use.account,
                    .peers = use.peers,
                    .warn = warn_};
    if (use.activities) used.activities = driver->activities();
    return make_gpu_executor(std::move(driver), options, used);
  }
  return kind == DeviceKind::Host ? make_host_executor(options) : make_null_executor(options);
}

std::unique_ptr<Executor> Wiring::paced(const Machine& machine, double factor) const {
  const ClusterCostModel& cost = *machine.cost;
  HostOptions options;
  options.pace = [&cost, factor](const Plan& plan, OpId op, const Bindings& bindings, RankId rank) {
    const Work& work = plan.work(op);
    if (const auto* c = std::get_if<Collective>(&work))
      return factor * cost.collective(*c, members(plan.mesh, plan.groups[c->group.index()], rank)).duration;
    if (const auto* s = std::get_if<Send>(&work))
      return factor * cost.transfer(s->bytes, rank, peer_of(plan.mesh, rank, s->peer)).duration;
    if (const auto* r = std::get_if<Recv>(&work))
      return factor * cost.transfer(r->bytes, peer_of(plan.mesh, rank, r->peer), rank).duration;
    return factor * cost.cost(work, bindings, rank).duration;
  };
  return make_host_executor(options);
}

std::unique_ptr<OutcomeSource> Wiring::outcomes(std::uint64_t seed) const { return seeded_outcomes(seed); }

std::unique_ptr<RematSolver> Wiring::remat() const { return std::make_unique<CheckmateSolver>(Seconds{60.0}); }

const WorkspaceModel& Wiring::workspaces(DeviceKind kind) const {
  return kind == DeviceKind::Cuda ? gpu_workspaces() : host_workspaces();
}

}  // namespace orrery
