// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/cluster.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

namespace orrery {

std::span<const EnumName<NicPlacement>> enum_names(NicPlacement) {
  static constexpr EnumName<NicPlacement> kNames[] = {{NicPlacement::PerDevice, "device"},
                                                      {NicPlacement::PerNode, "node"}};
  return kNames;
}

std::span<const EnumName<NodeLayout>> enum_names(NodeLayout) {
  static constexpr EnumName<NodeLayout> kNames[] = {{NodeLayout::Switch, "switch"},
                                                    {NodeLayout::CubeMesh, "cube_mesh"},
                                                    {NodeLayout::Pairs, "pairs"},
                                                    {NodeLayout::Pcie, "pcie"}};
  return kNames;
}

std::span<const EnumName<NetworkShape>> enum_names(NetworkShape) {
  static constexpr EnumName<NetworkShape> kNames[] = {{NetworkShape::Full, "full"},
                                                      {NetworkShape::FatTree, "fat_tree"},
                                                      {NetworkShape::Dragonfly, "dragonfly"},
                                                      {NetworkShape::Torus, "torus"}};
  return kNames;
}

std::span<const EnumName<Routing>> enum_names(Routing) {
  static constexpr EnumName<Routing> kNames[] = {{Routing::Ecmp, "ecmp"}, {Routing::Adaptive, "adaptive"}};
  return kNames;
}

std::int64_t detected_cores() {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (sched_getaffinity(0, sizeof mine, &mine) == 0) return CPU_COUNT(&mine);
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

Bytes detected_memory() {
  return Bytes{static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE))};
}

std::int64_t Cluster::num_nodes() const {
  std::int64_t n = 0;
  for (std::size_t g = 0; g < num_groups(); ++g) n += group(g).nodes;
  return n;
}

std::int64_t Cluster::num_ranks() const {
  std::int64_t n = 0;
  for (std::size_t g = 0; g < num_groups(); ++g) n += group(g).num_ranks();
  return n;
}

Cluster::Place Cluster::place_of(RankId rank) const {
  auto rest = rank.index() < device_of_rank.size() ? std::int64_t{device_of_rank[rank.index()]}
                                                   : static_cast<std::int64_t>(rank.index());
  Place p;
  for (; p.group < more_nodes.size() && rest >= group(p.group).num_ranks(); ++p.group) {
    rest -= group(p.group).num_ranks();
    p.node += group(p.group).nodes;
  }
  p.node += rest / group(p.group).devices_per_node;
  p.device = rest % group(p.group).devices_per_node;
  return p;
}

namespace {

/// What the shapes of nodes and network ask of the numbers.
void check_shapes(const Node& document, const Cluster& c, std::vector<Diagnostic>& problems) {
  const Node* network = document.find("network");
  const Node& place = network ? *network : document;
  for (std::size_t g = 0; g < c.num_groups(); ++g)
    if (c.group(g).layout == NodeLayout::CubeMesh && c.group(g).devices_per_node != 8)
      problems.push_back(at(document, fmt::format("a cube mesh of {} devices", c.group(g).devices_per_node),
                            "a hybrid cube mesh has 8: set `devices_per_node: 8`, or use `layout: switch`"));
  if (c.network.shape == NetworkShape::Torus) {
    std::int64_t nodes = 1;
    for (const std::int64_t d : c.network.dims) nodes *= std::clamp<std::int64_t>(d, 1, 1 << 20);
    if (nodes != c.num_nodes())
      problems.push_back(at(place, fmt::format("a torus of {} nodes for {}", nodes, c.num_nodes()),
                            "the product of `dims` is the number of nodes, such as `dims: [4, 4]` for 16"));
  }
  for (const BackgroundFlow& f : c.network.background)
    if (std::max(f.from, f.to) >= c.num_ranks() || f.from == f.to)
      problems.push_back(at(place, fmt::format("background traffic from rank {} to rank {}", f.from, f.to),
                            fmt::format("name two of the ranks 0 to {}", c.num_ranks() - 1)));
}

/// What is left out of a host is that of this computer.
void complete(NodeGroup& nodes) {
  if (!nodes.host.cores && nodes.device != kThisComputer) nodes.host.cores = detected_cores();
  if (!nodes.host.memory) nodes.host.memory = detected_memory();
}

double num_devices(const Cluster& c) {
  double devices = 0;
  for (std::size_t g = 0; g < c.num_groups(); ++g)
    devices += double(c.group(g).nodes) * double(c.group(g).devices_per_node);
  return devices;
}

}  // namespace

