// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/timeline/analysis.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;

namespace {

constexpr auto kGemm = static_cast<std::size_t>(OpClass::Gemm);
constexpr auto kCollective = static_cast<std::size_t>(OpClass::Collective);

/// compute: a [0,10]  c [10,15]        d [32,40]      d waits for b; the host is 2 us late
/// comm:              b [10,      30]
struct Fork {
  SmallPlan p;
  OpId a = p.add("a", gemm());
  OpId b = p.add("b", all_reduce(), Stream::Comm, {a});
  OpId c = p.add("c", gemm());
  OpId d = p.add("d", gemm(), Stream::Compute, {b});
  Timeline t;
  Fork() {
    ran(t, a, 0, 0, 10);
    ran(t, c, 0, 10, 15);
    ran(t, b, 0, 10, 30);
    ran(t, d, 0, 32, 40);
  }
};

/// rank 0: a [0,10] sum [10,      30]
/// rank 1: a [0,      25] sum [25,30]
struct LatePartner {
  SmallPlan p{2};
  OpId a = p.add("a", gemm());
  OpId sum = p.add("sum", all_reduce(), Stream::Comm, {a});
  Timeline t;
  LatePartner() {
    ran(t, a, 0, 0, 10);
    ran(t, a, 1, 0, 25);
    ran(t, sum, 0, 10, 30);
    ran(t, sum, 1, 25, 30);
  }
};

}  // namespace

TEST_CASE("the critical path follows the dependency that ended last and shows the launch gap", "[timeline]") {
  const Fork f;
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  // a 0-10, b 10-30, gap 30-32, d 32-40: 18 us of GEMM, 20 us of all-reduce, 2 us of gap.
  REQUIRE(analysis.path.segments.size() == 4);
  CHECK(f.t.spans[analysis.path.segments[1].span].op == f.b);
  CHECK(analysis.path.segments[2].is_gap);
  CHECK(analysis.path.by_class_ps[kGemm] == 18 * kMicrosecond);
  CHECK(analysis.path.by_class_ps[kCollective] == 20 * kMicrosecond);
  CHECK(analysis.path.gap_ps == 2 * kMicrosecond);
}

TEST_CASE("slack is the time until the latest of what the successor waits for", "[timeline]") {
  const Fork f;
  const PlanDigests plans = describe(f.p.plan);
  const std::vector<std::int64_t> room = slack(f.t, SpanGraph{f.t, plans});
  // c may end at 30 instead of 15, when b ends; everything else is critical.
  CHECK(room == std::vector<std::int64_t>{0, 15 * kMicrosecond, 0, 0});
}

TEST_CASE("the critical path crosses to the rank that arrived last at a collective", "[timeline]") {
  const LatePartner f;
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  // a of rank 1 0-25, then 5 us of all-reduce.
  CHECK(analysis.path.by_class_ps[kGemm] == 25 * kMicrosecond);
  CHECK(analysis.path.by_class_ps[kCollective] == 5 * kMicrosecond);
  REQUIRE(analysis.path.segments.size() == 2);
  CHECK(f.t.spans[analysis.path.segments[0].span].rank == RankId{1});
}

TEST_CASE("what precedes an early arrival at a collective has the wait as slack", "[timeline]") {
  const LatePartner f;
  const PlanDigests plans = describe(f.p.plan);
  const std::vector<std::int64_t> room = slack(f.t, SpanGraph{f.t, plans});
  CHECK(room[0] == 15 * kMicrosecond);  // rank 0 may arrive at 25 instead of 10
  CHECK(room[1] == 0);
}

TEST_CASE("time in a collective before the last arrival is waiting, not communication", "[timeline]") {
  const LatePartner f;
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  // Rank 0 waits 10-25, rank 1 not at all: 7.5 us on average; both move data 25-30.
  CHECK(analysis.ranks[0].waiting_ps == 15 * kMicrosecond);
  CHECK(analysis.waiting.base() == Approx(7.5e-6));
  CHECK(analysis.exposed_communication.base() == Approx(5e-6));
  CHECK(analysis.bubble == Approx(7.5 / 30));
}

TEST_CASE("compute wins over communication that runs at the same time", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  const OpId b = p.add("b", all_reduce(), Stream::Comm);
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, b, 0, 5, 20);
  const Analysis analysis = analyse(t, describe(p.plan));
  CHECK(analysis.by_class[kGemm] == Approx(10e-6));
  CHECK(analysis.exposed_communication.base() == Approx(10e-6));  // 10-20
  CHECK(analysis.communication.base() == Approx(15e-6));          // 5-20
}

TEST_CASE("classes, waiting and idle of each rank add up to the makespan", "[timeline]") {
  const Fork f;
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  const RankTime& r = analysis.ranks.front();
  std::int64_t sum = r.waiting_ps + r.idle_ps;
  for (const std::int64_t ps : r.exposed_ps) sum += ps;
  CHECK(sum == f.t.makespan_ps);
  CHECK(r.longest_idle_start_ps == 30 * kMicrosecond);
  CHECK(r.longest_idle_end_ps == 32 * kMicrosecond);
  CHECK(r.busy_ps[static_cast<std::size_t>(Stream::Compute)] == 23 * kMicrosecond);  // 10 + 5 + 8
}

