// SPDX-License-Identifier: Apache-2.0
#include "sim/app/topology_picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/base/table.hpp"
#include "sim/machine/topology.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostDrawn = 16;  // devices of a node
constexpr std::size_t kCell = 5;

std::string repeat(std::string_view text, std::size_t n) {
  std::string out;
  for (std::size_t i = 0; i < n; ++i) out += text;
  return out;
}

std::string rate(BytesPerSecond r) { return to_text(r); }

/// One cell per device: "│" in the middle of each.
std::string wires(std::size_t devices) {
  std::string line;
  for (std::size_t i = 0; i < devices; ++i) line += "  │  ";
  return line;
}

std::string names(std::string_view prefix, std::size_t n) {
  std::string line;
  for (std::size_t i = 0; i < n; ++i) line += fmt::format("{:^{}}", fmt::format("{}{}", prefix, i), kCell);
  return line;
}

/// A box of this many cells with a text inside.
std::string box(std::string_view text, std::size_t cells, const char* left, const char* fill, const char* right) {
  const std::size_t width = cells * kCell - 2, taken = std::min(width, text.size() + 2);
  if (text.empty() || text.size() + 2 > width) return left + repeat(fill, width) + right;
  const std::size_t before = (width - taken) / 2;
  return left + repeat(fill, before) + " " + std::string{text} + " " + repeat(fill, width - taken - before) + right;
}

class NodePicture {
 public:
  explicit NodePicture(const NodeGroup& node)
      : node_{node}, drawn_{static_cast<std::size_t>(std::min(node.devices_per_node, kMostDrawn))} {}

  std::string text() {
    if (node_.layout == NodeLayout::Switch && node_.device_link && node_.devices_per_node > 1) add_switch();
    if (node_.layout == NodeLayout::Pairs) add_pairs();
    add(names("g", drawn_), std::int64_t(drawn_) < node_.devices_per_node
                                ? fmt::format("… g{}   {}", node_.devices_per_node - 1, node_.device)
                                : node_.device);
    if (node_.layout == NodeLayout::CubeMesh) add_mesh();
    if (node_.host_link) add_host_link();
    if (node_.nic) add_cards();
    return out_;
  }

 private:
  void add(const std::string& picture, const std::string& remark = {}) {
    out_ += "    " + picture + (remark.empty() ? "" : "   " + remark) + "\n";
  }

  std::string link_text() const {
    return fmt::format("{}, {} each", node_.device_link->name.empty() ? "link" : node_.device_link->name,
                       rate(node_.device_link->bandwidth));
  }

  void add_switch() {
    add(box("switch", drawn_, "┌", "─", "┐"));
    add(wires(drawn_), link_text());
  }

  void add_pairs() {
    std::string line;
    for (std::size_t i = 0; i < drawn_; ++i)
      line += i + 1 == drawn_ && i % 2 == 0 ? "     " : i % 2 == 0 ? "  ┌──" : "──┐  ";
    add(line, link_text() + ", in pairs");
  }

  void add_mesh() {
    add("g0 ═ g3   g1 ═ g2   g4 ═ g7   g5 ═ g6   two wires in each half");
    add("g0 ═ g4   g1 ═ g5   two across;  g2 ─ g6   g3 ─ g7   one");
    add("g0 ─ g1   g0 ─ g2   g1 ─ g3   g4 ─ g5   g4 ─ g6   g5 ─ g7   one wire",
        fmt::format("{} a wire", rate(node_.device_link ? node_.device_link->bandwidth / 6.0 : BytesPerSecond{0})));
  }

  void add_host_link() {
    const HostLink& link = *node_.host_link;
    add(wires(drawn_), fmt::format("{}, {} each", link.name.empty() ? "host link" : link.name, rate(link.bandwidth)));
    if (link.devices_per_switch > 1) {
      std::string switches;
      const auto sharers = static_cast<std::size_t>(link.devices_per_switch);
      for (std::size_t first = 0; first < drawn_; first += sharers)
        switches += box("PCIe switch", std::min(sharers, drawn_ - first), "└", "─", "┘");
      add(switches, fmt::format("{} share one way up", link.devices_per_switch));
    }
    add(box(host_text(), drawn_, "╞", "═", "╡"));
  }

  std::string host_text() const {
    std::string text = "host";
    if (node_.host.cores) text += fmt::format(", {} cores", *node_.host.cores);
    if (node_.host.memory) text += ", " + to_text(*node_.host.memory);
    return text;
  }

  void add_cards() {
    const Nic& nic = *node_.nic;
    const bool each = nic.per == NicPlacement::PerDevice;
    add(each ? wires(drawn_) : wires(1));
    add(each ? names("c", drawn_) : names("c", 1),
        fmt::format("{}, {} ({:.0f} Gb/s){}", nic.name.empty() ? "card" : nic.name, rate(nic.bandwidth),
                    nic.bandwidth.base() * 8e-9, each && drawn_ > 1 ? " each" : ""));
  }

