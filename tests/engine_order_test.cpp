// SPDX-License-Identifier: Apache-2.0
// Streams, dependencies and the host thread: when ops start.
#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/engine_plans.hpp"

using namespace orrery;
using namespace orrery::literals;

TEST_CASE("two streams of a rank overlap, one stream does not", "[engine]") {
  RawPlan p;
  const OpId a = p.add("a", lasting(1000));
  const OpId b = p.add("b", lasting(1000));                     // after a: same stream
  const OpId c = p.add("c", lasting(1000), Stream::Comm, {a});  // after a: data
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{1});
  CHECK(span_of(t, b).start_ps == span_of(t, c).start_ps);  // b and c run together
  CHECK(span_of(t, c).end_ps == 2000 * kNs);
  CHECK(t.makespan_ps == 2000 * kNs);
  CHECK(t.source == TimelineSource::Predicted);
}

TEST_CASE("an op starts when the last of its dependencies has ended", "[engine]") {
  RawPlan p;
  const OpId a = p.add("a", lasting(100), Stream::CopyIn);
  const OpId b = p.add("b", lasting(300), Stream::CopyOut);
  const OpId c = p.add("c", lasting(200), Stream::Disk);
  const OpId d = p.add("d", lasting(50), Stream::Compute, {a, b, c});  // max(100, 300, 200) = 300
  CHECK(span_of(simulate(p.plan, {}, TableCost{}, NodeResources{1}), d).start_ps == 300 * kNs);
}

TEST_CASE("an op that waits for an early op of a long stream does not wait for the later ones", "[engine]") {
  RawPlan p;
  const OpId first = p.add("first", lasting(10));
  p.add("second", lasting(1000));
  const OpId c = p.add("c", lasting(5), Stream::Comm);
  const OpId d = p.add("d", lasting(5), Stream::Comm, {first});
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{1});
  CHECK(span_of(t, c).end_ps == 5 * kNs);
  CHECK(span_of(t, d).start_ps == 10 * kNs);
}

TEST_CASE("a bound size changes the time of a template from one execution to the next", "[engine]") {
  RawPlan p;
  p.add("attention", AttentionForward{.shape = {.kv = {100, Symbol::Context}}});
  const TableCost cost;
  const NodeResources resources{1};
  Engine engine{cost, resources};
  Bindings bindings;
  bindings[Symbol::Context] = 11;
  CHECK(engine.execute(p.plan, bindings).end_ps == 111 * kNs);  // 100 + 11 ns
  bindings[Symbol::Context] = 12;
  const ExecutionTotals second = engine.execute(p.plan, bindings);
  CHECK(second.start_ps == 111 * kNs);  // one after another
  CHECK(second.end_ps == 223 * kNs);    // 111 + 112
  const Timeline t = engine.take();
  CHECK(t.instance_ends_ps == std::vector<std::int64_t>{111 * kNs, 223 * kNs});
  CHECK(t.spans.at(1).instance == 1);
  CHECK(engine.take().spans.empty());
}

TEST_CASE("short ops go at the pace of the host that launches them", "[engine][host]") {
  // Enqueueing takes 5 ns, an op 1 ns, from enqueued to started 3 ns: op i starts at 5·(i + 1) + 3.
  RawPlan p;
  std::vector<OpId> ops;
  for (int i = 0; i < 10; ++i) ops.push_back(p.add("short", lasting(1)));
  TableCost cost;
  cost.launch_cost = {5.0_ns, 3.0_ns, true};
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  for (int i = 0; i < 10; ++i) CHECK(span_of(t, ops[static_cast<std::size_t>(i)]).start_ps == (5 * (i + 1) + 3) * kNs);
  CHECK(t.makespan_ps == 54 * kNs);
}

