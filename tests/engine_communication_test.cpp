// SPDX-License-Identifier: Apache-2.0
// Collectives and messages; one rank standing for its class against all ranks.
#include <catch2/catch.hpp>

#include "sim/base/error.hpp"
#include "tests/engine_plans.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

Work all_reduce(GroupId group, double bytes) { return Collective{.group = group, .bytes = Bytes{bytes}}; }
Work send(std::uint8_t axis, std::int32_t offset, std::int64_t tag, double bytes) {
  return Send{.peer = {axis, offset}, .tag = tag, .bytes = Bytes{bytes}};
}
Work receive(std::uint8_t axis, std::int32_t offset, std::int64_t tag, double bytes) {
  return Recv{.peer = {axis, offset}, .tag = tag, .bytes = Bytes{bytes}};
}

/// A pipeline of `stages` along axis 1, replicated along axis 0: `micro` microbatches forward, then an all-reduce per
/// replica family. Stage s computes 100 + 10·s ns; a message takes 20 ns; the all-reduce 500 ns.
Plan pipeline(std::int64_t replicas, std::int64_t stages, int micro) {
  RawPlan p{{{"dp", replicas}, {"pp", stages}}};
  const GroupId dp = p.group("dp", {0});
  for (std::int64_t s = 0; s < stages; ++s) {
    p.begin_class({{0, replicas}, {s, s + 1}});
    OpId last;
    for (int m = 0; m < micro; ++m) {
      std::vector<OpId> after;
      if (s > 0) after.push_back(p.add("receive", receive(1, -1, m, 20), Stream::CopyIn));
      const OpId compute = last = p.add("compute", lasting(100 + 10 * s));
      if (!after.empty()) {
        p.plan.deps.push_back(after.front());
        p.plan.ops.back().num_deps = 1;
      }
      if (s + 1 < stages) p.add("send", send(1, 1, m, 20), Stream::CopyOut, {compute});
    }
    p.add("gradients", all_reduce(dp, 500), Stream::Comm, {last});
  }
  return p.plan;
}

}  // namespace

TEST_CASE("a collective starts when its last rank arrives, and ends for all together", "[engine][collective]") {
  // Rank 1 is a straggler of twice the time: it arrives at 200 ns. 200 + 50 = 250 for both.
  RawPlan p{{{"dp", 2}}};
  const GroupId dp = p.group("dp", {0});
  p.begin_class({{0, 2}});
  p.add("compute", lasting(100));
  const OpId sum = p.add("sum", all_reduce(dp, 50));
  TableCost cost;
  cost.slowness = [](RankId r) { return r == RankId{1} ? 2.0 : 1.0; };
  cost.kind = [](RankId r) { return r == RankId{1} ? 5u : 0u; };
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{2}, {.expansion = Expansion::Expanded});
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(span_of(t, sum, RankId{r}).start_ps == 200 * kNs);
    CHECK(span_of(t, sum, RankId{r}).end_ps == 250 * kNs);
  }
}

TEST_CASE("ranks of different communicators do not wait for each other", "[engine][collective]") {
  // Mesh 2×2, group along the second axis: {0, 1} and {2, 3}. Rank 3 needs 200 ns, so only rank 2 waits for it.
  RawPlan p{{{"dp", 2}, {"tp", 2}}};
  const GroupId tp = p.group("tp", {1});
  p.begin_class({{0, 2}, {0, 2}});
  p.add("compute", lasting(100));
  const OpId sum = p.add("sum", all_reduce(tp, 50));
  TableCost cost;
  cost.slowness = [](RankId r) { return r == RankId{3} ? 2.0 : 1.0; };
  cost.kind = [](RankId r) { return r.value; };
  const Timeline t = simulate(p.plan, {}, cost, NodeResources{4}, {.expansion = Expansion::Expanded});
  CHECK(span_of(t, sum, RankId{0}).end_ps == 150 * kNs);
  CHECK(span_of(t, sum, RankId{1}).end_ps == 150 * kNs);
  CHECK(span_of(t, sum, RankId{2}).end_ps == 250 * kNs);
  CHECK(span_of(t, sum, RankId{3}).end_ps == 250 * kNs);
}

