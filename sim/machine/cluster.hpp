// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/base/options.hpp"
#include "sim/plan/collective_choice.hpp"
#include "sim/plan/mesh.hpp"

namespace orrery {

constexpr std::string_view kFabricHelp =
    "file of hw_models/fabrics with measured collectives; left out: they follow from bandwidth and latency";

/// A path with a rate and a time for the first byte. `bandwidth` is of one direction.
struct Link {
  std::string name;
  BytesPerSecond bandwidth;
  Seconds latency;
  std::string fabric;  // empty: collectives by bandwidth and latency alone

  template <class V>
  void visit(V& v) {
    v.field("name", name, "what the link is called in reports");
    v.required("bandwidth", bandwidth, "rate of one direction", more_than(BytesPerSecond{0}));
    v.required("latency", latency, "time from the start of a message to its first byte", at_least(Seconds{0}));
    v.field("fabric", fabric, kFabricHelp);
  }
};

/// How a device reaches the memory of its node: alone, or behind a PCIe switch that it shares.
struct HostLink : Link {
  HostLink() = default;
  HostLink(Link link) : Link{std::move(link)} {}  // a device of its own behind each switch

  std::int64_t devices_per_switch = 1;
  double to_device = 0.83, to_host = 0.83;
  BytesPerSecond staging{8e9};

  template <class V>
  void visit(V& v) {
    Link::visit(v);
    v.field("devices_per_switch", devices_per_switch, "devices behind one PCIe switch, which has one such link upwards",
            at_least(1));
    v.field("to_device", to_device, "part of its rate that copies from pinned memory reach", between(0, 1));
    v.field("to_host", to_host, "part of its rate that copies to pinned memory reach", between(0, 1));
    v.field("staging", staging, "rate at which a thread copies between pageable and pinned memory",
            more_than(BytesPerSecond{0}));
  }
};

/// How the devices of a node are joined: all to one switch; as the hybrid cube mesh of DGX-1; in pairs by bridges; or
/// by PCIe alone, where `device_link` is what the PCIe switches of `host_link` give.
enum class NodeLayout : std::uint8_t { Switch, CubeMesh, Pairs, Pcie };
std::span<const EnumName<NodeLayout>> enum_names(NodeLayout);

/// Whether each device has its own network card or the devices of a node share one.
enum class NicPlacement : std::uint8_t { PerDevice, PerNode };
std::span<const EnumName<NicPlacement>> enum_names(NicPlacement);

struct Nic {
  std::string name;
  NicPlacement per = NicPlacement::PerDevice;
  BytesPerSecond bandwidth;
  Seconds latency;
  std::string fabric;

  template <class V>
  void visit(V& v) {
    v.field("name", name, "what the card is called in reports");
    v.field("per", per, "who owns a card");
    v.required("bandwidth", bandwidth, "rate of one direction of one card", more_than(BytesPerSecond{0}));
    v.required("latency", latency, "time of the first byte from node to node", at_least(Seconds{0}));
    v.field("fabric", fabric, kFabricHelp);
  }
};

/// The computer around the devices. What a file leaves out is that of the computer which reads it.
struct HostSpec {
  std::optional<std::int64_t> cores;
  std::optional<Bytes> memory;
  std::optional<BytesPerSecond> memory_bandwidth;
  double reached = 0.46;
  std::int64_t threads = 1;

  template <class V>
  void visit(V& v) {
    v.field("cores", cores,
            "cores of a node; left out: those of this computer, where it is the device as many as were calibrated",
            at_least(1));
    v.field("memory", memory, "memory of a node; left out: that of this computer", more_than(Bytes{0}));
    v.field("memory_bandwidth", memory_bandwidth, "rate of a node's memory; left out: from the device's parameters",
            more_than(BytesPerSecond{0}));
    v.field("reached", reached, "part of that which an optimizer on all cores reaches", between(0, 1));
    v.field("threads", threads, "threads that share the host's own work of a rank; 0: as many as it has cores",
            at_least(0));
  }
};

/// Disks of a node, taken as one. `queue_depth` requests of `block` bytes are under way at once.
struct DiskSpec {
  Bytes size;
  BytesPerSecond bandwidth;
  std::optional<BytesPerSecond> write_bandwidth;
  Seconds latency;
  std::int64_t queue_depth = 32;
  Bytes block{1048576};

