// SPDX-License-Identifier: Apache-2.0
// Collectives taken step by step: against the closed forms, against themselves folded, and against each other on one
// card.
#include <catch2/catch.hpp>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/collective_forms.hpp"
#include "hw_models/parameters.hpp"
#include "sim/machine/resources.hpp"
#include "tests/engine_plans.hpp"
#include "tests/test_clusters.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;
using orrery::testing::cluster_of;

namespace {

struct Machine {
  Machine(const Cluster& c, std::optional<CollectiveAlgorithm> algorithm)
      : cluster{with(c, algorithm)}, cost{cluster, find_device("h100_sxm", {parameters_folder()})}, resources{c} {}
  static Cluster with(Cluster c, std::optional<CollectiveAlgorithm> algorithm) {
    if (algorithm) c.algorithms = CollectiveChoice::all(*algorithm);
    return c;
  }
  /// How long the first op runs; its launch left out.
  std::int64_t time(const Plan& plan, Expansion expansion, Collectives collectives = Collectives::Detailed) const {
    const Span s = run(plan, expansion, collectives).spans.front();
    return s.end_ps - s.start_ps;
  }
  Timeline run(const Plan& plan, Expansion expansion, Collectives collectives = Collectives::Detailed) const {
    return simulate(plan, {}, cost, resources, {.expansion = expansion, .collectives = collectives});
  }
  Cluster cluster;
  ClusterCostModel cost;
  ClusterResources resources;
};

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter, CollectiveKind::AllToAll,
    CollectiveKind::Broadcast, CollectiveKind::Reduce,    CollectiveKind::Shift,         CollectiveKind::Barrier};
constexpr CollectiveAlgorithm kAlgorithms[] = {CollectiveAlgorithm::Ring,        CollectiveAlgorithm::Tree,
                                               CollectiveAlgorithm::DoubleTree,  CollectiveAlgorithm::Halving,
                                               CollectiveAlgorithm::Direct,      CollectiveAlgorithm::Bruck,
                                               CollectiveAlgorithm::Hierarchical};

bool is_tree(CollectiveAlgorithm a) { return a == CollectiveAlgorithm::Tree || a == CollectiveAlgorithm::DoubleTree; }

}  // namespace

TEST_CASE("on equal hops, steps take as long as their closed form", "[engine][collective]") {
  // Exact but for a picosecond of rounding per step; the forms of the all-reduce trees leave out
  // that a rank of two trees waits for its turn on its links.
  const std::int64_t n = GENERATE(2, 5, 8, 16);
  for (const CollectiveKind kind : kKinds)
    for (const CollectiveAlgorithm algorithm : kAlgorithms) {
      if (!has_algorithm(kind, algorithm) || algorithm == CollectiveAlgorithm::Hierarchical) continue;
      CAPTURE(n, name_of(kind), name_of(algorithm));
      const Machine m{cluster_of(1, n), algorithm};
      const Plan plan = one_collective(m.cluster.num_ranks(), kind, 30.0_MB);
      const auto steps = m.time(plan, Expansion::Expanded),
                 form = m.time(plan, Expansion::Expanded, Collectives::ClosedForm);
      if (kind == CollectiveKind::AllReduce && is_tree(algorithm))
        CHECK(static_cast<double>(steps) == Approx(static_cast<double>(form)).epsilon(0.4));
      else
        CHECK(std::abs(steps - form) <= 200);
    }
}

TEST_CASE("between nodes, steps take as long as the hierarchical closed form", "[engine][collective]") {
  // Inside 3 + 3 steps of a quarter, between 2·(N − 1) steps of a 4N-th on the device's own card or a quarter of the
  // node's.
  const NicPlacement cards = GENERATE(NicPlacement::PerDevice, NicPlacement::PerNode);
  const Machine m{cluster_of(3, 4, cards), CollectiveAlgorithm::Hierarchical};
  const Plan plan = one_collective(m.cluster.num_ranks(), CollectiveKind::AllReduce, 48.0_MB);
  const auto steps = m.time(plan, Expansion::Expanded),
             form = m.time(plan, Expansion::Expanded, Collectives::ClosedForm);
  CHECK(std::abs(steps - form) <= 200);
}

TEST_CASE("a ring over nodes is as slow as its slowest hop", "[engine][collective]") {
  // 2·(8 − 1) steps of 10 MB: between the nodes 5 us + 10 MB / 10 GB/s each, for the one rank of a node that sends out.
  const Machine m{cluster_of(2, 4, NicPlacement::PerNode), CollectiveAlgorithm::Ring};
  const Plan plan = one_collective(m.cluster.num_ranks(), CollectiveKind::AllReduce, 80.0_MB);
  const CommunicationParameters& p = m.cost.device().communication();
  const double expected = p.overhead.base() + 14 * (5e-6 + 1e-3 / p.efficiency);
  CHECK(m.time(plan, Expansion::Expanded) == Approx(expected * 1e12).epsilon(1e-9));
}

