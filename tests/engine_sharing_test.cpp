// SPDX-License-Identifier: Apache-2.0
// Ops that ask for more than a resource has: max-min fair rates.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/engine_plans.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

/// One op per stream, all from the start: (nanoseconds, row of demands).
Spans run_together(const TableCost& cost, const std::vector<std::pair<std::int64_t, std::int64_t>>& ops) {
  RawPlan p;
  std::vector<OpId> ids;
  for (std::size_t i = 0; i < ops.size(); ++i)
    ids.push_back(p.add("op", lasting(ops[i].first, ops[i].second), static_cast<Stream>(i)));
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  Spans out;
  for (OpId id : ids) out.push_back(span_of(t, id));
  return out;
}

}  // namespace

TEST_CASE("two ops that each need all of a resource run at half speed", "[engine][sharing]") {
  TableCost cost;
  cost.demands = {{{Resource::Sm, 1.0f}}};
  const auto spans = run_together(cost, {{1000, 0}, {1000, 0}});
  CHECK(spans[0].end_ps == 2000 * kNs);
  CHECK(spans[1].end_ps == 2000 * kNs);
}

TEST_CASE("two ops that together need no more than there is do not notice each other", "[engine][sharing]") {
  TableCost cost;
  cost.demands = {{{Resource::Hbm, 0.6f}}, {{Resource::Hbm, 0.4f}}};
  const auto spans = run_together(cost, {{1000, 0}, {700, 1}});
  CHECK(spans[0].end_ps == 1000 * kNs);
  CHECK(spans[1].end_ps == 700 * kNs);
}

TEST_CASE("an op gets its speed back when the other has ended", "[engine][sharing]") {
  // Both at 1/2 until the short one has done its 400 ns, at 800. The long one has done 400 of 1000 and ends 600 later.
  TableCost cost;
  cost.demands = {{{Resource::Sm, 1.0f}}};
  const auto spans = run_together(cost, {{1000, 0}, {400, 0}});
  CHECK(spans[1].end_ps == 800 * kNs);
  CHECK(spans[0].end_ps == 1400 * kNs);
}

TEST_CASE("three ops with unequal demands share max-min fairly", "[engine][sharing]") {
  // a: SM 1/2, HBM 1; b: HBM 1; c: SM 3/4. HBM fills up first: x + x = 1, so a = b = 1/2. SM then has 1 − 1/2·1/2 = 3/4
  // left, which is what c needs at rate 1: c is not slowed although 1/2 + 3/4 > 1 were asked of SM.
  TableCost cost;
  cost.demands = {{{Resource::Sm, 0.5f}, {Resource::Hbm, 1.0f}}, {{Resource::Hbm, 1.0f}}, {{Resource::Sm, 0.75f}}};
  const auto spans = run_together(cost, {{1000, 0}, {1000, 1}, {1000, 2}});
  CHECK(spans[2].end_ps == 1000 * kNs);
  CHECK(spans[0].end_ps == 2000 * kNs);
  CHECK(spans[1].end_ps == 2000 * kNs);
}

TEST_CASE("what a slowed op leaves goes to those that can use it", "[engine][sharing]") {
  // a: SM 1, HBM 1; b: HBM 1; d: HBM 1; c: SM 3/4. HBM: a = b = d = 1/3. SM has 2/3 left for c: 2/3 : 3/4 = 8/9.
  // c takes 9/8 of its 800 ns: 900. a, b and d end their 900 ns at 2700.
  TableCost cost;
  cost.demands = {{{Resource::Sm, 1.0f}, {Resource::Hbm, 1.0f}}, {{Resource::Hbm, 1.0f}}, {{Resource::Sm, 0.75f}}};
  const auto spans = run_together(cost, {{900, 0}, {900, 1}, {800, 2}, {900, 1}});
  CHECK(spans[2].end_ps == 900 * kNs);
  CHECK(spans[0].end_ps == 2700 * kNs);
  CHECK(spans[1].end_ps == 2700 * kNs);
  CHECK(spans[3].end_ps == 2700 * kNs);
}