TEST_CASE("a recorded rank of a folded timeline counts as often as its class has members", "[timeline]") {
  // Class 0 is rank 0 alone and idle for 10 of 20 us; class 1 is ranks 1 to 3, recorded once, never idle: 10 · 1/4.
  SmallPlan p{4};
  const OpId a = p.add("a", gemm());
  p.begin_class(1);
  const OpId b = p.add("b", gemm());
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, b, 1, 0, 20);
  const Analysis analysis = analyse(t, describe(p.plan));
  CHECK(analysis.ranks[1].weight == 3);
  CHECK(analysis.idle.base() == Approx(2.5e-6));
}

TEST_CASE("pieces of a detailed collective are not counted a second time", "[timeline]") {
  SmallPlan p;
  const OpId sum = p.add("sum", all_reduce(), Stream::Comm);
  Timeline t;
  ran(t, sum, 0, 0, 10);
  ran(t, sum, 0, 0, 5, 0, 1);
  ran(t, sum, 0, 5, 10, 0, 2);
  const Analysis analysis = analyse(t, describe(p.plan));
  CHECK(analysis.ops == 1);
  CHECK(analysis.communication.base() == Approx(10e-6));
}

TEST_CASE("a send waits for its receive", "[timeline]") {
  // Rank 0 sends to rank 1 from 0 on; rank 1 computes until 8 and receives 8-10.
  SmallPlan p{2};
  const OpId send = p.add("send", Send{.peer = {0, +1}, .tag = 7, .bytes = Bytes{64}}, Stream::Comm);
  p.begin_class(1);
  const OpId compute = p.add("compute", gemm());
  const OpId receive = p.add("receive", Recv{.peer = {0, -1}, .tag = 7, .bytes = Bytes{64}}, Stream::Comm, {compute});
  Timeline t;
  ran(t, send, 0, 0, 10);
  ran(t, compute, 1, 0, 8);
  ran(t, receive, 1, 8, 10);
  const Analysis analysis = analyse(t, describe(p.plan));
  CHECK(analysis.ranks[0].waiting_ps == 8 * kMicrosecond);
  CHECK(analysis.path.by_class_ps[kGemm] == 8 * kMicrosecond);
}

TEST_CASE("a host op that waits comes after every stream and before every later op", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  const OpId wait = p.add("wait", HostWork{}, Stream::Host);
  const OpId b = p.add("b", gemm());
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, wait, 0, 10, 16);
  ran(t, b, 0, 16, 20);
  const Analysis analysis = analyse(t, describe(p.plan));
  CHECK(analysis.path.segments.size() == 3);  // without the host op, b would follow a after a gap of 6 us
  CHECK(analysis.path.gap_ps == 0);
}

TEST_CASE("the second execution of a plan follows the last end of the first", "[timeline]") {
  SmallPlan p{2};
  const OpId a = p.add("a", gemm());
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, a, 1, 0, 12);
  ran(t, a, 0, 12, 30, 1);
  const Analysis analysis = analyse(t, describe(p.plan));
  REQUIRE(analysis.path.segments.size() == 2);
  CHECK(t.spans[analysis.path.segments[0].span].rank == RankId{1});
}

TEST_CASE("peaks are summed by role and name the op", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  p.plan.layouts.push_back(Layout::contiguous({16}));
  for (const TensorRole role : {TensorRole::Parameter, TensorRole::Activation, TensorRole::Activation})
    p.plan.tensors.push_back({p.plan.names.intern("t"), LayoutId{0}, {}, DType::F32, role});
  Timeline t;
  ran(t, a, 0, 0, 1);
  t.peaks.push_back(
      {RankId{0}, Tier::Device, 448, 512, a, 0, {{TensorId{1}, 256}, {TensorId{2}, 128}, {TensorId{0}, 64}}});
  const Analysis analysis = analyse(t, describe(p.plan));
  const PeakSummary* peak = highest_peak(analysis);
  REQUIRE(peak != nullptr);
  CHECK(peak->op == "a");
  CHECK(peak->by_role[static_cast<std::size_t>(TensorRole::Activation)] == 384);
  CHECK(peak->largest.front().bytes == 256);
  CHECK(highest_peak(analysis, Tier::Host) == nullptr);
}

TEST_CASE("throughput divides the purposes of the executed plans by the makespan", "[timeline]") {
  // Two executions of 100 tokens and 1 GFLOP in 20 us on a machine of 500 TFLOP/s: 200/20us = 10 M/s; 2e9/(5e14·2e-5) =
  // 0.2.
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  p.plan.purpose = {100, Flops{1e9}};
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, a, 0, 10, 20, 1);
  const Throughput out = throughput(t, describe(p.plan), FlopsPerSecond{5e14});
  CHECK(out.tokens_per_second == Approx(1e7));
  CHECK(out.mfu == Approx(0.2));
  CHECK(out.per_instance.base() == Approx(10e-6));
}

TEST_CASE("an empty timeline has an empty analysis", "[timeline]") {
  const Analysis analysis = analyse(Timeline{}, {});
  CHECK(analysis.path.segments.empty());
  CHECK(analysis.makespan == Seconds{});
}
