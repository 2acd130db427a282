// SPDX-License-Identifier: Apache-2.0
// ClusterCostModel: collectives, by measured curves or closed forms.
#include <algorithm>
#include <map>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/collective_forms.hpp"

namespace orrery {
namespace {

constexpr std::string_view kOwnAllReduce = "tensorrt_llm";

/// How the ranks of a group lie on nodes: the most of them on one node, and the nodes.
struct Spread {
  std::int64_t per_node = 1, nodes = 1;
};

Spread spread_of(const Cluster& cluster, std::span<const RankId> ranks) {
  std::map<std::int64_t, std::int64_t> count;
  for (const RankId rank : ranks) ++count[cluster.node_of(rank)];
  Spread s{1, static_cast<std::int64_t>(count.size())};
  for (const auto& [node, ranks_of_node] : count) s.per_node = std::max(s.per_node, ranks_of_node);
  return s;
}

/// Whether the ranks lie node after node, `per_node` on each.
bool fills_nodes(const Cluster& cluster, std::span<const RankId> ranks, std::int64_t per_node) {
  if (std::ssize(ranks) % per_node != 0) return false;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t first = i - i % static_cast<std::size_t>(per_node);
    if (!cluster.same_node(ranks[i], ranks[first])) return false;
  }
  return true;
}

/// Which ways the messages of a shift take.
struct ShiftSpread {
  std::int64_t leaving = 0;  // of the node that most leave
  bool some_stay = false;
};

ShiftSpread shift_spread(const Cluster& cluster, std::span<const RankId> ranks, std::size_t places) {
  std::map<std::int64_t, std::int64_t> leaving;
  ShiftSpread s;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankId to = ranks[(i + places) % ranks.size()];
    if (cluster.same_node(ranks[i], to))
      s.some_stay = true;
    else
      s.leaving = std::max(s.leaving, ++leaving[cluster.node_of(ranks[i])]);
  }
  return s;
}

Hop slowed(const Hop& hop, double times) { return {hop.latency, hop.bandwidth / times}; }

/// What a collective takes of its devices, which ops beside it then lack.
void demand_device(OpCost& c, const CommunicationParameters& p) {
  if (p.sm_share > 0) c.demand(Resource::Sm, p.sm_share);
  if (p.memory_share > 0) c.demand(Resource::Hbm, p.memory_share);
}

}  // namespace

/// What links make of a collective that are shared, or slower than their ends. It does not hang on bytes: what was
/// found for the same flows is kept.
Slowdown ClusterCostModel::slowdown_of(const Collective& work, std::span<const RankId> ranks, Sharing sharing) const {
  if (!slowdowns_ || work.kind == CollectiveKind::Barrier) return {};
  std::uint64_t hash = ranks.size();
  for (const RankId rank : ranks) hash = (hash ^ rank.value) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  const std::array<std::uint64_t, 4> key{static_cast<std::uint64_t>(work.kind) * 2 + (sharing == Sharing::Alone),
                                         static_cast<std::uint64_t>(std::int64_t{work.root}), ranks.size(), hash};
  const std::lock_guard lock{slowdowns_->mutex};
  if (const auto known = slowdowns_->known.find(key); known != slowdowns_->known.end()) return known->second;
  Collective some = work;
  some.bytes = Bytes{1};
  return slowdowns_->known.emplace(key, slowdown(*topology_, some, ranks, *this, sharing)).first->second;
}

TwoLevels ClusterCostModel::levels(std::span<const RankId> ranks, const Slowdown& slower) const {
  const Spread spread = spread_of(cluster_, ranks);
  const Groups groups = groups_of(ranks);
  TwoLevels t{spread.per_node, spread.nodes, slowed(hop_inside(groups), slower.inside), {}, {}};
  if (t.nodes == 1) return t;
  t.between = slowed(hop_between(groups, t.per_node), slower.between);
  t.alone = slowed(hop_between(groups, 1), slower.between);
  return t;
}

/// How it is done: by the chosen algorithm, or the cheapest.
CollectiveShape ClusterCostModel::shape(const Collective& work, std::span<const RankId> ranks,
                                        const TwoLevels& levels) const {
  const auto n = static_cast<std::int64_t>(ranks.size());
  const bool even = levels.nodes > 1 && fills_nodes(cluster_, ranks, levels.per_node);
  CollectiveShape s = shape_of(work, CollectiveAlgorithm::Auto, n, even ? levels.per_node : 1);
  const auto chosen = cluster_.algorithms.of(work.kind).value_or(CollectiveAlgorithm::Auto);
  if (chosen == CollectiveAlgorithm::Auto)
    s.algorithm = cheapest_algorithm(s, work.bytes, levels);
  else
    s.algorithm = usable_algorithm(work.kind, chosen, n, s.per_node);
  return s;
}

CollectiveSetup ClusterCostModel::setup(const Collective& work, std::span<const RankId> ranks) const {
  const TwoLevels t = levels(ranks, slowdown_of(work, ranks, Sharing::Together));
  const CollectiveShape s = shape(work, ranks, t);
  const CommunicationParameters p = communication(groups_of(ranks));
  CollectiveSetup setup{s.algorithm, s.per_node,     p.overhead * scales_[Knob::LaunchOverhead],
                        p.sm_share,  p.memory_share, {}};
  if (const auto fabric = measured(work, ranks, t, slowdown_of(work, ranks, Sharing::Alone)))
    setup.start = fabric->latency, setup.flowing = fabric->flowing;
  return setup;
}

