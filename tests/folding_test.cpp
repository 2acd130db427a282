// SPDX-License-Identifier: Apache-2.0
// One rank simulated for all that are alike tells what all ranks of the mesh would: every op at the same picosecond,
// and the same peaks of memory.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "hw_models/cluster_cost_model.hpp"
#include "hw_models/parameters.hpp"
#include "sim/machine/rank_order.hpp"
#include "sim/machine/resources.hpp"
#include "sim/strategy/train_step.hpp"
#include "tests/folding_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Nodes of eight H100, or of as many as it says.
struct Machine {
  explicit Machine(std::int64_t ranks, std::int64_t per_node = 8, NicPlacement cards = NicPlacement::PerDevice,
                   const std::string& order = {}, const Mesh& mesh = {})
      : cluster{resized(ranks, per_node, cards)},
        cost{placed(cluster, mesh, order), find_device("h100_sxm", {parameters_folder()})},
        resources{cluster} {}

  static Cluster& placed(Cluster& cluster, const Mesh& mesh, const std::string& order) {
    if (!order.empty()) place_ranks(cluster, mesh, parse_mesh(order));
    return cluster;
  }
  static Cluster resized(std::int64_t ranks, std::int64_t per_node, NicPlacement cards) {
    Cluster c = load_cluster(std::string{ORRERY_SOURCE_DIR} + "/scenarios/clusters/dgx_h100_x4.yaml");
    c.nodes = (ranks + per_node - 1) / per_node, c.devices_per_node = per_node;
    c.nic->per = cards;
    return c;
  }

  Cluster cluster;
  ClusterCostModel cost;
  ClusterResources resources;
};

/// Clusters have equal devices; here one of them is slower.
class Straggler final : public CostModel {
 public:
  Straggler(const CostModel& base, RankId slow) : base_{base}, slow_{slow} {}

  OpCost cost(const Work& work, const Bindings& bindings, RankId rank) const override {
    OpCost c = base_.cost(work, bindings, rank);
    if (rank == slow_) c.duration = c.duration * 1.5;
    return c;
  }
  OpCost collective(const Collective& work, std::span<const RankId> ranks) const override {
    return base_.collective(work, ranks);
  }
  OpCost transfer(Bytes bytes, RankId from, RankId to) const override { return base_.transfer(bytes, from, to); }
  LaunchCost launch(const Work& work, RankId rank) const override { return base_.launch(work, rank); }
  std::uint32_t device_kind(RankId rank) const override { return rank == slow_ ? 1 : 0; }
  std::string extrapolation(const Work&, const Bindings&, RankId) const override { return {}; }

 private:
  const CostModel& base_;
  RankId slow_;
};

/// The ranks of classes at `at` on an axis, and those before and behind them, as classes of their own: up to three of
/// each class that is in `which`.
Plan split(const Plan& plan, const std::set<std::size_t>& which, std::size_t axis, std::int64_t at) {
  Plan out = plan;
  out.classes.clear();
  out.workspaces.clear();
  out.ops.clear();
  out.deps.clear();
  out.repetitions.clear();
  const auto copy = [&](std::size_t c, CoordRange range, const std::string& name) {
    if (range.first == range.last) return;
    const RankClass& from = plan.classes[c];
    RankClass to = from;
    to.name = name;
    to.ranges[axis] = range;
    to.first_op = static_cast<std::uint32_t>(out.ops.size());
    const std::int64_t shift = std::int64_t{to.first_op} - std::int64_t{from.first_op};
    for (Op op : plan.ops_of(from)) {
      const auto first = static_cast<std::uint32_t>(out.deps.size());
      for (const OpId d : plan.deps_of(op))
        out.deps.push_back(OpId{static_cast<std::size_t>(std::int64_t{d.value} + shift)});
      op.first_dep = first;
      out.ops.push_back(op);
    }
    out.classes.push_back(to);
    out.workspaces.push_back(plan.workspaces[c]);
  };
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    const CoordRange range = plan.classes[c].ranges[axis];
    if (!which.contains(c)) {
      copy(c, range, plan.classes[c].name);
      continue;
    }
    copy(c, {range.first, at}, plan.classes[c].name + ", before");
    copy(c, {at, at + 1}, plan.classes[c].name + ", slow");
    copy(c, {at + 1, range.last}, plan.classes[c].name + ", behind");
  }
  return out;
}