TEST_CASE("two copies on one link take twice as long, on two links they do not", "[engine][sharing]") {
  // Two ranks of a node: the network card is the node's, the PCIe link each rank's own.
  RawPlan p{{{"dp", 2}}};
  p.begin_class({{0, 2}});
  const OpId nic = p.add("over the card", lasting(500, 0));
  const OpId pcie = p.add("over PCIe", lasting(500, 1));
  TableCost cost;
  cost.demands = {{{Resource::Nic, 1.0f}}, {{Resource::PcieIn, 1.0f}}};
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded}) {
    const Timeline t = simulate(p.plan, {}, cost, NodeResources{2, 2}, {.expansion = expansion});
    CHECK(span_of(t, nic).end_ps == 1000 * kNs);
    CHECK(span_of(t, pcie).end_ps == 1500 * kNs);
  }
}

TEST_CASE("one op alone is never slowed, whatever it asks for", "[engine][sharing]") {
  TableCost cost;
  cost.demands = {{{Resource::CpuCores, 8.0f}}};  // of a node with a capacity of 1
  CHECK(run_together(cost, {{1000, 0}})[0].end_ps == 1000 * kNs);
}

TEST_CASE("thirds add up to a whole", "[engine][sharing]") {
  // float(1/3) is a little more than a third: three of them must not count as contention.
  TableCost cost;
  cost.demands = {{{Resource::Sm, 1.0f / 3.0f}}};
  CHECK(run_together(cost, {{1000, 0}, {1000, 0}, {1000, 0}})[2].end_ps == 1000 * kNs);
}

TEST_CASE("a resource without capacity is the user's error", "[engine][sharing][error]") {
  class Empty : public NodeResources {
   public:
    Empty() : NodeResources{1} {}
    double capacity(Resource, std::uint32_t) const override { return 0; }
  };
  RawPlan p;
  TableCost cost;
  cost.demands = {{{Resource::Disk, 1.0f}}};
  p.add("read", lasting(10, 0), Stream::Disk);
  CHECK_THROWS_WITH(simulate(p.plan, {}, cost, Empty{}), "an op needs a resource of the cluster that has no capacity");
}

TEST_CASE("equal simulations give equal timelines, one after another and side by side", "[engine][determinism]") {
  TableCost cost;
  cost.demands = {{},
                  {{Resource::Sm, 0.7f}},
                  {{Resource::Sm, 0.4f}, {Resource::Hbm, 0.9f}},
                  {{Resource::Hbm, 0.6f}, {Resource::Nic, 1.0f}}};
  Plan plan = random_plan(7, 2000, 4);
  plan.mesh.axes = {{"dp", 8}};
  plan.classes[0].ranges = {{0, 8}};
  const NodeResources resources{8, 4};
  const EngineOptions options{.expansion = Expansion::Expanded};
  const auto run = [&] { return simulate(plan, {}, cost, resources, options).spans; };
  const Spans first = run();
  Spans left, right;
  std::thread a{[&] { left = run(); }}, b{[&] { right = run(); }};
  a.join();
  b.join();
  CHECK(first.size() == 16000);
  CHECK(same_spans(first, run()));
  CHECK(same_spans(first, left));
  CHECK(same_spans(first, right));
}

TEST_CASE("folded contention equals expanded contention", "[engine][sharing][fold]") {
  // All ranks do the same at the same time, so those of a node slow each other: one rank stands for eight, its demand
  // counts fourfold.
  TableCost cost;
  cost.demands = {{},
                  {{Resource::Sm, 0.7f}},
                  {{Resource::Sm, 0.4f}, {Resource::Nic, 0.3f}},
                  {{Resource::Hbm, 0.6f}, {Resource::Nic, 0.2f}}};
  const auto seed = GENERATE(range(0u, 10u));
  CAPTURE(seed);
  Plan plan = random_plan(seed, 300, 4);
  plan.mesh.axes = {{"dp", 8}};
  plan.classes[0].ranges = {{0, 8}};
  const NodeResources resources{8, 4};
  const Timeline folded = simulate(plan, {}, cost, resources, {.expansion = Expansion::Folded});
  const Timeline expanded = simulate(plan, {}, cost, resources, {.expansion = Expansion::Expanded});
  CHECK(folded.makespan_ps == expanded.makespan_ps);
  for (const Span& s : folded.spans) {
    CHECK(span_of(expanded, s.op).start_ps == s.start_ps);
    CHECK(span_of(expanded, s.op, RankId{7}).end_ps == s.end_ps);
  }
}
