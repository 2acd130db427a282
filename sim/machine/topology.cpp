// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace orrery {
namespace {

using Links = std::vector<std::uint32_t>;

/// Wires between the GPUs of DGX-1 (V100): two quads, in which each is joined with each other, and i with i + 4; two
/// wires where `kMesh` says 2. Six per GPU.
constexpr int kMeshSize = 8;
constexpr std::array<std::array<int, kMeshSize>, kMeshSize> kMesh{{{0, 1, 1, 2, 2, 0, 0, 0},
                                                                   {1, 0, 2, 1, 0, 2, 0, 0},
                                                                   {1, 2, 0, 2, 0, 0, 1, 0},
                                                                   {2, 1, 2, 0, 0, 0, 0, 1},
                                                                   {2, 0, 0, 0, 0, 1, 1, 2},
                                                                   {0, 2, 0, 0, 1, 0, 2, 1},
                                                                   {0, 0, 1, 0, 1, 2, 0, 2},
                                                                   {0, 0, 0, 1, 2, 1, 2, 0}}};
constexpr double kMeshWires = 6;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Spreads pairs of ranks evenly over equal ways.
std::uint64_t hash_of(RankId from, RankId to) {
  std::uint64_t h = from.value * 0x9e3779b97f4a7c15ull + to.value + 0x632be59bd9b4e019ull;
  h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ (h >> 27)) * 0x94d049bb133111ebull;
  return h ^ (h >> 31);
}

}  // namespace

bool is_narrow(const Cluster& cluster) {
  const NetworkSpec& net = cluster.network;
  if (!net.faults.empty() || !net.background.empty()) return true;
  for (std::size_t g = 0; g < cluster.num_groups(); ++g)
    if (cluster.group(g).layout != NodeLayout::Switch) return true;
  if (cluster.num_nodes() == 1 || net.shape == NetworkShape::Full) return false;
  return net.shape != NetworkShape::FatTree || net.oversubscription > 1 ||
         (net.bandwidth && *net.bandwidth < cluster.nic->bandwidth);
}

Topology::Topology(const Cluster& cluster) : cluster_{cluster} {
  for (std::size_t g = 0; g < cluster.num_groups(); ++g)
    for (std::int64_t n = 0; n < cluster.group(g).nodes; ++n) add_node(std::ssize(nodes_), g);
  if (cluster.num_nodes() > 1) {
    if (cluster.network.shape == NetworkShape::FatTree) add_fat_tree();
    if (cluster.network.shape == NetworkShape::Dragonfly) add_dragonfly();
    if (cluster.network.shape == NetworkShape::Torus) add_torus();
  }
  apply_faults();
  apply_background();
}

std::uint32_t Topology::add(std::string name, BytesPerSecond bandwidth) {
  links_.push_back({std::move(name), bandwidth});
  return static_cast<std::uint32_t>(links_.size() - 1);
}

void Topology::add_node(std::int64_t number, std::size_t g) {
  const NodeGroup& group = cluster_.group(g);
  NodeLinks node{.group = g};
  const auto add_each = [&](std::int64_t n, const char* what, const char* way, BytesPerSecond rate) {
    const auto first = static_cast<std::uint32_t>(links_.size());
    for (std::int64_t i = 0; i < n; ++i) add(fmt::format("node {} {} {} {}", number, what, i, way), rate);
    return first;
  };
  const BytesPerSecond device = group.device_link ? group.device_link->bandwidth : BytesPerSecond{1e15};
  const BytesPerSecond pcie = group.host_link ? group.host_link->bandwidth : device;
  const std::int64_t devices = group.devices_per_node;
  const bool has_wires = group.layout == NodeLayout::Switch || group.layout == NodeLayout::Pairs;
  node.out = add_each(devices, "device", "out", has_wires ? device : pcie);
  node.in = add_each(devices, "device", "in", has_wires ? device : pcie);
  if (group.layout == NodeLayout::Pairs || group.layout == NodeLayout::Pcie || group.layout == NodeLayout::CubeMesh) {
    const std::int64_t switches = divide_up(devices, group.host_link ? group.host_link->devices_per_switch : 1);
    node.up = add_each(switches, "switch", "up", pcie);
    node.down = add_each(switches, "switch", "down", pcie);
  }
  if (group.layout == NodeLayout::Pairs) {
    node.slot_out = add_each(devices, "slot", "out", pcie);
    node.slot_in = add_each(devices, "slot", "in", pcie);
  }
  node.mesh = static_cast<std::uint32_t>(links_.size());
  if (group.layout == NodeLayout::CubeMesh) add_cube_mesh(number, device);
  if (group.nic) {
    node.cards = group.nic->per == NicPlacement::PerDevice ? devices : 1;
    node.card_out = add_each(node.cards, "card", "out", group.nic->bandwidth);
    node.card_in = add_each(node.cards, "card", "in", group.nic->bandwidth);
    most_cards_ = std::max(most_cards_, node.cards);
  }
  nodes_.push_back(node);
}