constexpr LoweredCase kCases[] = {
    {"{mesh: dp8}", 8, 2},
    {"{mesh: dp256}", 256, 1},
    {"{mesh: dp32, data: {kind: zero1}}", 32, 2},
    {"{mesh: dp32, data: {kind: zero1, owners: true}}", 32, 2},
    {"{mesh: dp64, data: {kind: zero2, bucket: 0}}", 64, 2},
    {"{mesh: dp128, data: {kind: zero3, bucket: 0}}", 128, 1, Recompute::Full},
    {"{mesh: dp8 fsdp8, data: {kind: zero3}}", 64, 2},
    {"{mesh: dp8 fsdp4, data: {kind: zero3, owners: true}}", 32, 2},
    {"{mesh: fsdp8 dp8, data: {kind: zero2}}", 64, 1},
    {"{mesh: tp8}", 1, 2},
    {"{mesh: tp8, sequence_parallel: true}", 1, 2, Recompute::Full},
    {"{mesh: dp16 tp8}", 16, 1},
    {"{mesh: dp32 tp8, sequence_parallel: true, data: {kind: zero1}}", 32, 1},
    {"{mesh: tp8 dp8, data: {kind: zero3}}", 8, 1},
    {"{mesh: pp8}", 1, 8},
    {"{mesh: pp8 dp8, schedule: gpipe}", 8, 8},
    {"{mesh: pp4 dp8, schedule: interleaved, chunks: 2}", 8, 4},
    {"{mesh: pp4 tp8, schedule: zb-h1}", 1, 6},
    {"{mesh: pp4 dp8, schedule: zb-v, data: {kind: zero1}}", 8, 8},
    {"{mesh: pp4 dp8, schedule: chimera}", 8, 4},
    {"{mesh: pp4 tp8, schedule: dualpipe}", 1, 8},
    {"{mesh: dp4 pp4 tp8, sequence_parallel: true, data: {kind: zero1}}", 4, 6},
    {"{mesh: dp8 pp4 tp8, data: {kind: zero2}}", 8, 4, Recompute::Selective},
    {"{mesh: pp2 dp16 tp8, schedule: interleaved, chunks: 4}", 16, 4},
    {"{mesh: pp8 dp4 tp8, sequence_parallel: true, data: {kind: zero3}}", 4, 8},
    {"{mesh: dp8 pp4, stage_layers: [1, 3, 3, 1]}", 8, 6},
    {"{mesh: dp8 tp8, layers: [{blocks: 0-3, mesh: fsdp64, data: zero3}, {blocks: 6-7, mesh: tp8 dp8}]}", 64, 1},
    {"{mesh: pp4 dp4 tp4, stage_layers: [1, 3, 3, 1], layers: [{blocks: 1-4, mesh: dp8 tp2, data: zero2}]}", 8, 4},
    {"{mesh: dp8 tp4, data: {kind: zero1}}", 8, 2, Recompute::None, Samples::Documents},
    {"{mesh: dp16, data: {kind: zero3}}", 16, 2, Recompute::None, Samples::Documents},
    {"{mesh: pp4 dp8}", 8, 6, Recompute::None, Samples::Documents},
};

}  // namespace

