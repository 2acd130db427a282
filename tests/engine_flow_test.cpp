// SPDX-License-Identifier: Apache-2.0
// Messages as flows of SimGrid: against the engine's own shares, and against each other on one card.
#include <catch2/catch.hpp>

#include <map>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/machine/resources.hpp"
#include "tests/engine_plans.hpp"
#include "tests/test_clusters.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;
using orrery::testing::cluster_of;

namespace {

struct Machine {
  explicit Machine(const Cluster& c)
      : cluster{c}, cost{c, find_device("h100_sxm", {parameters_folder()})}, resources{c} {}
  EngineOptions options(bool flows) const {
    EngineOptions o{.expansion = Expansion::Expanded, .collectives = Collectives::Detailed};
    if (flows) o.network = make_flow_network(Topology{cost.reached()});
    return o;
  }
  Timeline run(const Plan& plan, bool flows) const { return simulate(plan, {}, cost, resources, options(flows)); }
  Cluster cluster;
  ClusterCostModel cost;
  ClusterResources resources;
};

/// Ranks `senders` each send to the rank that is as many above.
Plan sends(std::int64_t ranks, std::int64_t senders, Bytes bytes) {
  RawPlan p{{{"r", ranks}}};
  const auto offset = static_cast<std::int32_t>(senders);
  p.begin_class({{0, senders}});
  p.add("out", Send{.peer = {0, offset}, .bytes = bytes}, Stream::Comm);
  p.begin_class({{senders, ranks}});
  p.add("in", Recv{.peer = {0, -offset}, .bytes = bytes}, Stream::Comm);
  return p.plan;
}

}  // namespace

TEST_CASE("flows that share nothing take as long as the engine's own messages", "[engine][flow]") {
  const auto [nodes, per_node] = GENERATE(table<std::int64_t, std::int64_t>({{1, 8}, {4, 1}, {3, 4}}));
  const Machine m{cluster_of(nodes, per_node)};
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllToAll, CollectiveKind::Broadcast}) {
    CAPTURE(nodes, per_node, name_of(kind));
    const Plan plan = one_collective(m.cluster.num_ranks(), kind, 30.0_MB);
    const Timeline flow = m.run(plan, true), own = m.run(plan, false);
    CHECK(std::abs(flow.makespan_ps - own.makespan_ps) <= 1000);
    CHECK(flow.spans.size() == own.spans.size());
  }
}

TEST_CASE("flows share a node's card evenly", "[engine][flow][sharing]") {
  // Both ranks of a node send 10 MB to the other node: 10 GB/s of the card each when alone, half of it together.
  const auto seconds = [](std::int64_t senders, NicPlacement cards) {
    const Machine m{cluster_of(2, senders, cards)};
    return static_cast<double>(m.run(sends(2 * senders, senders, 10.0_MB), true).makespan_ps) * 1e-12;
  };
  const Machine m{cluster_of(2, 1)};
  const double bytes = 10.0_MB / m.cost.way(RankId{0}, RankId{1}).bandwidth / Seconds{1};
  const double alone = seconds(1, NicPlacement::PerDevice);
  CHECK(seconds(2, NicPlacement::PerDevice) == Approx(alone).epsilon(1e-9));
  CHECK(seconds(2, NicPlacement::PerNode) == Approx(alone + bytes).epsilon(1e-9));
  CHECK(seconds(3, NicPlacement::PerNode) == Approx(alone + 2 * bytes).epsilon(1e-9));
}

TEST_CASE("flows of contending collectives agree with the engine's own shares", "[engine][flow][sharing]") {
  const Machine m{cluster_of(3, 4, NicPlacement::PerNode)};
  const Plan plan = one_collective(m.cluster.num_ranks(), CollectiveKind::AllToAll, 48.0_MB);
  CHECK(static_cast<double>(m.run(plan, true).makespan_ps) ==
        Approx(static_cast<double>(m.run(plan, false).makespan_ps)).epsilon(1e-3));
}

