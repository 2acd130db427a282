// SPDX-License-Identifier: Apache-2.0
#include "hw_models/cluster_cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "hw_models/gpu_model.hpp"
#include "hw_models/node_model.hpp"

namespace orrery {
namespace {

// Relative, of a copy that is held back: the thread wakes late. Over 200 kinds of copies of 20 us to 10 ms on a virtual
// machine half were off by more than 1.4 % (1.8 in another run), a tenth by more than 4 to 15 %, nearly all late.
constexpr float kLateness = 0.03f;

bool touches_disk(const Copy& c) { return c.from == Tier::Disk || c.to == Tier::Disk; }
/// Optimizers, and copies in host memory, take all cores of a rank.
NodeGroup all_cores(NodeGroup node) {
  if (node.host.threads == 1) node.host.threads = 0;
  return node;
}
bool is_peer(const Copy& c) { return c.from == Tier::Peer || c.to == Tier::Peer; }
bool is_inside(const Copy& c) {
  return (c.from == Tier::Device) == (c.to == Tier::Device) && !touches_disk(c) && !is_peer(c);
}

}  // namespace

namespace {

std::vector<std::unique_ptr<DeviceModel>> one(std::unique_ptr<DeviceModel> device) {
  std::vector<std::unique_ptr<DeviceModel>> devices;
  devices.push_back(std::move(device));
  return devices;
}

}  // namespace

ClusterCostModel::ClusterCostModel(const Cluster& cluster, std::unique_ptr<DeviceModel> device)
    : ClusterCostModel{cluster, one(std::move(device))} {}

ClusterCostModel::ClusterCostModel(const Cluster& cluster, std::vector<std::unique_ptr<DeviceModel>> devices)
    : cluster_{cluster}, devices_{std::move(devices)} {
  if (devices_.size() != cluster_.num_groups()) bug("a cluster without a device model for each kind of node");
  for (std::size_t g = 0; g < devices_.size(); ++g) {
    check_links(g);
    const NodeGroup& nodes = cluster_.group(g);
    const auto fabric_of = [](const auto& link) -> std::optional<FabricModel> {
      if (!link || link->fabric.empty()) return {};
      return FabricModel{find_fabric(link->fabric, {fabrics_folder()})};
    };
    fabrics_.push_back({fabric_of(nodes.device_link), fabric_of(nodes.nic)});
  }
  find_ways();
}

/// Where a switch joins all devices, and cards reach each other at their full rate, a way is as fast as its ends.
void ClusterCostModel::find_ways() {
  const Cluster cluster = reached();
  const bool narrow = is_narrow(cluster);
  if (narrow || cluster.network.shape != NetworkShape::Full) topology_.emplace(cluster);
  slowdowns_ = narrow ? std::make_unique<Slowdowns>() : nullptr;
}

void ClusterCostModel::check_links(std::size_t group) const {
  if (!devices_[group]) bug("a cluster without a device model");
  if (!devices_[group]->memory().has_value()) return;  // devices share the memory of their node
  const NodeGroup& nodes = cluster_.group(group);
  if (nodes.devices_per_node > 1 && !nodes.device_link)
    throw UserError{
        fmt::format("{} has no link between the {} devices of a node", told(cluster_), nodes.devices_per_node),
        "add `device_link: {bandwidth: 450 GB/s, latency: 2 us}`"};
  if (!nodes.host_link)
    throw UserError{fmt::format("{} has no link between a device and the memory of its node", told(cluster_)),
                    "add `host_link: {bandwidth: 63 GB/s, latency: 2 us}`"};
}

ClusterCostModel::Groups ClusterCostModel::groups_of(std::span<const RankId> ranks) const {
  if (!cluster_.is_heterogeneous()) return {0};
  std::set<std::size_t> groups;
  for (const RankId rank : ranks) groups.insert(cluster_.group_index(rank));
  return {groups.begin(), groups.end()};
}

/// Those of the slowest kind, in each respect.
CommunicationParameters ClusterCostModel::communication(const Groups& groups) const {
  CommunicationParameters slowest = devices_[groups.front()]->communication();
  for (const std::size_t g : groups) {
    const CommunicationParameters& p = devices_[g]->communication();
    slowest = {std::min(slowest.efficiency, p.efficiency), std::max(slowest.overhead, p.overhead),
               std::max(slowest.sm_share, p.sm_share),     std::max(slowest.memory_share, p.memory_share),
               std::max(slowest.deviation, p.deviation),   std::max(slowest.bias, p.bias)};
  }
  return slowest;
}

/// What messages reach of a link: as measured, else what the device's parameters say.
double ClusterCostModel::efficiency(std::size_t group, const std::optional<FabricModel>& fabric) const {
  return fabric ? fabric->parameters().bus / fabric->parameters().link : devices_[group]->communication().efficiency;
}

/// Between devices of a node. A host without a link of its own asks its device model before it comes here.
Hop ClusterCostModel::hop_inside(const Groups& groups) const {
  Hop hop{Seconds{0}, BytesPerSecond{1e300}};
  for (const std::size_t g : groups) {
    const std::optional<Link>& link = cluster_.group(g).device_link;
    if (!link) continue;
    hop.latency = std::max(hop.latency, link->latency * scales_[Knob::LinkLatency]);
    hop.bandwidth =
        std::min(hop.bandwidth, link->bandwidth * efficiency(g, fabrics_[g].inside) * scales_[Knob::LinkBandwidth]);
  }
  return hop;
}

/// A device's path out of its node: a card of its own, or its share of the node's card.
Hop ClusterCostModel::hop_between(const Groups& groups, std::int64_t ranks_of_node) const {
  Hop hop{Seconds{0}, BytesPerSecond{1e300}};
  for (const std::size_t g : groups) {
    const Nic& nic = *cluster_.group(g).nic;
    const double sharers = nic.per == NicPlacement::PerNode ? double(ranks_of_node) : 1.0;
    hop.latency = std::max(hop.latency, nic.latency * scales_[Knob::NicLatency]);
    hop.bandwidth = std::min(
        hop.bandwidth, nic.bandwidth / sharers * efficiency(g, fabrics_[g].between) * scales_[Knob::NicBandwidth]);
  }
  return hop;
}

/// What one of `per_node` ranks takes of the card that it uses. Of its own card what links behind it, which make it so
/// many times slower, let through; one that ranks share is theirs in turn, whoever holds them up.
double ClusterCostModel::nic_share(const Groups& groups, std::int64_t per_node, double slower) const {
  const auto is_shared = [&](std::size_t g) { return cluster_.group(g).nic->per == NicPlacement::PerNode; };
  return std::all_of(groups.begin(), groups.end(), is_shared) ? 1.0 / double(per_node) : 1.0 / slower;
}

/// A duration with the uncertainty of communication.
OpCost ClusterCostModel::uncertain(Seconds duration, const Groups& groups) const {
  const CommunicationParameters p = communication(groups);
  OpCost c;
  c.duration = duration;
  c.deviation = static_cast<float>(p.deviation);
  c.bias = static_cast<float>(p.bias);
  for (const std::size_t g : groups)
    c.calibrated = c.calibrated && devices_[g]->provenance().status == FitStatus::Fitted;
  return c;
}

/// Time of a copy between tiers: by the slowest of what it goes through (node_model.hpp).
OpCost ClusterCostModel::copy(const Copy& work, const Bindings& bindings, RankId rank) const {
  const Bytes bytes = work.moved(bindings);
  const std::size_t group = cluster_.group_index(rank);
  const DeviceModel& device = *devices_[group];
  const NodeGroup& node = cluster_.group(group);
  const bool on_host = !device.memory().has_value();
  const bool crosses = (work.from == Tier::Device || work.to == Tier::Device) && (!on_host || node.host_link);
  if (is_inside(work) && work.from != Tier::Device && !on_host)  // by the cores of the node
    return threads_of_host(HostWork{.bytes = 2 * bytes, .waits = false},
                           device.cost(Work{HostWork{.bytes = 2 * bytes, .waits = false}}, bindings, scales_),
                           all_cores(node));
  if (is_inside(work) || (on_host && !crosses && !touches_disk(work))) return device.cost(work, bindings, scales_);
  if (is_peer(work)) {
    const Hop peer = hop_inside({group});
    OpCost c = uncertain(peer.latency + bytes / peer.bandwidth, {group});
    c.demand(Resource::Link, 1);
    return c;
  }
  if (touches_disk(work) && !node.disk)
    throw UserError{fmt::format("{} has no disk to copy to or from", told(cluster_)),
                    "add `disk: {size: 4 TB, bandwidth: 7 GB/s}`"};
  const CopyPath path = *copy_path(work.from, work.to, rank);
  OpCost c = uncertain(path.latency + bytes / path.bandwidth, {group});
  for (const Demand& d : path.demands())
    if (!on_host || d.resource != Resource::CpuCores) c.demand(d.resource, d.share);
  if (!on_host) return c;
  // Links that stand for others: a thread of this computer copies, and sleeps for the rest of the time.
  const OpCost copying = device.cost(work, bindings, scales_);
  c.duration = std::max(c.duration, copying.duration);
  const double busy = copying.duration / c.duration;
  c.deviation = std::hypot(kLateness, static_cast<float>(busy) * copying.deviation);
  c.bias = static_cast<float>(busy) * copying.bias;
  c.demand(Resource::CpuCores, busy);
  return c;
}

std::optional<CopyPath> ClusterCostModel::copy_path(Tier from, Tier to, RankId rank) const {
  const NodeGroup& node = cluster_.group_of(rank);
  const auto on_disk = [](Tier t) { return t == Tier::Disk; };
  const auto on_device = [](Tier t) { return t == Tier::Device; };
  std::optional<CopyPath> path;
  if (on_device(from) != on_device(to) && from != Tier::Peer && to != Tier::Peer && node.host_link)
    path = host_copy(*node.host_link, on_disk(from) ? Tier::Pinned : from, on_disk(to) ? Tier::Pinned : to,
                     scales_[Knob::HostLinkBandwidth]);
  if ((on_disk(from) || on_disk(to)) && node.disk) {
    if (!path) path.emplace();
    path->through(disk_path(*node.disk, from, scales_[Knob::DiskBandwidth]));
  }
  return path;
}

OpCost ClusterCostModel::cost(const Work& work, const Bindings& bindings, RankId rank) const {
  if (const auto* c = std::get_if<Copy>(&work)) return copy(*c, bindings, rank);
  if (const auto* h = std::get_if<HostWork>(&work);
      h && cluster_.group_of(rank).host.threads != 1 && device(rank).memory())
    return threads_of_host(*h, device(rank).cost(work, bindings, scales_), cluster_.group_of(rank));
  if (runs_on_host(work) && !std::holds_alternative<HostWork>(work) && device(rank).memory()) {
    const Amount a = amount(work, bindings);
    const HostWork done{.flops = a.flops, .bytes = a.read + a.written, .waits = false};
    if (const auto measured = device(rank).on_host(work, bindings, scales_))
      return with_host_demands(*measured, done.bytes, all_cores(cluster_.group_of(rank)));
    return threads_of_host(done, device(rank).cost(Work{done}, bindings, scales_), all_cores(cluster_.group_of(rank)));
  }
  return device(rank).cost(work, bindings, scales_);
}

/// Inside of a node over the links of both devices, between nodes over the cards of both.
Way ClusterCostModel::way(RankId from, RankId to) const {
  const std::array<RankId, 2> ends{from, to};
  const bool inside = cluster_.same_node(from, to);
  if (inside && !cluster_.group_of(from).device_link) return CostModel::way(from, to);
  Hop hop = inside ? hop_inside(groups_of(ends)) : hop_between(groups_of(ends), 1);
  if (topology_)
    for (const std::uint32_t link : topology_->route(from, to))
      hop.bandwidth = std::min(hop.bandwidth, topology_->links()[link].bandwidth);
  return {hop.latency, hop.bandwidth, inside ? Resource::Link : Resource::Nic,
          inside ? Resource::LinkIn : Resource::NicIn};
}

/// Time of a message: start + latency + bytes / bandwidth of the path, which the ranks beside the two use, too.
/// Parameters: the cluster's links and cards.
OpCost ClusterCostModel::transfer(Bytes bytes, RankId from, RankId to) const {
  const bool inside = cluster_.same_node(from, to);
  if (inside && !cluster_.group_of(from).device_link)
    if (auto c = device(from).transfer(bytes, scales_)) return *c;
  const std::array<RankId, 2> ends{from, to};
  const Groups groups = groups_of(ends);
  Hop path = inside ? hop_inside(groups) : hop_between(groups, 1);
  const Seconds start = communication(groups).overhead * scales_[Knob::LaunchOverhead] + path.latency;
  if (bytes <= Bytes{0}) return uncertain(start, groups);
  const Slowdown links = slowdown_of(Collective{.kind = CollectiveKind::Broadcast}, ends, Sharing::Together);
  const double slower = inside ? links.inside : links.between;
  if (topology_) path.bandwidth = std::min(way(from, to).bandwidth, path.bandwidth / slower);
  OpCost c = uncertain(start + bytes / path.bandwidth, groups);
  if (inside)
    c.demand(Resource::Link, 1 / slower);
  else
    c.demand(Resource::Nic, nic_share(groups, 1, slower));
  return c;
}

LaunchCost ClusterCostModel::launch(const Work& work, RankId rank) const {
  if (runs_on_host(work)) return device(rank).launch(Work{HostWork{}}, scales_);
  return device(rank).launch(work, scales_);
}

bool ClusterCostModel::sees_reuse() const {
  return std::any_of(devices_.begin(), devices_.end(), [](const auto& d) { return d->sees_reuse(); });
}

std::string ClusterCostModel::extrapolation(const Work& work, const Bindings& bindings, RankId rank) const {
  if (runs_on_host(work) && device(rank).memory() && !device(rank).on_host(work, bindings, scales_))
    return device(rank).extrapolation(Work{HostWork{}}, bindings, scales_);
  const auto one = product_of_one(work, scales_.kernels());
  return device(rank).extrapolation(one ? *one : work, bindings, scales_);
}

/// Of a link: the device's efficiency, and what scaling makes of it.
Cluster ClusterCostModel::reached() const {
  Cluster c = cluster_;
  for (std::size_t g = 0; g < c.num_groups(); ++g) {
    NodeGroup& node = g == 0 ? c : c.more_nodes[g - 1];
    if (node.device_link) node.device_link->bandwidth = hop_inside({g}).bandwidth;
    if (node.nic) node.nic->bandwidth = hop_between({g}, 1).bandwidth;
    if (node.host_link)
      node.host_link->bandwidth =
          node.host_link->bandwidth * devices_[g]->communication().efficiency * scales_[Knob::HostLinkBandwidth];
  }
  if (const double faster = scales_[Knob::NetworkBandwidth]; c.nic && (c.network.bandwidth || faster != 1))
    c.network.bandwidth =
        c.network.bandwidth.value_or(cluster_.nic->bandwidth) * (c.nic->bandwidth / cluster_.nic->bandwidth) * faster;
  return c;
}

std::string ClusterCostModel::machine() const {
  std::string text = cluster_.name;
  for (std::size_t g = 0; g < devices_.size(); ++g) {
    const bool fitted = devices_[g]->provenance().status == FitStatus::Fitted;
    text += fmt::format(", {} ({})", devices_[g]->name(), fitted ? devices_[g]->provenance().machine : "unfitted");
  }
  return text;
}

std::optional<Bytes> ClusterCostModel::own_memory(RankId rank) const {
  const NodeGroup& node = cluster_.group_of(rank);
  return node.device_memory ? node.device_memory : device(rank).memory();
}

Bytes ClusterCostModel::capacity(Tier tier, RankId rank) const {
  const NodeGroup& node = cluster_.group_of(rank);
  const std::optional<Bytes> own = own_memory(rank);
  const double sharers = double(node.devices_per_node);
  const Bytes host = node.host.memory.value_or(Bytes{0});
  switch (tier) {
    case Tier::Device:
    case Tier::Peer:
      return own.value_or(host);
    case Tier::Pinned:
    case Tier::Host:
      return device(rank).memory() ? host / sharers : host;
    case Tier::Disk:
      return node.disk ? node.disk->size / sharers : Bytes{0};
  }
  return {};
}

}  // namespace orrery