void Topology::add_cube_mesh(std::int64_t node, BytesPerSecond device) {
  for (int i = 0; i < kMeshSize; ++i)
    for (int j = 0; j < kMeshSize; ++j)
      add(fmt::format("node {} wire {} to {}", node, i, j), device * (kMesh[i][j] / kMeshWires));
}

/// As many spines as a leaf has links up; leaf after leaf, and rail after rail within one set of nodes.
void Topology::add_fat_tree() {
  const NetworkSpec& net = cluster_.network;
  const std::int64_t leaves = divide_up(cluster_.num_nodes(), net.nodes_per_leaf) * rails();
  const std::int64_t down = net.rails ? net.nodes_per_leaf : net.nodes_per_leaf * most_cards_;
  uplinks_ = std::max<std::int64_t>(1, std::llround(double(down) / net.oversubscription));
  const std::int64_t wires = net.routing == Routing::Adaptive ? uplinks_ : 1;
  uplinks_ /= wires;
  const BytesPerSecond rate = net.bandwidth.value_or(cluster_.nic->bandwidth) * double(wires);
  leaf_up_ = static_cast<std::uint32_t>(links_.size());
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
    for (std::int64_t u = 0; u < uplinks_; ++u) add(fmt::format("leaf {} up {}", leaf, u), rate);
  leaf_down_ = static_cast<std::uint32_t>(links_.size());
  for (std::int64_t leaf = 0; leaf < leaves; ++leaf)
    for (std::int64_t u = 0; u < uplinks_; ++u) add(fmt::format("leaf {} down {}", leaf, u), rate);
  leaf_end_ = static_cast<std::uint32_t>(links_.size());
}

void Topology::add_dragonfly() {
  const NetworkSpec& net = cluster_.network;
  const std::int64_t routers = divide_up(cluster_.num_nodes(), net.nodes_per_router), r = net.routers_per_group;
  groups_ = divide_up(routers, r);
  const BytesPerSecond rate = net.bandwidth.value_or(cluster_.nic->bandwidth);
  local_ = static_cast<std::uint32_t>(links_.size());
  for (std::int64_t g = 0; g < groups_; ++g)
    for (std::int64_t i = 0; i < r * r; ++i) add(fmt::format("group {} router {} to {}", g, i / r, i % r), rate);
  global_ = static_cast<std::uint32_t>(links_.size());
  for (std::int64_t i = 0; i < groups_ * groups_; ++i)
    add(fmt::format("group {} to group {}", i / groups_, i % groups_), rate * double(net.global_links));
}

void Topology::add_torus() {
  const BytesPerSecond rate = cluster_.network.bandwidth.value_or(cluster_.nic->bandwidth);
  torus_ = static_cast<std::uint32_t>(links_.size());
  for (std::int64_t node = 0; node < cluster_.num_nodes(); ++node)
    for (std::size_t d = 0; d < cluster_.network.dims.size(); ++d)
      for (const char* way : {"forward", "back"}) add(fmt::format("node {} dim {} {}", node, d, way), rate);
}

void Topology::apply_faults() {
  for (const LinkFault& fault : cluster_.network.faults) {
    const auto link =
        std::find_if(links_.begin(), links_.end(), [&](const TopologyLink& l) { return l.name == fault.link; });
    if (link == links_.end()) {
      std::vector<std::string> names;
      for (const TopologyLink& l : links_) names.push_back(l.name);
      if (names.size() > 40) names.resize(40);
      throw unknown_name("link", fault.link, names);
    }
    link->bandwidth = link->bandwidth * fault.bandwidth;
  }
}