TEST_CASE("closed forms foretell what flows of groups take from each other", "[engine][flow][contention]") {
  // 8 nodes of 8 devices; all ranks, or 8 groups of one rank of each node, at once.
  const auto [shape, least] = GENERATE(
      table<const char*, double>({{"{}", 1.0},
                                  {"{shape: fat_tree, nodes_per_leaf: 2, oversubscription: 8, routing: adaptive}", 2.0},
                                  {"{shape: torus, dims: [4, 2]}", 3.0},
                                  {"{shape: dragonfly, routers_per_group: 2, nodes_per_router: 2}", 3.0}}));
  Cluster c = cluster_of(8, 8);
  c.device_link->fabric = "nvlink_4", c.nic->fabric = "infiniband_ndr";
  c.device_link->bandwidth = 450.0_GBps, c.nic->bandwidth = 50.0_GBps;
  const Machine wide{c};
  const std::string text = shape;
  std::vector<Diagnostic> problems;
  read_options(parse_yaml(text, "network"), c.network, problems);
  REQUIRE(problems.empty());
  const Machine m{c};
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll})
    for (const bool are_groups : {false, true}) {
      CAPTURE(text, name_of(kind), are_groups);
      RawPlan p{{{"a", 8}, {"b", 8}}};
      const GroupId group = are_groups ? p.group("a", {0}) : p.group("all", {0, 1});
      p.begin_class({{0, 8}, {0, 8}});
      p.add("it", Collective{.kind = kind, .group = group, .bytes = 400.0_MB}, Stream::Comm);
      const auto closed = [&](const Machine& on) {
        return double(simulate(p.plan, {}, on.cost, on.resources, {}).makespan_ps);
      };
      CHECK(closed(m) >= least * closed(wide) * 0.9);
      CHECK(closed(m) == Approx(double(m.run(p.plan, true).makespan_ps)).epsilon(0.02));
    }
  // From each rank of one stage to that of the next, 4 nodes further.
  const Plan next = sends(64, 32, 40.0_MB);
  CHECK(double(simulate(next, {}, m.cost, m.resources, {}).makespan_ps) ==
        Approx(double(m.run(next, true).makespan_ps)).epsilon(0.02));
}

TEST_CASE("ops beside flows keep their own time", "[engine][flow]") {
  // Products that want the SMs which the all-reduce holds are timed again when it begins and when it ends.
  const Machine m{cluster_of(2, 4)};
  RawPlan p{{{"r", 8}}};
  const GroupId all = p.group("all", {0});
  p.begin_class({{0, 8}});
  for (int i = 0; i < 6; ++i) p.add("product", Gemm{.m = 4096, .n = 4096, .k = 4096 + 512 * i});
  p.add("sum", Collective{.kind = CollectiveKind::AllReduce, .group = all, .bytes = 8.0_MB}, Stream::Comm);
  p.add("last", Gemm{.m = 64, .n = 64, .k = 64});
  const Timeline flow = m.run(p.plan, true), own = m.run(p.plan, false);
  REQUIRE(flow.spans.size() == own.spans.size());
  for (std::size_t i = 0; i < own.spans.size(); ++i)
    CHECK(std::abs(flow.spans[i].end_ps - own.spans[i].end_ps) <= 1000);
}

TEST_CASE("executions over flows follow each other on one clock", "[engine][flow]") {
  const Machine m{cluster_of(2, 2)};
  const Plan plan = one_collective(m.cluster.num_ranks(), CollectiveKind::AllReduce, 8.0_MB);
  Engine engine{m.cost, m.resources, m.options(true)};
  const ExecutionTotals first = engine.execute(plan, {}), second = engine.execute(plan, {});
  CHECK(second.start_ps == first.end_ps);
  CHECK(std::abs((second.end_ps - second.start_ps) - (first.end_ps - first.start_ps)) <= 100);
}

TEST_CASE("what the flow network cannot do is refused", "[engine][flow]") {
  const Machine m{cluster_of(2, 2)};
  EngineOptions options = m.options(true);
  CHECK_THROWS_WITH(make_flow_network(Topology{m.cluster}), Catch::Contains("one flow network per process"));
  options.expansion = Expansion::Folded;
  CHECK_THROWS_WITH((Engine{m.cost, m.resources, options}), Catch::Contains("folded"));
  options.expansion = Expansion::Expanded, options.collectives = Collectives::ClosedForm;
  CHECK_THROWS_WITH((Engine{m.cost, m.resources, options}), Catch::Contains("closed form"));
}

TEST_CASE("over flows, ops that wait for each other for ever are told as usual", "[engine][flow]") {
  const Machine m{cluster_of(2, 1)};
  RawPlan p{{{"r", 2}}};
  p.begin_class({{0, 1}});
  p.add("out", Send{.peer = {0, 1}, .bytes = 1.0_MB}, Stream::Comm);
  p.begin_class({{1, 2}});
  CHECK_THROWS_WITH(m.run(p.plan, true), Catch::Contains("wait for each other for ever"));
}

namespace {

/// Nodes whose collectives are measured.
Cluster measured_cluster(std::int64_t nodes, std::int64_t per_node) {
  Cluster c = cluster_of(nodes, per_node);
  c.device_link = Link{"NVLink 4", 450.0_GBps, 2.0_us, "nvlink_4"};
  return c;
}

}  // namespace