TEST_CASE("collectives on one communicator pair up in the order of each rank", "[engine][collective]") {
  // Both classes issue a (50 B) and b (70 B), the second class on other streams: a with a, b with b.
  RawPlan p{{{"pp", 2}}};
  const GroupId pp = p.group("pp", {0});
  p.begin_class({{0, 1}});
  p.add("a", all_reduce(pp, 50), Stream::Comm);
  const OpId b0 = p.add("b", all_reduce(pp, 70), Stream::Comm);
  p.begin_class({{1, 2}});
  p.add("late", lasting(30), Stream::Compute);
  p.add("a", all_reduce(pp, 50), Stream::Compute);
  const OpId b1 = p.add("b", all_reduce(pp, 70), Stream::Comm);
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded}) {
    const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{2}, {.expansion = expansion});
    CHECK(span_of(t, b0).start_ps == 80 * kNs);  // 30 + 50
    CHECK(span_of(t, b1, RankId{1}).end_ps == 150 * kNs);
  }
}

TEST_CASE("a message starts when both sides are ready", "[engine][message]") {
  // Receive ready at 0, send at 100: 100 + 20 = 120.
  RawPlan p{{{"pp", 2}}};
  p.begin_class({{0, 1}});
  p.add("compute", lasting(100));
  const OpId s = p.add("send", send(0, 1, 7, 20));
  p.begin_class({{1, 2}});
  const OpId r = p.add("receive", receive(0, -1, 7, 20));
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded}) {
    const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{2}, {.expansion = expansion});
    CHECK(span_of(t, s).start_ps == 100 * kNs);
    CHECK(span_of(t, r, RankId{1}).start_ps == 100 * kNs);
    CHECK(span_of(t, r, RankId{1}).end_ps == 120 * kNs);
  }
}

TEST_CASE("tags keep messages apart that cross on different streams", "[engine][message]") {
  // Tag 1 is sent first but received on a stream that is busy until 300; tag 2 does not wait for it.
  RawPlan p{{{"pp", 2}}};
  p.begin_class({{0, 1}});
  const OpId one = p.add("one", send(0, 1, 1, 20), Stream::Comm);
  const OpId two = p.add("two", send(0, 1, 2, 20), Stream::CopyOut);
  p.begin_class({{1, 2}});
  p.add("busy", lasting(300), Stream::Comm);
  p.add("one", receive(0, -1, 1, 20), Stream::Comm);
  p.add("two", receive(0, -1, 2, 20), Stream::CopyIn);
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{2});
  CHECK(span_of(t, two).end_ps == 20 * kNs);
  CHECK(span_of(t, one).end_ps == 320 * kNs);
}

TEST_CASE("a ring of one class passes on along its axis", "[engine][message][fold]") {
  // All ranks send to the next and receive from the one before: three steps of compute 100, then 20 for the messages.
  RawPlan p{{{"sp", 4}}};
  p.begin_class({{0, 4}});
  OpId got;
  for (int step = 0; step < 3; ++step) {
    const OpId c = step == 0 ? p.add("compute", lasting(100)) : p.add("compute", lasting(100), Stream::Compute, {got});
    p.add("send", send(0, 1, 0, 20), Stream::CopyOut, {c});
    got = p.add("receive", receive(0, -1, 0, 20), Stream::CopyIn, {c});
  }
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded})
    CHECK(simulate(p.plan, {}, TableCost{}, NodeResources{4}, {.expansion = expansion}).makespan_ps == 360 * kNs);
}

TEST_CASE("a pipeline fills, runs and reduces as counted by hand", "[engine][fold]") {
  // 3 stages of 100, 110, 120 ns, 4 microbatches, messages of 20. Stage 0 ends microbatch m at 100·(m + 1), the message
  // arrives at +20. Stage 1 is slower than stage 0: starts at 120, ends at 120 + 110·(m + 1). Stage 2 starts at 120 +
  // 110 + 20 = 250, is the slowest: ends at 250 + 4·120 = 730. All-reduce of 500: 1230.
  const Plan plan = pipeline(2, 3, 4);
  CHECK(simulate(plan, {}, TableCost{}, NodeResources{6}).makespan_ps == 1230 * kNs);
}