/// Traffic of others takes its rate first.
void Topology::apply_background() {
  for (const BackgroundFlow& flow : cluster_.network.background) {
    const RankId from{static_cast<std::size_t>(flow.from)}, to{static_cast<std::size_t>(flow.to)};
    for (const std::uint32_t link : route(from, to)) {
      if (links_[link].bandwidth <= flow.bandwidth)
        throw UserError{fmt::format("background traffic leaves nothing of {}", links_[link].name),
                        fmt::format("the link has {}: lower `network.background`", to_text(links_[link].bandwidth))};
      links_[link].bandwidth = links_[link].bandwidth - flow.bandwidth;
    }
  }
}

std::uint32_t Topology::pool_of(std::uint32_t link) const {
  if (link < leaf_up_ || link >= leaf_end_) return link;
  const auto width = static_cast<std::uint32_t>(uplinks_);
  return leaf_up_ + (link - leaf_up_) / width * width;
}

BytesPerSecond Topology::bandwidth_of_pool(std::uint32_t pool) const {
  if (pool < leaf_up_ || pool >= leaf_end_) return links_[pool].bandwidth;
  BytesPerSecond all;
  for (std::uint32_t u = 0; u < static_cast<std::uint32_t>(uplinks_); ++u) all = all + links_[pool + u].bandwidth;
  return all;
}

BytesPerSecond Topology::mesh_rate(std::span<const RankId> ranks) const {
  const NodeLinks& node = nodes_[static_cast<std::size_t>(cluster_.node_of(ranks.front()))];
  BytesPerSecond least{1e300};
  for (const RankId from : ranks) {
    BytesPerSecond all;
    for (const RankId to : ranks)
      all = all + links_[node.mesh + static_cast<std::uint32_t>(cluster_.place_in_node(from) * kMeshSize +
                                                                cluster_.place_in_node(to))]
                      .bandwidth;
    least = std::min(least, all);
  }
  return least;
}

std::int64_t Topology::card_of(RankId rank) const {
  const NodeLinks& node = nodes_[static_cast<std::size_t>(cluster_.node_of(rank))];
  return node.cards > 1 ? cluster_.place_in_node(rank) : 0;
}

std::int64_t Topology::leaf_of(RankId rank) const {
  return cluster_.node_of(rank) / cluster_.network.nodes_per_leaf * rails() + (rails() > 1 ? card_of(rank) : 0);
}

void Topology::through_host(const NodeLinks& node, std::int64_t from, std::int64_t to, Links& out) const {
  const std::optional<HostLink>& link = cluster_.group(node.group).host_link;
  const std::int64_t sharers = link ? link->devices_per_switch : 1;
  if (from / sharers == to / sharers) return;
  out.push_back(node.up + static_cast<std::uint32_t>(from / sharers));
  out.push_back(node.down + static_cast<std::uint32_t>(to / sharers));
}

/// Over the wire between them, or through the neighbour of both that is joined best.
void Topology::through_mesh(const NodeLinks& node, std::int64_t from, std::int64_t to, Links& out) const {
  const auto wire = [&](std::int64_t i, std::int64_t j) {
    return node.mesh + static_cast<std::uint32_t>(i * kMeshSize + j);
  };
  if (is_up(wire(from, to))) return out.push_back(wire(from, to));
  std::int64_t best = -1;
  BytesPerSecond most;
  for (std::int64_t m = 0; m < kMeshSize; ++m)
    if (const auto rate = std::min(links_[wire(from, m)].bandwidth, links_[wire(m, to)].bandwidth); rate > most)
      most = rate, best = m;
  if (best < 0) return through_host(node, from, to, out);
  out.push_back(wire(from, best)), out.push_back(wire(best, to));
}

void Topology::inside(const NodeLinks& node, std::int64_t from, std::int64_t to, Links& out) const {
  const NodeLayout layout = cluster_.group(node.group).layout;
  if (layout == NodeLayout::CubeMesh) return through_mesh(node, from, to, out);
  const bool over_slots = layout == NodeLayout::Pairs && from / 2 != to / 2;
  out.push_back((over_slots ? node.slot_out : node.out) + static_cast<std::uint32_t>(from));
  if (over_slots || layout == NodeLayout::Pcie) through_host(node, from, to, out);
  out.push_back((over_slots ? node.slot_in : node.in) + static_cast<std::uint32_t>(to));
}

