// SPDX-License-Identifier: Apache-2.0
#include "hw_models/node_model.hpp"

#include <algorithm>

namespace orrery {

void CopyPath::through(const CopyPath& next) {
  latency += next.latency;
  bandwidth = std::min(bandwidth, next.bandwidth);
  uses.insert(uses.end(), next.uses.begin(), next.uses.end());
}

std::vector<Demand> CopyPath::demands() const {
  std::vector<Demand> out;
  for (const Use& u : uses) out.push_back({u.resource, static_cast<float>(std::min(1.0, bandwidth / u.capacity))});
  return out;
}

CopyPath host_copy(const HostLink& link, Tier from, Tier to, double scale) {
  const bool is_out = from == Tier::Device, is_pageable = from == Tier::Host || to == Tier::Host;
  const BytesPerSecond rate = link.bandwidth * scale * (is_out ? link.to_host : link.to_device);
  CopyPath path{link.latency, rate, {}};
  path.uses = {{is_out ? Resource::PcieOut : Resource::PcieIn, rate},
               {is_out ? Resource::CopyEngineOut : Resource::CopyEngineIn, rate}};
  if (is_pageable) {
    path.bandwidth = std::min(rate, link.staging);
    path.uses.push_back({Resource::CpuCores, link.staging});
  }
  return path;
}

CopyPath disk_path(const DiskSpec& disk, Tier from, double scale) {
  const BytesPerSecond most =
      (from == Tier::Disk ? disk.bandwidth : disk.write_bandwidth.value_or(disk.bandwidth)) * scale;
  const BytesPerSecond queued = double(disk.queue_depth) * disk.block / (disk.latency + disk.block / most);
  return {disk.latency, std::min(most, queued), {{Resource::Disk, most}}};
}

namespace {

/// That share the work of one rank.
double threads_of(const NodeGroup& node) {
  const double cores = std::max(1.0, double(node.host.cores.value_or(1)) / double(node.devices_per_node));
  return node.host.threads == 0 ? cores : std::min(double(node.host.threads), double(node.host.cores.value_or(1)));
}

/// Of a node's memory, as optimizers reach it.
std::optional<BytesPerSecond> memory_rate(const NodeGroup& node) {
  if (!node.host.memory_bandwidth) return {};
  return *node.host.memory_bandwidth * node.host.reached;
}

}  // namespace

OpCost with_host_demands(OpCost cost, Bytes bytes, const NodeGroup& node) {
  cost.num_demands = 0;
  if (const auto most = memory_rate(node); most && cost.duration > Seconds{0})
    cost.demand(Resource::DramBandwidth, std::min(1.0, bytes / *most / cost.duration));
  cost.demand(Resource::CpuCores, threads_of(node));
  return cost;
}

OpCost threads_of_host(const HostWork& work, OpCost cost, const NodeGroup& node) {
  cost.duration = (cost.duration - work.pause) / threads_of(node);
  if (const auto most = memory_rate(node)) cost.duration = std::max(cost.duration, work.bytes / *most);
  cost = with_host_demands(cost, work.bytes, node);
  cost.duration += work.pause;
  return cost;
}

}  // namespace orrery