TEST_CASE("folded equals expanded to the picosecond", "[engine][fold]") {
  TableCost cost;
  cost.message_demands = {{Resource::Nic, 0.3f}};
  cost.launch_cost = {7.0_ns, 3.0_ns, true};
  // A node holds two replicas' worth of one stage or both stages of a replica, in either case the same classes in each
  // node.
  const auto [replicas, stages, per_node] =
      GENERATE(table<std::int64_t, std::int64_t, std::uint32_t>({{4, 2, 4}, {4, 4, 4}, {2, 3, 3}, {8, 2, 8}}));
  CAPTURE(replicas, stages);
  const Plan plan = pipeline(replicas, stages, 5);
  const auto ranks = static_cast<std::uint32_t>(plan.mesh.size());
  const NodeResources resources{ranks, per_node};
  const Timeline folded = simulate(plan, {}, cost, resources, {.expansion = Expansion::Folded});
  const Timeline expanded = simulate(plan, {}, cost, resources, {.expansion = Expansion::Expanded});
  CHECK(folded.makespan_ps == expanded.makespan_ps);
  CHECK(folded.spans.size() == plan.ops.size());
  CHECK(expanded.spans.size() == plan.ops.size() * static_cast<std::size_t>(replicas));
  const std::vector<ClassId> class_of_rank = plan.class_of_ranks();
  for (const Span& s : expanded.spans) {
    const Span f = span_of(folded, s.op, RankId{class_of_rank[s.rank.index()].index()});  // first replica: rank = stage
    CHECK(f.start_ps == s.start_ps);
    CHECK(f.end_ps == s.end_ps);
  }
}

TEST_CASE("a lone collective is not slowed by its own ranks", "[engine][sharing]") {
  // Four ranks of a node that each ask for all of the card: the cost is that of the whole, so it runs in its 50 ns.
  RawPlan p{{{"dp", 4}}};
  const GroupId dp = p.group("dp", {0});
  p.begin_class({{0, 4}});
  p.add("sum", all_reduce(dp, 50));
  TableCost cost;
  cost.message_demands = {{Resource::Nic, 1.0f}};
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded})
    CHECK(simulate(p.plan, {}, cost, NodeResources{4, 4}, {.expansion = expansion}).makespan_ps == 50 * kNs);
}

TEST_CASE("two communicators on one card halve each other, folded as expanded", "[engine][sharing][fold]") {
  // A node of four ranks with two tensor groups of two: 2 · min(2·1, 1) = 2 of 1: half speed, 100 ns.
  RawPlan p{{{"dp", 2}, {"tp", 2}}};
  const GroupId tp = p.group("tp", {1});
  p.begin_class({{0, 2}, {0, 2}});
  p.add("sum", all_reduce(tp, 50));
  TableCost cost;
  cost.message_demands = {{Resource::Nic, 1.0f}};
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded})
    CHECK(simulate(p.plan, {}, cost, NodeResources{4, 4}, {.expansion = expansion}).makespan_ps == 100 * kNs);
}

TEST_CASE("ops that never meet are named", "[engine][error]") {
  RawPlan p{{{"pp", 2}}};
  p.begin_class({{0, 1}});
  p.add("out", send(0, 1, 3, 20), Stream::Comm);
  p.begin_class({{1, 2}});
  p.add("in", receive(0, -1, 4, 20), Stream::Comm);
  p.add("then", lasting(1), Stream::Compute, {OpId{1}});
  try {
    simulate(p.plan, {}, TableCost{}, NodeResources{2});
    FAIL("the plan ran to its end");
  } catch (const UserError& e) {
    CHECK(e.diagnostics().front().message ==
          "plan 'raw' cannot run to its end: 0 of 3 ops have run, and the rest wait for each other for ever; "
          "rank 0, stream comm: op 0 'out' (send peer=axis0+1 tag=3 bytes=20) has arrived and waits for its partners; "
          "rank 1, stream comm: op 1 'in' (recv peer=axis0-1 tag=4 bytes=20) has arrived and waits for its partners; "
          "rank 1, stream compute: op 2 'then' (gemm m=1) waits for ops before it");
  }
}

TEST_CASE("a shift of a ring is one op for all its ranks, folded as expanded", "[engine][collective][fold]") {
  // Compute 100, then the hop of 20 ns while the next product runs: 100 + max(100, 20) + 20.
  RawPlan p{{{"sp", 4}}};
  const GroupId sp = p.group("sp", {0});
  const Work shift = Collective{.kind = CollectiveKind::Shift, .group = sp, .root = -1, .bytes = Bytes{20}};
  p.begin_class({{0, 4}});
  const OpId first = p.add("compute", lasting(100));
  const OpId hop = p.add("hop", shift, Stream::Comm, {first});
  const OpId second = p.add("compute", lasting(100));
  const OpId last = p.add("hop", shift, Stream::Comm, {second});
  for (Expansion expansion : {Expansion::Folded, Expansion::Expanded}) {
    const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{4}, {.expansion = expansion});
    CHECK(span_of(t, hop).end_ps == 120 * kNs);
    CHECK(span_of(t, last).end_ps == 220 * kNs);
  }
}