/// Up to one of the spines and down again. Of those whose links are up, the hash of the ends takes one.
void Topology::fat_tree(RankId from, RankId to, Links& out) const {
  const std::int64_t a = leaf_of(from), b = leaf_of(to);
  if (a == b) return;
  const auto up = [&](std::int64_t s) { return leaf_up_ + static_cast<std::uint32_t>(a * uplinks_ + s); };
  const auto down = [&](std::int64_t s) { return leaf_down_ + static_cast<std::uint32_t>(b * uplinks_ + s); };
  const auto start = static_cast<std::int64_t>(hash_of(from, to) % static_cast<std::uint64_t>(uplinks_));
  for (std::int64_t i = 0; i < uplinks_; ++i) {
    const std::int64_t s = (start + i) % uplinks_;
    if (!is_up(up(s)) || !is_up(down(s))) continue;
    out.push_back(up(s)), out.push_back(down(s));
    return;
  }
  throw UserError{fmt::format("no way from leaf {} to leaf {}: all links between them are down", a, b),
                  "take some out of `network.faults`"};
}

/// To the router that holds the link to the other group, over it, and on to the router of the node.
void Topology::dragonfly(std::int64_t from, std::int64_t to, Links& out) const {
  const NetworkSpec& net = cluster_.network;
  const std::int64_t r = net.routers_per_group;
  const std::int64_t a = from / net.nodes_per_router, b = to / net.nodes_per_router, ga = a / r, gb = b / r;
  const auto local = [&](std::int64_t group, std::int64_t i, std::int64_t j) {
    if (i != j) out.push_back(local_ + static_cast<std::uint32_t>(group * r * r + i * r + j));
  };
  if (ga == gb) return local(ga, a % r, b % r);
  local(ga, a % r, gb % r);
  out.push_back(global_ + static_cast<std::uint32_t>(ga * groups_ + gb));
  local(gb, ga % r, b % r);
}

void Topology::torus(std::int64_t from, std::int64_t to, Links& out) const {
  const std::vector<std::int64_t>& dims = cluster_.network.dims;
  std::int64_t stride = 1;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const std::int64_t n = dims[d], forward = ((to / stride) % n - (from / stride) % n + n) % n;
    const bool is_forward = forward <= n - forward;
    for (std::int64_t left = std::min(forward, n - forward); left > 0; --left) {
      const auto link = static_cast<std::size_t>(from) * dims.size() * 2 + 2 * d + (is_forward ? 0 : 1);
      out.push_back(torus_ + static_cast<std::uint32_t>(link));
      const std::int64_t at = (from / stride) % n, next = (at + (is_forward ? 1 : n - 1)) % n;
      from += (next - at) * stride;
    }
    stride *= n;
  }
}

void Topology::between(RankId from, RankId to, Links& out) const {
  const std::int64_t a = cluster_.node_of(from), b = cluster_.node_of(to);
  out.push_back(nodes_[static_cast<std::size_t>(a)].card_out + static_cast<std::uint32_t>(card_of(from)));
  if (cluster_.network.shape == NetworkShape::FatTree) fat_tree(from, to, out);
  if (cluster_.network.shape == NetworkShape::Dragonfly) dragonfly(a, b, out);
  if (cluster_.network.shape == NetworkShape::Torus) torus(a, b, out);
  out.push_back(nodes_[static_cast<std::size_t>(b)].card_in + static_cast<std::uint32_t>(card_of(to)));
}

void Topology::route(RankId from, RankId to, Links& out) const {
  const std::size_t first = out.size();
  if (cluster_.same_node(from, to))
    inside(nodes_[static_cast<std::size_t>(cluster_.node_of(from))], cluster_.place_in_node(from),
           cluster_.place_in_node(to), out);
  else
    between(from, to, out);
  for (std::size_t i = first; i < out.size(); ++i)
    if (!is_up(out[i]))
      throw UserError{
          fmt::format("no way from rank {} to rank {}: {} is down", from.value, to.value, links_[out[i]].name),
          "take it out of `network.faults`"};
}

Links Topology::route(RankId from, RankId to) const {
  Links out;
  route(from, to, out);
  return out;
}

}  // namespace orrery
