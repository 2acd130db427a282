// SPDX-License-Identifier: Apache-2.0
// Messages as flows of SimGrid: against the engine's own shares, and against each other on one card.
#include <catch2/catch.hpp>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"
#include "sim/engine/flow_network.hpp"
#include "sim/machine/resources.hpp"
#include "tests/engine_plans.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

Cluster cluster_of(std::int64_t nodes, std::int64_t per_node, NicPlacement cards = NicPlacement::PerDevice) {
  Cluster c;
  c.nodes = nodes, c.devices_per_node = per_node, c.device = "h100_sxm", c.name = "test";
  c.device_link = Link{"inside", 100.0_GBps, 2.0_us};
  c.host_link = Link{"host", 63.0_GBps, 2.0_us};
  c.nic = Nic{"card", cards, 10.0_GBps, 5.0_us};
  return c;
}

struct Machine {
  explicit Machine(const Cluster& c)
      : cluster{c}, cost{c, find_device("h100_sxm", {parameters_folder()})}, resources{c} {}
  EngineOptions options(bool flows) const {
    EngineOptions o{.expansion = Expansion::Expanded, .collectives = Collectives::Detailed};
    if (flows) o.network = make_flow_network(resources, cluster.num_ranks());
    return o;
  }
  Timeline run(const Plan& plan, bool flows) const { return simulate(plan, {}, cost, resources, options(flows)); }
  Cluster cluster;
  ClusterCostModel cost;
  ClusterResources resources;
};

Plan one_collective(const Cluster& c, CollectiveKind kind, Bytes bytes) {
  RawPlan p{{{"r", c.num_ranks()}}};
  const GroupId all = p.group("all", {0});
  p.begin_class({{0, c.num_ranks()}});
  p.add("all", Collective{.kind = kind, .group = all, .root = 1, .bytes = bytes}, Stream::Comm);
  return p.plan;
}

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
    const Plan plan = one_collective(m.cluster, kind, 30.0_MB);
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
  const Plan plan = one_collective(m.cluster, CollectiveKind::AllToAll, 48.0_MB);
  CHECK(static_cast<double>(m.run(plan, true).makespan_ps) ==
        Approx(static_cast<double>(m.run(plan, false).makespan_ps)).epsilon(1e-3));
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
  const Plan plan = one_collective(m.cluster, CollectiveKind::AllReduce, 8.0_MB);
  Engine engine{m.cost, m.resources, m.options(true)};
  const ExecutionTotals first = engine.execute(plan, {}), second = engine.execute(plan, {});
  CHECK(second.start_ps == first.end_ps);
  CHECK(std::abs((second.end_ps - second.start_ps) - (first.end_ps - first.start_ps)) <= 100);
}

TEST_CASE("what the flow network cannot do is refused", "[engine][flow]") {
  const Machine m{cluster_of(2, 2)};
  EngineOptions options = m.options(true);
  CHECK_THROWS_WITH(make_flow_network(m.resources, 4), Catch::Contains("one flow network per process"));
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