/// Inside of a node, over its links against those that were measured. Engines with an all-reduce of their own take it
/// where it is faster than NCCL's: its curves are those of TensorRT-LLM.
ExchangeTime ClusterCostModel::inside_time(const ExchangeCase& c, std::size_t group, const Slowdown& slower) const {
  const FabricModel& fabric = *fabrics_[group].inside;
  const double links = cluster_.group(group).device_link->bandwidth / fabric.parameters().link;
  const LinkRatio ratio{links * scales_[Knob::LinkBandwidth] / slower.inside, scales_[Knob::LinkLatency]};
  const ExchangeTime time = fabric.time(c, ratio);
  ExchangeCase own = c;
  own.software = kOwnAllReduce;
  if (!scales_.kernels().own_all_reduce || c.op != Exchange::AllReduce || !fabric.knows(own)) return time;
  const ExchangeTime faster = fabric.time(own, ratio);
  return faster.total() < time.total() ? faster : time;
}

/// Between nodes. A node's cards together count, as far as ranks of the node may use them.
ExchangeTime ClusterCostModel::between_time(const ExchangeCase& c, std::size_t group, const Slowdown& slower) const {
  const FabricModel& fabric = *fabrics_[group].between;
  const NodeGroup& node = cluster_.group(group);
  const double cards = node.nic->per == NicPlacement::PerDevice ? double(c.ranks / c.nodes) : 1.0;
  const double links = node.nic->bandwidth * cards / fabric.parameters().link;
  const BytesPerSecond inside =
      fabrics_[group].inside ? fabrics_[group].inside->parameters().bus : hop_inside({group}).bandwidth;
  return fabric.time(c, {links * scales_[Knob::NicBandwidth] / slower.between, scales_[Knob::NicLatency]},
                     inside / slower.inside);
}

/// From the measured curves and NCCL's model, where the links of all ranks name a fabric, nodes hold equally many ranks
/// and no algorithm was chosen.
std::optional<ExchangeTime> ClusterCostModel::measured(const Collective& work, std::span<const RankId> ranks,
                                                       const TwoLevels& t, const Slowdown& slower) const {
  const std::optional<Exchange> op = exchange_of(work.kind);
  const Groups groups = groups_of(ranks);
  if (!op || cluster_.algorithms.of(work.kind) || groups.size() > 1 || work.kind == CollectiveKind::Shift) return {};
  const auto n = static_cast<std::int64_t>(ranks.size());
  const ExchangeCase c{*op, work.bytes, n, t.nodes};
  const Fabrics& fabrics = fabrics_[groups.front()];
  if (t.nodes == 1 ? !fabrics.inside : t.per_node * t.nodes != n || !fabrics.between) return {};
  return t.nodes == 1 ? inside_time(c, groups.front(), slower) : between_time(c, groups.front(), slower);
}

OpCost ClusterCostModel::uncertain(const ExchangeTime& time, const Groups& groups) const {
  OpCost c = uncertain(time.total(), groups);
  c.deviation = static_cast<float>(time.deviation);
  if (time.is_measured) c.bias = 0;
  return c;
}

/// Time of a collective: measured curves where the links have them, else the closed forms of collective.hpp over the
/// cluster's links, or of the chosen algorithm, plus a start on the device; between threads of one computer the
/// device's own laws. Leaves out other traffic on the links, which the engine adds.
OpCost ClusterCostModel::collective(const Collective& work, std::span<const RankId> ranks) const {
  if (ranks.size() <= 1) return {};
  const Slowdown slower = slowdown_of(work, ranks, Sharing::Together);
  const TwoLevels t = levels(ranks, slower);
  if (t.nodes == 1 && !cluster_.group_of(ranks.front()).device_link)
    if (auto c = device(ranks.front()).collective(work, static_cast<std::int64_t>(ranks.size()), scales_)) return *c;
  if (work.kind == CollectiveKind::Shift) return shift(work, ranks, slower);
  const Groups groups = groups_of(ranks);
  const CommunicationParameters p = communication(groups);
  const std::optional<ExchangeTime> fabric = measured(work, ranks, t, slower);
  const Seconds time = cluster_.algorithms.of(work.kind) ? algorithm_time(shape(work, ranks, t), work.bytes, t)
                                                         : two_level_collective(work.kind, work.bytes, t);
  OpCost c = fabric ? uncertain(*fabric, groups) : uncertain(p.overhead * scales_[Knob::LaunchOverhead] + time, groups);
  demand_device(c, p);
  if (work.bytes > Bytes{0}) {
    if (t.per_node > 1) c.demand(Resource::Link, 1 / slower.inside);
    if (t.nodes > 1) c.demand(Resource::Nic, nic_share(groups, t.per_node, slower.between));
  }
  return c;
}

/// Time of a shift: start + the slower of a message inside of a node and one between nodes, where the messages that
/// leave a node share its card. Round by no places it stays where it is. Parameters: the cluster's links and cards.
OpCost ClusterCostModel::shift(const Collective& work, std::span<const RankId> ranks, const Slowdown& links) const {
  const std::size_t places = places_of_shift(work.root, ranks.size());
  if (places == 0) return {};
  const ShiftSpread spread = shift_spread(cluster_, ranks, places);
  const Groups groups = groups_of(ranks);
  Seconds slower;
  if (spread.some_stay) slower = orrery::shift(work.bytes, 2, slowed(hop_inside(groups), links.inside));
  if (spread.leaving > 0)
    slower = std::max(slower, orrery::shift(work.bytes, 2, slowed(hop_between(groups, spread.leaving), links.between)));
  const CommunicationParameters p = communication(groups);
  OpCost c = uncertain(p.overhead * scales_[Knob::LaunchOverhead] + slower, groups);
  demand_device(c, p);
  if (spread.some_stay) c.demand(Resource::Link, 1 / links.inside);
  if (spread.leaving > 0)
    c.demand(Resource::Nic, nic_share(groups, spread_of(cluster_, ranks).per_node, links.between));
  return c;
}

}  // namespace orrery