TEST_CASE("steps of folded ranks take as long as those of all ranks", "[engine][collective][fold]") {
  const auto [nodes, per_node] = GENERATE(table<std::int64_t, std::int64_t>({{1, 8}, {4, 1}, {3, 4}, {4, 4}}));
  const NicPlacement cards = GENERATE(NicPlacement::PerDevice, NicPlacement::PerNode);
  for (const CollectiveKind kind : kKinds)
    for (const CollectiveAlgorithm algorithm : kAlgorithms) {
      if (!has_algorithm(kind, algorithm)) continue;
      CAPTURE(nodes, per_node, name_of(kind), name_of(algorithm));
      const Machine m{cluster_of(nodes, per_node, cards), algorithm};
      const Plan plan = one_collective(m.cluster.num_ranks(), kind, 30.0_MB);
      CHECK(m.time(plan, Expansion::Folded) == m.time(plan, Expansion::Expanded));
    }
}

TEST_CASE("communicators that share a card slow each other's steps, folded as expanded", "[engine][collective][fold]") {
  // Four data-parallel rings, one per device of a node, over the card of each node: each gets a quarter.
  RawPlan p{{{"dp", 4}, {"tp", 4}}};
  const GroupId dp = p.group("dp", {0});
  p.begin_class({{0, 4}, {0, 4}});
  p.add("dp", Collective{.kind = CollectiveKind::AllReduce, .group = dp, .bytes = 40.0_MB}, Stream::Comm);
  const Machine m{cluster_of(4, 4, NicPlacement::PerNode), CollectiveAlgorithm::Ring};
  const auto folded = m.time(p.plan, Expansion::Folded), expanded = m.time(p.plan, Expansion::Expanded);
  const CommunicationParameters& c = m.cost.device().communication();
  // 6 steps of 5 us + 10 MB at a quarter of 10 GB/s.
  CHECK(expanded == Approx((c.overhead.base() + 6 * (5e-6 + 4e-3 / c.efficiency)) * 1e12).epsilon(1e-6));
  CHECK(std::abs(folded - expanded) <= 100);
}

TEST_CASE("collectives follow one another and overlap step by step, folded as expanded", "[engine][collective][fold]") {
  // Inside the node on one stream, between the nodes on another; then again.
  RawPlan p{{{"dp", 4}, {"tp", 4}}};
  const GroupId dp = p.group("dp", {0}), tp = p.group("tp", {1});
  p.begin_class({{0, 4}, {0, 4}});
  const Work inside = Collective{.kind = CollectiveKind::AllGather, .group = tp, .bytes = 40.0_MB};
  const Work between = Collective{.kind = CollectiveKind::ReduceScatter, .group = dp, .bytes = 4.0_MB};
  for (int i = 0; i < 3; ++i) {
    p.add("tp", inside, Stream::Compute);
    p.add("dp", between, Stream::Comm);
  }
  const Machine m{cluster_of(4, 4), CollectiveAlgorithm::Ring};
  const Timeline folded = m.run(p.plan, Expansion::Folded), expanded = m.run(p.plan, Expansion::Expanded);
  for (std::size_t op = 0; op < 6; ++op) CHECK(span_of(folded, OpId{op}).end_ps == span_of(expanded, OpId{op}).end_ps);
}

TEST_CASE("folding is refused where something else uses the links of a stepped collective",
          "[engine][collective][error]") {
  RawPlan p{{{"dp", 4}}};
  const GroupId dp = p.group("dp", {0});
  p.begin_class({{0, 4}});
  const Work work = Collective{.kind = CollectiveKind::AllReduce, .group = dp, .bytes = 40.0_MB};
  p.add("a", work, Stream::Comm);
  p.add("send", Send{.peer = {0, 1}, .bytes = 1.0_MB}, Stream::CopyOut);
  p.add("recv", Recv{.peer = {0, -1}, .bytes = 1.0_MB}, Stream::CopyIn);
  const Machine m{cluster_of(1, 4), CollectiveAlgorithm::Ring};
  m.run(p.plan, Expansion::Expanded);
  CHECK(user_error([&] { m.run(p.plan, Expansion::Folded); }) ==
        "links that a collective uses step by step are wanted by something else at the same time, and one rank stands "
        "for many: folding is refused\n  hint: simulate all ranks with `engine: {ranks: expanded}`, or use "
        "`collectives: closed_form`");
}

TEST_CASE("the cheapest algorithm is a tree for short messages and a ring for long ones", "[hw_models][collective]") {
  const TwoLevels one{64, 1, {2.0_us, 100.0_GBps}, {}, {}};
  CollectiveShape s{.kind = CollectiveKind::AllReduce, .members = 64, .pieces = 1};
  // 1 KB: halving 2·6·2 us = 24 us (+ 0.02), ring 126·2 us. 1 GB over 4 ranks: all that move 1.5 GB; the ring is first.
  CHECK(cheapest_algorithm(s, 1.0_KB, one) == CollectiveAlgorithm::Halving);
  s.members = 3;
  CHECK(algorithm_time({.algorithm = CollectiveAlgorithm::Ring, .members = 3}, 3.0_MB, one.inside) ==
        ring_all_reduce(3.0_MB, 3, one.inside));
  // Bruck: log₂ 64 = 6 latencies instead of 63, and half of the message six times instead of 63/64 of it once.
  CollectiveShape a{.kind = CollectiveKind::AllToAll, .members = 64};
  CHECK(cheapest_algorithm(a, 1.0_KB, one) == CollectiveAlgorithm::Bruck);
  CHECK(cheapest_algorithm(a, 1.0_GB, one) == CollectiveAlgorithm::Direct);
}