  const NodeGroup& node_;
  std::size_t drawn_;
  std::string out_;
};

std::string nodes_text(std::int64_t first, std::int64_t count) {
  return count == 1 ? fmt::format("node {}", first) : fmt::format("nodes {} … {}", first, first + count - 1);
}

std::string fat_tree_text(const Cluster& c) {
  const NetworkSpec& net = c.network;
  const std::int64_t pods = (c.num_nodes() + net.nodes_per_leaf - 1) / net.nodes_per_leaf;
  const std::int64_t cards = c.nic->per == NicPlacement::PerDevice ? c.devices_per_node : 1;
  const std::int64_t leaves = pods * (net.rails ? cards : 1);
  const std::int64_t up = std::max<std::int64_t>(
      1, std::llround(double(net.nodes_per_leaf * (net.rails ? 1 : cards)) / net.oversubscription));
  std::string text = fmt::format("  {} spines\n", up);
  text += "    ┌─┬─┬─┐   ┌─┬─┬─┐\n    ╳ ╳ ╳ ╳ … ╳ ╳ ╳ ╳   each leaf to each spine\n    └─┴─┴─┘   └─┴─┴─┘\n";
  text += fmt::format("  {} {}: {} links down, {} up ({:g} : 1), {}\n", leaves, leaves == 1 ? "leaf" : "leaves",
                      net.nodes_per_leaf * (net.rails ? 1 : cards), up, net.oversubscription,
                      net.routing == Routing::Ecmp ? "one way per pair by a hash" : "adaptive routing");
  if (net.rails)
    text += fmt::format("  rails: the i-th cards of {} nodes share a leaf; {} pods\n", net.nodes_per_leaf, pods);
  return text;
}

std::string network_text(const Cluster& c) {
  const NetworkSpec& net = c.network;
  const std::string links = rate(net.bandwidth.value_or(c.nic->bandwidth));
  switch (net.shape) {
    case NetworkShape::Full:
      return "  every card reaches every other at its full rate\n";
    case NetworkShape::FatTree:
      return fat_tree_text(c);
    case NetworkShape::Dragonfly: {
      const std::int64_t routers = (c.num_nodes() + net.nodes_per_router - 1) / net.nodes_per_router;
      const std::int64_t groups = (routers + net.routers_per_group - 1) / net.routers_per_group;
      return fmt::format(
          "  dragonfly of {} groups, {} link{} of {} between each two\n    (r─r─r) ═══ (r─r─r) ═══ (r─r─r)\n  a group: "
          "{} "
          "routers, each with each, {} nodes at a router\n",
          groups, net.global_links, net.global_links == 1 ? "" : "s", links, net.routers_per_group,
          net.nodes_per_router);
    }
    case NetworkShape::Torus:
      return fmt::format("  torus of {} nodes, links of {}\n    ─n─n─n─\n     │ │ │\n    ─n─n─n─\n",
                         fmt::join(net.dims, " × "), links);
  }
  return {};
}

std::string faults_text(const NetworkSpec& net) {
  std::string text;
  for (const LinkFault& f : net.faults)
    text += f.bandwidth > 0 ? fmt::format("  {} at {:.0f} %\n", f.link, 100 * f.bandwidth)
                            : fmt::format("  {} is down\n", f.link);
  for (const BackgroundFlow& f : net.background)
    text += fmt::format("  others send {} from rank {} to rank {}\n", rate(f.bandwidth), f.from, f.to);
  return text;
}

}  // namespace

std::string topology_picture(const Cluster& c) {
  std::string text = fmt::format("{}: {} devices on {} {}\n", c.name, c.num_ranks(), c.num_nodes(),
                                 c.num_nodes() == 1 ? "node" : "nodes");
  if (!c.summary.empty()) text += c.summary + "\n";
  std::int64_t first = 0;
  for (std::size_t g = 0; g < c.num_groups(); ++g) {
    text += "\n  " + nodes_text(first, c.group(g).nodes) + "\n" + NodePicture{c.group(g)}.text();
    first += c.group(g).nodes;
  }
  if (c.num_nodes() > 1) text += "\n" + network_text(c) + faults_text(c.network);
  return text;
}

std::string link_table(const Cluster& cluster) {
  Table table{{{"link"}, {"rate", Align::Right}}};
  const Topology topology{cluster};
  for (const TopologyLink& l : topology.links())
    if (l.bandwidth > BytesPerSecond{0}) table.add({l.name, to_text(l.bandwidth)});
  return table.text();
}

}  // namespace orrery
