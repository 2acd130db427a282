// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/machine/cluster.hpp"

namespace orrery {

/// One direction of a wire, or of several that are always used alike.
struct TopologyLink {
  std::string name;  // "node 3 card 1 out", "leaf 0 up 2"
  BytesPerSecond bandwidth;
};

/// Whether links inside of nodes, or between them, may give the flows over them less than their ends would.
bool is_narrow(const Cluster& cluster);

/// The links of a cluster, and the way of a message over them. Generated from the few lines of a cluster's file:
///
///   in a node    switch: each device has a link out and one in. cube_mesh: the eight of DGX-1, two quads of four whose
///                corners are joined, nearest neighbours twice; others reach each other through the corner of their own
///                quad. pairs: devices 2i and 2i + 1 by a bridge, others through the host. pcie: up and down the
///                switches of `host_link`.
///   fat tree     leaves with a link for each card and 1/oversubscription as many up, each to a spine of its own; with
///                rails, leaf i of a pod takes the i-th card of its nodes
///   dragonfly    routers of a group joined with each other, groups by links whose ends go round the routers
///   torus        a link in each direction of each dimension; dimension after dimension, the shorter way round
///
/// Faults and traffic of others lower a link's rate; ways that are equal avoid links that are down. Leaves out: third
/// tiers, adaptive detours (routing `adaptive` takes the equal links of a tier as one wide one), and protocols.
class Topology {
 public:
  /// Throws UserError when a fault names no link, or traffic of others fills one.
  explicit Topology(const Cluster& cluster);

  std::span<const TopologyLink> links() const { return links_; }
  const Cluster& cluster() const { return cluster_; }
  /// Appends the links from rank to rank, in order. Throws UserError when all ways are down.
  void route(RankId from, RankId to, std::vector<std::uint32_t>& out) const;
  std::vector<std::uint32_t> route(RankId from, RankId to) const;

  /// The first of the links that stand beside this one, of which any will do: those up from a leaf, or down to it.
  std::uint32_t pool_of(std::uint32_t link) const;
  /// Of all links of a pool together.
  BytesPerSecond bandwidth_of_pool(std::uint32_t pool) const;
  /// Of the wires from a rank of a cube mesh to the others of these, all of one node, together: of the rank that has
  /// least.
  BytesPerSecond mesh_rate(std::span<const RankId> ranks) const;

 private:
  struct NodeLinks {  // first link of each kind; devices and switches come in order
    std::size_t group = 0;
    std::uint32_t out = 0, in = 0, up = 0, down = 0, mesh = 0, card_out = 0, card_in = 0;
    std::uint32_t slot_out = 0, slot_in = 0;  // PCIe of devices that have bridges, too
    std::int64_t cards = 0;
  };
  std::uint32_t add(std::string name, BytesPerSecond bandwidth);
  bool is_up(std::uint32_t link) const { return links_[link].bandwidth > BytesPerSecond{0}; }

  void add_node(std::int64_t node, std::size_t group);
  void add_cube_mesh(std::int64_t node, BytesPerSecond device);
  void add_fat_tree();
  void add_dragonfly();
  void add_torus();
  void apply_faults();
  void apply_background();
  void inside(const NodeLinks& node, std::int64_t from, std::int64_t to, std::vector<std::uint32_t>& out) const;
  void through_host(const NodeLinks& node, std::int64_t from, std::int64_t to, std::vector<std::uint32_t>& out) const;
  void through_mesh(const NodeLinks& node, std::int64_t from, std::int64_t to, std::vector<std::uint32_t>& out) const;
  void between(RankId from, RankId to, std::vector<std::uint32_t>& out) const;
  void fat_tree(RankId from, RankId to, std::vector<std::uint32_t>& out) const;
  void dragonfly(std::int64_t from, std::int64_t to, std::vector<std::uint32_t>& out) const;
  void torus(std::int64_t from, std::int64_t to, std::vector<std::uint32_t>& out) const;
  std::int64_t card_of(RankId rank) const;
  std::int64_t leaf_of(RankId rank) const;
  std::int64_t rails() const { return cluster_.network.rails ? most_cards_ : 1; }

  Cluster cluster_;
  std::vector<TopologyLink> links_;
  std::vector<NodeLinks> nodes_;
  std::int64_t most_cards_ = 0, uplinks_ = 0, groups_ = 0;
  std::uint32_t leaf_up_ = 0, leaf_down_ = 0, leaf_end_ = 0, local_ = 0, global_ = 0, torus_ = 0;
};

}  // namespace orrery