  template <class V>
  void visit(V& v) {
    v.required("size", size, "capacity of a node's disks", more_than(Bytes{0}));
    v.required("bandwidth", bandwidth, "rate at which a node's disks read together", more_than(BytesPerSecond{0}));
    v.field("write_bandwidth", write_bandwidth, "the same of writing; left out: as of reading",
            more_than(BytesPerSecond{0}));
    v.field("latency", latency, "time of one request", at_least(Seconds{0}));
    v.field("queue_depth", queue_depth, "requests under way at once", at_least(1));
    v.field("block", block, "bytes of a request", more_than(Bytes{0}));
  }
};

/// How nodes are joined. `Full`: any card reaches any other at its full rate.
enum class NetworkShape : std::uint8_t { Full, FatTree, Dragonfly, Torus };
std::span<const EnumName<NetworkShape>> enum_names(NetworkShape);
/// Which of several equal ways a message takes: one by a hash of its ends, or all of them evenly.
enum class Routing : std::uint8_t { Ecmp, Adaptive };
std::span<const EnumName<Routing>> enum_names(Routing);

/// A link that gives less than it should.
struct LinkFault {
  std::string link;
  double bandwidth = 0;

  template <class V>
  void visit(V& v) {
    v.required("link", link, "its name, as `orrery topo show --links` prints it");
    v.field("bandwidth", bandwidth, "what is left of its rate; 0 is a link that is down", between(0, 1));
  }
};

/// Traffic of others that runs all the time.
struct BackgroundFlow {
  std::int64_t from = 0, to = 0;
  BytesPerSecond bandwidth;

  template <class V>
  void visit(V& v) {
    v.required("from", from, "rank at whose device it starts", at_least(0));
    v.required("to", to, "rank at whose device it ends", at_least(0));
    v.required("bandwidth", bandwidth, "rate that it takes of each link on its way", more_than(BytesPerSecond{0}));
  }
};

/// The network between nodes, as `network: flow` simulates it.
struct NetworkSpec {
  NetworkShape shape = NetworkShape::Full;
  Routing routing = Routing::Ecmp;
  std::optional<BytesPerSecond> bandwidth;
  std::int64_t nodes_per_leaf = 16;
  double oversubscription = 1;
  bool rails = false;
  std::int64_t nodes_per_router = 4, routers_per_group = 4, global_links = 1;
  std::vector<std::int64_t> dims;
  std::vector<LinkFault> faults;
  std::vector<BackgroundFlow> background;

  template <class V>
  void visit(V& v) {
    v.field("shape", shape, "how nodes are joined");
    v.field("routing", routing, "which of several equal ways a message takes");
    v.field("bandwidth", bandwidth, "rate of a link between switches; left out: that of a card",
            more_than(BytesPerSecond{0}));
    v.field("nodes_per_leaf", nodes_per_leaf, "fat tree: nodes under one leaf switch, or under one set of rails",
            at_least(1));
    v.field("oversubscription", oversubscription, "fat tree: rate into a leaf over rate out of it", at_least(1));
    v.field("rails", rails, "fat tree: the cards of all nodes with the same place share a leaf of their own");
    v.field("nodes_per_router", nodes_per_router, "dragonfly: nodes at one router", at_least(1));
    v.field("routers_per_group", routers_per_group, "dragonfly: routers that are joined with each other", at_least(1));
    v.field("global_links", global_links, "dragonfly: links between each two groups", at_least(1));
    v.field("dims", dims, "torus: nodes along each direction", at_least(1));
    v.field("faults", faults, "links that are slow or down");
    v.field("background", background, "traffic of others");
  }
};

/// Equal nodes of equal devices.
struct NodeGroup {
  std::int64_t nodes = 1;
  std::int64_t devices_per_node = 1;
  std::string device;
  HostSpec host;
  std::optional<Link> device_link;  // left out: devices talk through the host's memory, at the rate of the device file
  NodeLayout layout = NodeLayout::Switch;
  std::optional<HostLink> host_link;  // left out for this computer: tiers are one memory, copies go as fast as they can
  std::optional<Nic> nic;
  std::optional<DiskSpec> disk;
  std::optional<Bytes> device_memory;