TEST_CASE("a measured collective flows as long as its closed form says", "[engine][flow]") {
  const Machine m{measured_cluster(1, 8)};
  for (const CollectiveKind kind : {CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::AllToAll})
    for (const Bytes bytes : {2.0_KB, 1.0_MB, 256.0_MB}) {
      CAPTURE(name_of(kind), bytes.base());
      const Plan plan = one_collective(m.cluster.num_ranks(), kind, bytes);
      const double flow = static_cast<double>(m.run(plan, true).makespan_ps);
      std::vector<RankId> ranks;
      for (std::size_t r = 0; r < 8; ++r) ranks.push_back(RankId{r});
      const OpCost cost = m.cost.collective({.kind = kind, .root = 1, .bytes = bytes}, ranks);
      const double launch =
          static_cast<double>(m.run(one_collective(m.cluster.num_ranks(), kind, Bytes{0}), true).makespan_ps) -
          m.cost.collective({.kind = kind, .root = 1}, ranks).duration.base() * 1e12;
      CHECK(flow - launch == Approx(cost.duration.base() * 1e12).epsilon(1e-3).margin(1000));
    }
}

TEST_CASE("flows over one link up of a leaf share it", "[engine][flow][sharing]") {
  // 2 leaves of 4 nodes with one card each; oversubscribed 4 to 1, so there is one link up of 10 GB/s. Rank i sends to
  // rank i + 4. All 4 together get a quarter each; without oversubscription (adaptive) all get their cards' rate.
  const auto seconds = [](double oversubscription) {
    Cluster c = cluster_of(8, 1);
    c.network.shape = NetworkShape::FatTree;
    c.network.routing = Routing::Adaptive;
    c.network.nodes_per_leaf = 4, c.network.oversubscription = oversubscription;
    const Machine m{c};
    return static_cast<double>(m.run(sends(8, 4, 10.0_MB), true).makespan_ps) * 1e-12;
  };
  const Machine m{cluster_of(2, 1)};
  const double bytes = 10.0_MB / m.cost.way(RankId{0}, RankId{1}).bandwidth / Seconds{1};
  CHECK(seconds(4) == Approx(seconds(1) + 3 * bytes).epsilon(1e-6));
  CHECK(seconds(2) == Approx(seconds(1) + bytes).epsilon(1e-6));
}

TEST_CASE("a slow link and traffic of others leave as much as they say", "[engine][flow][sharing]") {
  const auto seconds = [](const NetworkSpec& network) {
    Cluster c = cluster_of(2, 1);
    c.network = network;
    const Machine m{c};
    return static_cast<double>(m.run(sends(2, 1, 10.0_MB), true).makespan_ps) * 1e-12;
  };
  const Machine m{cluster_of(2, 1)};
  const double bytes = 10.0_MB / m.cost.way(RankId{0}, RankId{1}).bandwidth / Seconds{1};
  const double alone = seconds({});
  CHECK(seconds({.faults = {{"node 0 card 0 out", 0.5}}}) == Approx(alone + bytes).epsilon(1e-6));
  // Of 10 GB/s · efficiency, 2 GB/s · efficiency-free traffic goes first: what is left is the rate.
  const double rate = m.cost.way(RankId{0}, RankId{1}).bandwidth.base();
  CHECK(seconds({.background = {{0, 1, BytesPerSecond{0.2 * rate}}}}) == Approx(alone + bytes * 0.25).epsilon(1e-6));
}

TEST_CASE("the larger of two shares goes to who is not held back elsewhere", "[engine][flow][sharing]") {
  // Max-min: ranks 0 and 1 of a node share its card (10) to ranks 2 and 3, which are two nodes of their own. Rank 2's
  // card is slowed to a fifth. Rank 0 gets 2 of 10, rank 1 the other 8: it ends after 10 MB / 8, not 10 MB / 5.
  Cluster c = cluster_of(1, 2, NicPlacement::PerNode);
  NodeGroup single = c;
  single.nodes = 2, single.devices_per_node = 1;
  c.more_nodes = {single};
  c.network.faults = {{"node 1 card 0 in", 0.2}};
  std::vector<std::unique_ptr<DeviceModel>> devices;
  for (int i = 0; i < 2; ++i) devices.push_back(find_device("h100_sxm", {parameters_folder()}));
  const ClusterCostModel cost{c, std::move(devices)};
  const ClusterResources resources{c};
  EngineOptions o{.expansion = Expansion::Expanded, .collectives = Collectives::Detailed};
  o.network = make_flow_network(Topology{cost.reached()});
  const Timeline t = simulate(sends(4, 2, 10.0_MB), {}, cost, resources, std::move(o));
  const double card = cost.reached().nic->bandwidth.base();
  std::map<std::uint32_t, double> length;
  for (const Span& s : t.spans) length[s.rank.value] = static_cast<double>(s.end_ps - s.start_ps) * 1e-12;
  CHECK(length[0] - length[1] == Approx(10e6 / (0.2 * card) - 10e6 / (0.8 * card)).epsilon(1e-4));
}