Cluster read_cluster(const Node& document, std::string_view name) {
  Cluster cluster;
  std::vector<Diagnostic> problems;
  read_options(document, cluster, problems);
  if (const double devices = num_devices(cluster); devices > double(kMaxRanks))
    throw UserError{at(document, fmt::format("a cluster of {:.0f} devices", devices),
                       fmt::format("at most {}, as of a mesh", kMaxRanks))};
  const std::int64_t nodes = cluster.num_nodes();
  for (std::size_t g = 0; g < cluster.num_groups() && nodes > 1; ++g)
    if (!cluster.group(g).nic)
      problems.push_back(at(g == 0 ? document : document.find("more_nodes")->items[g - 1],
                            fmt::format("{} nodes have no network between them", nodes),
                            "add `nic: {bandwidth: 400 Gb/s, latency: 5 us}`, or use 1 node"));
  check_shapes(document, cluster, problems);
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
  cluster.name = name;
  complete(cluster);
  for (NodeGroup& more : cluster.more_nodes) complete(more);
  return cluster;
}

std::vector<std::string> unused_keys(const NetworkSpec& net) {
  const NetworkSpec usual;
  std::vector<std::string> keys;
  const auto note = [&](bool is_used, const char* key, bool is_said) {
    if (is_said && !is_used) keys.emplace_back(key);
  };
  const bool is_tree = net.shape == NetworkShape::FatTree, is_dragonfly = net.shape == NetworkShape::Dragonfly;
  note(net.shape != NetworkShape::Full, "bandwidth", net.bandwidth.has_value());
  note(is_tree, "routing", net.routing != usual.routing);
  note(is_tree, "nodes_per_leaf", net.nodes_per_leaf != usual.nodes_per_leaf);
  note(is_tree, "oversubscription", net.oversubscription != usual.oversubscription);
  note(is_tree, "rails", net.rails);
  note(is_dragonfly, "nodes_per_router", net.nodes_per_router != usual.nodes_per_router);
  note(is_dragonfly, "routers_per_group", net.routers_per_group != usual.routers_per_group);
  note(is_dragonfly, "global_links", net.global_links != usual.global_links);
  note(net.shape == NetworkShape::Torus, "dims", !net.dims.empty());
  return keys;
}

Cluster load_cluster(const std::string& path) {
  return read_cluster(read_yaml(path), std::filesystem::path{path}.stem().string());
}

std::string told(const Cluster& c) {
  return c.name == kInline ? std::string{"the cluster"} : fmt::format("cluster '{}'", c.name);
}

void check_fits(const Cluster& cluster, std::int64_t ranks) {
  if (ranks <= cluster.num_ranks()) return;
  if (cluster.is_heterogeneous())
    throw UserError{fmt::format("the mesh has {} ranks and {} has {} devices ({} nodes of {} kinds)", ranks,
                                told(cluster), cluster.num_ranks(), cluster.num_nodes(), cluster.num_groups()),
                    "use a smaller mesh, or more `nodes`"};
  const std::int64_t per_node = cluster.devices_per_node;
  throw UserError{fmt::format("the mesh has {} ranks and {} has {} devices ({} of {} each)", ranks, told(cluster),
                              cluster.num_ranks(),
                              cluster.nodes == 1 ? "1 node" : fmt::format("{} nodes", cluster.nodes), per_node),
                  fmt::format("use a smaller mesh or `nodes: {}`", (ranks + per_node - 1) / per_node)};
}

}  // namespace orrery