TEST_CASE("an op that joins the call of another costs the host what the device asks for", "[engine][host]") {
  // Enqueued at 5, 7, 9 and 14 ns: the second and the third take 2 ns of the host.
  RawPlan p;
  std::vector<OpId> ops;
  for (int i = 0; i < 4; ++i) ops.push_back(p.add("short", lasting(1)));
  for (const std::size_t i : {1, 2}) p.plan.ops[ops[i].index()].joins = true;
  TableCost cost;
  cost.launch_cost = {5.0_ns, 3.0_ns, true, 2.0_ns};
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  const std::array<std::int64_t, 4> enqueued{5, 7, 9, 14};
  for (std::size_t i = 0; i < 4; ++i) CHECK(span_of(t, ops[i]).start_ps == (enqueued[i] + 3) * kNs);
}

TEST_CASE("long ops hide all but the first launch", "[engine][host]") {
  // 5 + 3 ns before the first op, then ten ops of 100 ns without a gap.
  RawPlan p;
  for (int i = 0; i < 10; ++i) p.add("long", lasting(100));
  TableCost cost;
  cost.launch_cost = {5.0_ns, 3.0_ns, true};
  CHECK(simulate(p.plan, {}, cost, NodeResources{1}).makespan_ps == 1008 * kNs);
}

TEST_CASE("the host enqueues in plan order over all streams", "[engine][host]") {
  // b is third in the plan: enqueued at 15, although its stream is idle; 15 + 3 = 18.
  RawPlan p;
  p.add("a", lasting(1));
  p.add("a", lasting(1));
  const OpId b = p.add("b", lasting(1), Stream::Comm);
  TableCost cost;
  cost.launch_cost = {5.0_ns, 3.0_ns, true};
  CHECK(span_of(simulate(p.plan, {}, cost, NodeResources{1}), b).start_ps == 18 * kNs);
}

TEST_CASE("a waiting host enqueues nothing until it has run", "[engine][host]") {
  // a is enqueued at 5, starts at 8, ends at 108. The host waits for it, works until 128, and enqueues b until 133:
  // start at 136.
  RawPlan p;
  const OpId a = p.add("a", lasting(100));
  const OpId read = p.add("read", hosted(20), Stream::Host);
  const OpId b = p.add("b", lasting(1), Stream::Comm);
  TableCost cost;
  cost.launch_cost = {5.0_ns, 3.0_ns, true};
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  CHECK(span_of(t, a).start_ps == 8 * kNs);
  CHECK(span_of(t, read).start_ps == 108 * kNs);
  CHECK(span_of(t, read).end_ps == 128 * kNs);
  CHECK(span_of(t, b).start_ps == 136 * kNs);
}

TEST_CASE("a wait that finds nothing to wait for runs when the host comes to it", "[engine][host]") {
  // Nothing is before the first wait: it runs from 0 to 20 ns. The host then takes until 25 to enqueue a, which ends at
  // 26, and waits for it at the second.
  RawPlan p;
  const OpId first = p.add("first", hosted(20), Stream::Host);
  const OpId a = p.add("a", lasting(1));
  const OpId second = p.add("second", hosted(20), Stream::Host);
  TableCost cost;
  cost.launch_cost = {5.0_ns, 0.0_ns, true};
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  CHECK(span_of(t, first).start_ps == 0);
  CHECK(span_of(t, a).start_ps == 25 * kNs);  // 20 + 5
  CHECK(span_of(t, second).start_ps == 26 * kNs);
}

TEST_CASE("host work that does not wait runs beside the device", "[engine][host]") {
  RawPlan p;
  p.add("a", lasting(100));
  const OpId h = p.add("h", hosted(20, false), Stream::Host);
  const OpId b = p.add("b", lasting(1), Stream::Comm);
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{1});
  CHECK(span_of(t, h).start_ps == 0);
  CHECK(span_of(t, b).start_ps == 0);
}