  template <class V>
  void visit(V& v) {
    v.field("nodes", nodes, "computers", at_least(1));
    v.field("devices_per_node", devices_per_node, "devices of each computer; one rank runs on each", at_least(1));
    v.required("device", device, "parameter file of the device, in hw_models/params");
    v.field("host", host, "the computer around the devices");
    v.field("device_link", device_link, "from each device to the other ones of its node");
    v.field("layout", layout, "how the devices of a node are joined");
    v.field("host_link", host_link, "from each device to the memory of its node");
    v.field("nic", nic, "from node to node; needed when there are several");
    v.field("disk", disk, "disks of a node");
    v.field("device_memory", device_memory,
            "memory of a device that plans may use; left out: all of it (of this computer, what the host has)",
            more_than(Bytes{0}));
  }

  std::int64_t num_ranks() const { return nodes * devices_per_node; }
};

/// Nodes, most often of one kind: the file's own keys. `more_nodes` adds nodes of other kinds. Ranks fill a node before
/// the next one starts, and the file's own nodes before those of `more_nodes`, in their order, unless `device_of_rank`
/// says otherwise.
struct Cluster : NodeGroup {
  std::string name;  // of the file, without folder and suffix
  std::string summary;
  std::vector<NodeGroup> more_nodes;
  std::vector<std::uint32_t> device_of_rank;  // of all devices, each once (rank_order.hpp); empty: in order
  CollectiveChoice algorithms;                // of collectives, as a scenario says
  NetworkSpec network;

  template <class V>
  void visit(V& v) {
    v.field("summary", summary, "one line for `orrery list clusters`");
    NodeGroup::visit(v);
    v.field("more_nodes", more_nodes, "nodes of other kinds: for each kind the same keys, but `summary` and `network`");
    v.field("network", network, "what joins the nodes");
  }

  std::size_t num_groups() const { return 1 + more_nodes.size(); }
  const NodeGroup& group(std::size_t i) const { return i == 0 ? *this : more_nodes[i - 1]; }
  bool is_heterogeneous() const { return !more_nodes.empty(); }
  std::int64_t num_nodes() const;
  std::int64_t num_ranks() const;
  /// The kind of node that a rank is on; ranks behind the last one count as of the last kind.
  std::size_t group_index(RankId rank) const { return place_of(rank).group; }
  const NodeGroup& group_of(RankId rank) const { return group(group_index(rank)); }
  const std::string& device_of(RankId rank) const { return group_of(rank).device; }
  std::int64_t node_of(RankId rank) const { return place_of(rank).node; }
  /// Its place among the devices of its node.
  std::int64_t place_in_node(RankId rank) const { return place_of(rank).device; }
  bool same_node(RankId a, RankId b) const { return node_of(a) == node_of(b); }

 private:
  struct Place {
    std::size_t group = 0;
    std::int64_t node = 0, device = 0;
  };
  Place place_of(RankId rank) const;
};

/// The device that this computer is.
constexpr std::string_view kThisComputer = "host";
/// The name of a cluster, or a model, that a scenario holds itself.
constexpr std::string_view kInline = "inline";
/// What messages call a cluster: "cluster 'dgx_h100'", "the cluster" where a scenario holds it itself.
std::string told(const Cluster& cluster);

/// Reads a cluster; `name` is what reports call it. What it leaves out of its host is that of this computer, but for
/// the cores where the device is `kThisComputer`: the device's parameters tell these. Throws UserError with all
/// problems: unknown keys, units, nodes without a network between them.
Cluster read_cluster(const Node& document, std::string_view name);
/// Keys of a network that are set and that its shape does not use, such as `oversubscription` of a full one.
std::vector<std::string> unused_keys(const NetworkSpec& network);
/// Reads a file; its name without folder and suffix is the cluster's.
Cluster load_cluster(const std::string& path);
/// Throws UserError unless a mesh of this many ranks fits.
void check_fits(const Cluster& cluster, std::int64_t ranks);

/// Cores that this process may use, and the memory of this computer.
std::int64_t detected_cores();
Bytes detected_memory();

}  // namespace orrery