TEST_CASE("a rank per class tells the picosecond of every op and the peak of every rank", "[parallel][long]") {
  std::size_t spans = 0;
  for (const LoweredCase& c : kCases) {
    INFO(c.strategy);
    const Plan plan = lower(c);
    const Machine m{plan.mesh.size()};
    const Timeline folded = run(plan, m.cost, m.resources, Expansion::Folded);
    const Timeline expanded = run(plan, m.cost, m.resources, Expansion::Expanded);
    const std::vector<RankId> first = representatives(plan, m.cost, m.resources);
    CHECK(num_different(first) == plan.classes.size());
    const Differences d = differences(plan, first, folded, expanded);
    CHECK(d.spans == 0);
    CHECK(d.peaks == 0);
    CHECK(folded.makespan_ps == expanded.makespan_ps);
    spans += expanded.spans.size();
  }
  WARN(std::size(kCases) << " plans, " << spans << " spans compared");
}

/// Classes are the stages, whether or not their layers are equal: ranks that do the same work are never told apart.
TEST_CASE("there is a class per stage, and one without stages", "[parallel]") {
  CHECK(lower("{mesh: dp8 tp8, data: {kind: zero3}}", 8, 1, Recompute::None).classes.size() == 1);
  for (const auto* strategy : {"{mesh: dp8 pp4 tp2}", "{mesh: dp8 pp4 tp2, stage_layers: [2, 2, 1, 3]}"}) {
    const Plan plan = lower(strategy, 8, 4, Recompute::None);
    REQUIRE(plan.classes.size() == 4);
    for (const RankClass& c : plan.classes) CHECK(c.size() == 16);
  }
}

namespace {

std::set<std::size_t> all_classes(const Plan& plan) {
  std::set<std::size_t> out;
  for (std::size_t c = 0; c < plan.classes.size(); ++c) out.insert(c);
  return out;
}

}  // namespace

/// By hand the slow rank and those before and behind it on its axis are told apart, its pipeline too. The engine finds
/// by itself that those before and behind are alike.
TEST_CASE("a slow device splits the classes of its replica only", "[parallel]") {
  struct Slow {
    const char* strategy;
    std::int64_t replicas, microbatches;
    std::size_t axis;
    std::int64_t at;
    std::size_t rank, classes, different;
  };
  const Slow c = GENERATE(Slow{"{mesh: dp8}", 8, 2, 0, 3, 3, 3, 2}, Slow{"{mesh: dp8}", 8, 2, 0, 0, 0, 2, 2},
                          Slow{"{mesh: dp16, data: {kind: zero3}}", 16, 1, 0, 15, 15, 2, 2},
                          Slow{"{mesh: pp4 dp8, data: {kind: zero1}}", 8, 4, 1, 5, 21, 12, 8},
                          Slow{"{mesh: dp8 pp4, schedule: zb-h1}", 8, 4, 0, 7, 30, 8, 8});
  INFO(c.strategy << " rank " << c.rank);
  const Plan plan = lower(c.strategy, c.replicas, c.microbatches, Recompute::None);
  const Plan parts = split(plan, all_classes(plan), c.axis, c.at);
  CHECK(parts.classes.size() == c.classes);
  CHECK(check_plan(parts).empty());
  const Machine m{plan.mesh.size()};
  const Straggler cost{m.cost, RankId{c.rank}};
  const Timeline whole = run(plan, cost, m.resources, Expansion::Expanded);
  const Timeline folded = run(parts, cost, m.resources, Expansion::Folded);
  const Timeline expanded = run(parts, cost, m.resources, Expansion::Expanded);
  CHECK(whole.makespan_ps == expanded.makespan_ps);
  CHECK(differences(parts, representatives(parts, cost, m.resources), folded, expanded).none());
  const std::vector<RankId> first = representatives(plan, cost, m.resources);
  CHECK(num_different(first) == c.different);
  const Timeline split_by_engine = run(plan, cost, m.resources, Expansion::Folded);
  CHECK(differences(plan, first, split_by_engine, whole).none());
  std::int64_t ranks = 0;
  for (const Standing& s : split_by_engine.standing) ranks += s.ranks;
  CHECK(split_by_engine.standing.size() == c.different);
  CHECK(ranks == plan.mesh.size());
  // Without the slow rank they cost nothing.
  const Timeline equal = run(parts, m.cost, m.resources, Expansion::Folded);
  CHECK(equal.makespan_ps == run(plan, m.cost, m.resources, Expansion::Folded).makespan_ps);
}