TEST_CASE("a host that does the ops itself adds its overhead in front of each", "[engine][host]") {
  // Overhead 2 ns, ops of 10 ns: op i runs from 12·i + 2 to 12·(i + 1).
  RawPlan p;
  std::vector<OpId> ops;
  for (int i = 0; i < 4; ++i) ops.push_back(p.add("op", lasting(10)));
  TableCost cost;
  cost.launch_cost = {2.0_ns, 0.0_ns, false};
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{1});
  for (int i = 0; i < 4; ++i) CHECK(span_of(t, ops[static_cast<std::size_t>(i)]).start_ps == (12 * i + 2) * kNs);
  CHECK(t.makespan_ps == 48 * kNs);
}

TEST_CASE("a duration that the clock cannot count is the user's error", "[engine][error]") {
  RawPlan p;
  p.add("for ever", lasting(20'000'000'000'000'000));  // 2e16 ns = 2e7 s = 231 days
  CHECK_THROWS_WITH(simulate(p.plan, {}, TableCost{}, NodeResources{1}),
                    Catch::Contains("(gemm m=20000000000000000") &&
                        Catch::Contains("would take 20000000 s, which the clock cannot count"));
}

TEST_CASE("no plan ends before its longest chain or before the work of any stream", "[engine][property]") {
  const auto seed = GENERATE(range(0u, 25u));
  CAPTURE(seed);
  TableCost cost;
  cost.demands = {{},
                  {{Resource::Sm, 0.7f}},
                  {{Resource::Sm, 0.4f}, {Resource::Hbm, 0.9f}},
                  {{Resource::Hbm, 0.6f}, {Resource::PcieIn, 1.0f}}};
  const Plan plan = random_plan(seed, 300, 4);
  const Timeline t = simulate(plan, {}, cost, NodeResources{1});
  REQUIRE(t.spans.size() == plan.ops.size());
  std::vector<std::int64_t> earliest(plan.ops.size());  // end of the longest chain up to the op, nothing disturbing it
  std::array<std::int64_t, kNumStreams> stream_end{}, work{};
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const std::int64_t duration = std::get<Gemm>(plan.work(op)).m * kNs;
    auto& end = stream_end[static_cast<std::size_t>(op.stream)];
    std::int64_t start = end;
    for (OpId d : plan.deps_of(op)) start = std::max(start, earliest[d.index()]);
    earliest[i] = end = start + duration;
    work[static_cast<std::size_t>(op.stream)] += duration;
  }
  // Retiming rounds each piece of an op to the picosecond, so an op may gain one per change: 300 changes at most.
  CHECK(t.makespan_ps + 300 >= *std::max_element(earliest.begin(), earliest.end()));
  CHECK(t.makespan_ps + 300 >= *std::max_element(work.begin(), work.end()));
  for (const Span& s : t.spans) {
    for (OpId d : plan.deps_of(plan[s.op])) CHECK(span_of(t, d).end_ps <= s.start_ps);
    CHECK(s.end_ps - s.start_ps + 1 >= std::get<Gemm>(plan.work(s.op)).m * kNs);  // never faster than alone
  }
}

TEST_CASE("without contention no op is late", "[engine][property]") {
  // With no demands the makespan is exactly the longest chain through streams and dependencies.
  const auto seed = GENERATE(range(100u, 110u));
  CAPTURE(seed);
  const Plan plan = random_plan(seed, 300, 1);
  std::vector<std::int64_t> end(plan.ops.size());
  std::array<std::int64_t, kNumStreams> stream_end{};
  for (std::size_t i = 0; i < plan.ops.size(); ++i) {
    auto& last = stream_end[static_cast<std::size_t>(plan.ops[i].stream)];
    std::int64_t start = last;
    for (OpId d : plan.deps_of(plan.ops[i])) start = std::max(start, end[d.index()]);
    end[i] = last = start + std::get<Gemm>(plan.work(plan.ops[i])).m * kNs;
  }
  const Timeline t = simulate(plan, {}, TableCost{}, NodeResources{1});
  CHECK(t.makespan_ps == *std::max_element(end.begin(), end.end()));
}
