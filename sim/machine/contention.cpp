// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/contention.hpp"

#include <algorithm>
#include <cstdlib>
#include <unordered_map>

namespace orrery {
namespace {

constexpr std::size_t kMostFlows = 1 << 17;
constexpr std::int64_t kMostGroups = 1 << 12;

/// Whether NCCL sends it round rings, or along them.
bool is_ring(CollectiveKind kind) { return kind != CollectiveKind::AllToAll && kind != CollectiveKind::Shift; }

/// The groups that lie between each other's ranks: as many as members are apart. Members of one are the ranks of this
/// one plus first, first + 1, … (0 is this one).
struct GroupsBeside {
  std::int64_t first = 0, count = 1;
};

GroupsBeside groups_beside(std::span<const RankId> ranks) {
  std::int64_t apart = INT64_MAX, lowest = INT64_MAX;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::int64_t rank = ranks[i].value;
    lowest = std::min(lowest, rank);
    if (i > 0) apart = std::min(apart, std::abs(rank - std::int64_t{ranks[i - 1].value}));
  }
  const std::int64_t count = std::clamp<std::int64_t>(apart, 1, kMostGroups);
  return {-(lowest % count), count};
}

/// Flows over links: first counted where they leave, then laid on all of their way.
class Loads {
 public:
  Loads(const Topology& topology, Sharing sharing) : topology_{topology}, sharing_{sharing} {}

  void count(RankId from, RankId to) {
    find_way(from, to);
    ++leaving_[door(from)];
  }

  void add(RankId from, RankId to) {
    find_way(from, to);
    const double rate = is_inside_ ? inside_rate(from) : topology_.cluster().group_of(from).nic->bandwidth.base();
    if (rate <= 0) return;
    double& slowest = is_inside_ ? slowest_.inside : slowest_.between;
    for (const std::uint32_t link : way_) {
      if (sharing_ == Sharing::Alone) {
        slowest = std::max(slowest, rate / topology_.links()[link].bandwidth.base());
        continue;
      }
      Pool& pool = pools_[topology_.pool_of(link)];
      if (pool.load == 0) pool.bandwidth = topology_.bandwidth_of_pool(topology_.pool_of(link)).base();
      pool.load += rate / double(leaving_.at(door(from)));
      slowest = std::max(slowest, pool.load / pool.bandwidth);
    }
  }

  Slowdown slowest() const { return slowest_; }

 private:
  struct Pool {
    double load = 0, bandwidth = 0;  // B/s
  };
  void find_way(RankId from, RankId to) {
    is_inside_ = topology_.cluster().same_node(from, to);
    way_.clear();
    topology_.route(from, to, way_);
  }

  /// What all flows share that leave a device, or its node, there.
  std::uint64_t door(RankId from) const {
    return is_inside_ ? std::uint64_t{from.value} * 2 : std::uint64_t{way_.front()} * 2 + 1;
  }

  double inside_rate(RankId from) const {
    const NodeGroup& node = topology_.cluster().group_of(from);
    if (!node.device_link) return 0;
    const double rate = node.device_link->bandwidth.base();
    if (node.layout != NodeLayout::Pcie) return rate;
    return node.device_link->fabric.empty() ? std::min(rate, topology_.links()[way_.front()].bandwidth.base()) : 0;
  }

  const Topology& topology_;
  Sharing sharing_;
  bool is_inside_ = false;
  std::vector<std::uint32_t> way_;
  std::unordered_map<std::uint64_t, std::int64_t> leaving_;
  std::unordered_map<std::uint32_t, Pool> pools_;
  Slowdown slowest_;
};

/// Of rings in the nodes that are cube meshes: over all wires there. Nothing where some member has none.
double mesh_slowdown(const Topology& topology, std::span<const RankId> ranks) {
  const Cluster& cluster = topology.cluster();
  double slowest = 0;
  for (std::size_t i = 0, end = 0; i < ranks.size(); i = end) {
    for (end = i + 1; end < ranks.size() && cluster.same_node(ranks[i], ranks[end]);) ++end;
    const NodeGroup& node = cluster.group_of(ranks[i]);
    if (node.layout != NodeLayout::CubeMesh || end == i + 1) continue;
    const double wires = topology.mesh_rate(ranks.subspan(i, end - i)).base();
    if (wires <= 0) return 0;
    slowest = std::max(slowest, node.device_link->bandwidth.base() / wires);
  }
  return slowest;
}

}  // namespace

Slowdown slowdown(const Topology& topology, const Collective& work, std::span<const RankId> ranks,
                  const CostModel& cost, Sharing sharing) {
  const GroupsBeside beside = sharing == Sharing::Together ? groups_beside(ranks) : GroupsBeside{};
  const std::vector<BulkFlow> flows =
      bulk_flows(work, ranks, cost, kMostFlows / (ranks.size() * static_cast<std::size_t>(beside.count)) + 1);
  const double mesh = is_ring(work.kind) ? mesh_slowdown(topology, ranks) : 0;
  const std::int64_t all = topology.cluster().num_ranks();
  const auto each = [&](auto&& visit) {
    for (std::int64_t b = beside.first; b < beside.first + beside.count; ++b)
      for (const BulkFlow& f : flows) {
        const auto from = std::int64_t{f.from.value} + b, to = std::int64_t{f.to.value} + b;
        if (std::max(from, to) >= all) continue;
        const RankId a{static_cast<std::size_t>(from)}, z{static_cast<std::size_t>(to)};
        if (mesh <= 0 || !topology.cluster().same_node(a, z)) visit(a, z);
      }
  };
  Loads loads{topology, sharing};
  each([&](RankId a, RankId z) { loads.count(a, z); });
  each([&](RankId a, RankId z) { loads.add(a, z); });
  Slowdown out = loads.slowest();
  out.inside = std::max(out.inside, mesh);
  return out;
}

}  // namespace orrery