TEST_CASE("where one stage is split its neighbours are told apart too", "[parallel]") {
  const Plan plan = lower("{mesh: pp4 dp8}", 8, 4, Recompute::None);
  const Plan parts = split(plan, {2}, 1, 5);
  const Machine m{plan.mesh.size()};
  CHECK(check_plan(parts).empty());
  const Timeline expanded = run(parts, m.cost, m.resources, Expansion::Expanded);
  CHECK(expanded.makespan_ps == run(plan, m.cost, m.resources, Expansion::Expanded).makespan_ps);
  const std::vector<RankId> first = representatives(parts, m.cost, m.resources);
  CHECK(num_different(first) == 12);  // three parts of each of four stages
  CHECK(differences(parts, first, run(parts, m.cost, m.resources, Expansion::Folded), expanded).none());
}

namespace {

struct Routes {
  const char* strategy;
  std::int64_t replicas, microbatches, per_node;
  const char* order;
  std::size_t different, with_shared_cards;  // ranks that are not alike
};

}  // namespace

/// tp4 on nodes of 6: the second of three groups lies on two nodes, and with a card per node its ranks meet others
/// there than the first and the third do. Tiles of 2x2, and any order that fills nodes evenly, tell nobody apart.
TEST_CASE("ranks with unequal ways to their partners are told apart, folded as expanded", "[parallel][order]") {
  const Routes c = GENERATE(Routes{"{mesh: dp3 tp4}", 3, 1, 6, "", 4, 6}, Routes{"{mesh: dp4 tp2}", 4, 2, 3, "", 4, 8},
                            Routes{"{mesh: pp4 dp3, data: {kind: zero1}}", 3, 4, 4, "", 12, 12},
                            Routes{"{mesh: dp4 tp4}", 4, 1, 4, "tp4 dp4", 1, 1},
                            Routes{"{mesh: dp4 tp4}", 4, 1, 4, "dp2 tp2 dp2 tp2", 1, 1},
                            Routes{"{mesh: row4 col4}", 4, 1, 4, "row2 col2 row2 col2", 1, 1},
                            Routes{"{mesh: pp2 dp2 tp4}", 2, 4, 4, "tp4 dp2 pp2", 2, 2});
  const NicPlacement cards = GENERATE(NicPlacement::PerDevice, NicPlacement::PerNode);
  INFO(c.strategy << " in order " << c.order << " on nodes of " << c.per_node);
  const Plan plan = lower(c.strategy, c.replicas, c.microbatches, Recompute::None);
  const Machine m{plan.mesh.size(), c.per_node, cards, c.order, plan.mesh};
  const std::vector<RankId> first = representatives(plan, m.cost, m.resources);
  CHECK(num_different(first) == (cards == NicPlacement::PerNode ? c.with_shared_cards : c.different));
  const Timeline folded = run(plan, m.cost, m.resources, Expansion::Folded);
  const Timeline expanded = run(plan, m.cost, m.resources, Expansion::Expanded);
  CHECK(differences(plan, first, folded, expanded).none());
}

TEST_CASE("an order decides what lies inside of a node, and how long a step takes", "[parallel][order]") {
  // tp sums activations of every layer: between nodes each of them is slower than inside.
  const Plan plan = lower("{mesh: dp4 tp4}", 4, 1, Recompute::None);
  const auto step = [&](const std::string& order) {
    const Machine m{16, 4, NicPlacement::PerNode, order, plan.mesh};
    return run(plan, m.cost, m.resources, Expansion::Folded).makespan_ps;
  };
  CHECK(step("dp4 tp4") == step(""));
  CHECK(step("dp2 tp2 dp2 tp2") > step("dp4 tp4"));
  CHECK(step("tp4 dp4") > step("dp2 tp2 dp2 tp2"));
}
