// SPDX-License-Identifier: Apache-2.0
// What a plan says of its repetitions makes an analysis fast and nothing else.
#include <catch2/catch.hpp>

#include "sim/base/random.hpp"
#include "sim/timeline/analysis.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;

namespace {

constexpr auto kGemm = static_cast<std::size_t>(OpClass::Gemm);
constexpr auto kCollective = static_cast<std::size_t>(OpClass::Collective);
constexpr auto kPointToPoint = static_cast<std::size_t>(OpClass::PointToPoint);
constexpr auto kCompute = static_cast<std::size_t>(Stream::Compute);

Work send(std::int64_t tag) { return Send{.peer = {0, +1}, .tag = tag, .bytes = Bytes{64}}; }
Work receive(std::int64_t tag) { return Recv{.peer = {0, -1}, .tag = tag, .bytes = Bytes{64}}; }

/// Repeats the ops from `like` on at the end of a plan.
void repeat(Plan& plan, OpId like, std::uint32_t num_ops) {
  plan.repetitions.push_back({OpId{plan.ops.size()}, like, num_ops});
  for (std::uint32_t i = 0; i < num_ops; ++i) plan.ops.push_back(Op{plan.ops[like.index() + i]});
  plan.classes.back().num_ops += num_ops;
}

/// up sum down, all on the compute stream, three times; a message after the first.
struct Blocks {
  SmallPlan p{2};
  OpId up = p.add("up", gemm());
  OpId sum = p.add("sum", all_reduce());
  OpId down = p.add("down", gemm());
  OpId message = p.add("message", send(1), Stream::SendNext);
  Timeline t;
  Blocks() {
    repeat(p.plan, up, 3);
    repeat(p.plan, up, 3);
  }
  /// The ops of the block whose first one this is, after one another.
  void block_ran(std::size_t first, std::int64_t start_us) {
    ran(t, OpId{first}, 0, start_us, start_us + 4);
    ran(t, OpId{first + 1}, 0, start_us + 4, start_us + 9);
    ran(t, OpId{first + 2}, 0, start_us + 9, start_us + 12);
  }
};

PlanDigests without_repetitions(Plan plan) {
  plan.repetitions.clear();
  return describe(plan);
}

void check_same(const Timeline& t, const PlanDigests& a, const PlanDigests& b) {
  const SpanGraph graph_a{t, a}, graph_b{t, b};
  for (SpanIndex s = 0; s < t.spans.size(); ++s) {
    const auto meets_a = graph_a.meeting(s), meets_b = graph_b.meeting(s);
    CHECK(std::equal(meets_a.begin(), meets_a.end(), meets_b.begin(), meets_b.end()));
  }
  const Analysis x = analyse(t, a, graph_a), y = analyse(t, b, graph_b);
  REQUIRE(x.ranks.size() == y.ranks.size());
  for (std::size_t r = 0; r < x.ranks.size(); ++r) {
    CHECK(x.ranks[r].exposed_ps == y.ranks[r].exposed_ps);
    CHECK(x.ranks[r].waiting_ps == y.ranks[r].waiting_ps);
    CHECK(x.ranks[r].idle_ps == y.ranks[r].idle_ps);
    CHECK(x.ranks[r].longest_idle_start_ps == y.ranks[r].longest_idle_start_ps);
    CHECK(x.ranks[r].longest_idle_end_ps == y.ranks[r].longest_idle_end_ps);
    CHECK(x.ranks[r].busy_ps == y.ranks[r].busy_ps);
    CHECK(x.ranks[r].running_ps == y.ranks[r].running_ps);
    CHECK(x.ranks[r].ops == y.ranks[r].ops);
  }
}

constexpr Stream kStreams[] = {Stream::Compute,  Stream::Compute,  Stream::Compute,
                               Stream::SendNext, Stream::RecvPrev, Stream::Comm};

/// Blocks of random ops on random streams, copies of them, and single ops in between.
Plan random_plan(Random& random, std::int64_t ranks) {
  SmallPlan p{ranks};
  const std::uint64_t blocks = 1 + random.below(2), ops = 2 + random.below(6);
  std::vector<OpId> firsts;
  for (std::uint64_t b = 0; b < blocks; ++b)
    for (std::uint64_t i = 0; i < ops; ++i) {
      const Stream stream = kStreams[random.below(std::size(kStreams))];
      const bool adds = stream == Stream::Comm || random.below(3) == 0;
      const Work work = stream == Stream::SendNext   ? send(std::int64_t(random.below(2)))
                        : stream == Stream::RecvPrev ? receive(std::int64_t(random.below(2)))
                                                     : (adds ? all_reduce() : gemm());
      const OpId op = p.add("op", work, stream);
      if (i == 0) firsts.push_back(op);
    }
  for (int copy = 0; copy < 12; ++copy) {
    repeat(p.plan, firsts[random.below(blocks)], static_cast<std::uint32_t>(ops));
    if (random.below(2) == 0) p.add("single", random.below(2) == 0 ? gemm() : send(0), Stream::SendNext);
  }
  return p.plan;
}

/// Ops one after another on each stream; those of the compute stream mostly without a gap, and mostly as long as the
/// others of their work.
Timeline random_timeline(Random& random, const Plan& plan, const std::vector<std::size_t>& ranks) {
  Timeline t;
  const bool overlaps = random.below(8) == 0;  // as it may be in a measured timeline
  for (const std::size_t rank : ranks) {
    std::array<std::int64_t, kNumStreams> free{};
    for (std::size_t op = 0; op < plan.ops.size(); ++op) {
      const auto stream = static_cast<std::size_t>(plan.ops[op].stream);
      std::int64_t start = free[stream];
      if (stream != kCompute) start = std::max(start, free[kCompute] - std::int64_t(random.below(6)));
      if (random.below(12) == 0) start += std::int64_t(random.below(4)) - (overlaps ? 1 : 0);
      start = std::max<std::int64_t>(start, 0);
      const std::int64_t usual = 1 + std::int64_t(plan.ops[op].work.value % 5);
      const std::int64_t end = start + (random.below(15) == 0 ? std::int64_t(random.below(9)) : usual);
      ran(t, OpId{op}, rank, start, end);
      free[stream] = end;
    }
  }
  return t;
}

}  // namespace

TEST_CASE("ops of copies count like those of the block that they repeat", "[timeline]") {
  Blocks f;
  f.block_ran(0, 0);
  ran(f.t, f.message, 0, 12, 14);
  f.block_ran(4, 12);
  f.block_ran(7, 26);
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  // Blocks from 0, 12 and 26: of each 4 + 3 us of GEMM and 5 of the collective, which nobody else was recorded in. The
  // message runs beside a GEMM, and 24-26 is idle.
  const RankTime& r = analysis.ranks.front();
  CHECK(r.exposed_ps[kGemm] == 21 * kMicrosecond);
  CHECK(r.exposed_ps[kCollective] == 15 * kMicrosecond);
  CHECK(r.exposed_ps[kPointToPoint] == 0);
  CHECK(r.idle_ps == 2 * kMicrosecond);
  CHECK(r.busy_ps[kCompute] == 36 * kMicrosecond);
  CHECK(r.running_ps[kPointToPoint] == 2 * kMicrosecond);
  CHECK(r.ops == 10);
}

TEST_CASE("a message beside the collective of a copy comes first in line", "[timeline]") {
  Blocks f;
  f.block_ran(0, 0);
  ran(f.t, f.message, 0, 15, 19);
  f.block_ran(4, 12);
  f.block_ran(7, 24);
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  // The second block sums from 16 to 21, of which 16-19 goes to the message; 15-16 belongs to a GEMM.
  CHECK(analysis.ranks[0].exposed_ps[kPointToPoint] == 3 * kMicrosecond);
  CHECK(analysis.ranks[0].exposed_ps[kCollective] == 12 * kMicrosecond);
  CHECK(analysis.ranks[0].exposed_ps[kGemm] == 21 * kMicrosecond);
}

TEST_CASE("a copy that took longer than another is not taken for it", "[timeline]") {
  Blocks f;
  f.block_ran(0, 0);
  ran(f.t, f.message, 0, 0, 1);
  f.block_ran(4, 12);
  ran(f.t, OpId{std::size_t{7}}, 0, 24, 30);  // 6 us in place of 4
  ran(f.t, OpId{std::size_t{8}}, 0, 30, 35);
  ran(f.t, OpId{std::size_t{9}}, 0, 36, 39);  // a microsecond late
  const Analysis analysis = analyse(f.t, describe(f.p.plan));
  CHECK(analysis.ranks[0].exposed_ps[kGemm] == (7 + 7 + 9) * kMicrosecond);
  CHECK(analysis.ranks[0].idle_ps == kMicrosecond);
}

TEST_CASE("an analysis is the same whether a plan says what it repeats or not", "[timeline]") {
  const auto seed = GENERATE(range(std::uint64_t{0}, std::uint64_t{300}));
  CAPTURE(seed);
  Random random{seed};
  const std::vector<std::size_t> recorded = random.below(3) == 0   ? std::vector<std::size_t>{0}
                                            : random.below(2) == 0 ? std::vector<std::size_t>{0, 1}
                                                                   : std::vector<std::size_t>{0, 1, 2};
  const Plan plan = random_plan(random, 4);
  Timeline t = random_timeline(random, plan, recorded);
  check_same(t, describe(plan), without_repetitions(plan));
  if (random.below(2) == 0) {  // some op was not recorded
    const std::uint64_t which = random.below(2) == 0 ? 0 : random.below(t.spans.size());
    t.spans.erase(t.spans.begin() + static_cast<std::ptrdiff_t>(which));
    check_same(t, describe(plan), without_repetitions(plan));
  }
}

TEST_CASE("ops are cut into copies and what lies between them", "[timeline]") {
  Blocks f;
  f.p.add("last", gemm());
  const PlanDigest plan = digest(f.p.plan);
  const Patterns patterns{plan};
  // 0-3 are the block and the message, 4-6 and 7-9 copies of the block, 10 is the last op.
  CHECK(patterns.size() == 1);
  const std::vector<Patterns::Piece> all = patterns.pieces(0, 11);
  REQUIRE(all.size() == 4);
  CHECK(all[0].num_ops == 4);
  CHECK(all[0].pattern == Patterns::kNone);
  CHECK(all[1].first == 4);
  CHECK(all[1].pattern == 0);
  CHECK(all[2].pattern == all[1].pattern);
  CHECK(all[3].first == 10);
  const std::vector<Patterns::Piece> some = patterns.pieces(5, 4);  // neither copy is wholly in 5-8
  REQUIRE(some.size() == 1);
  CHECK(some[0].num_ops == 4);
}

TEST_CASE("a rank whose ops ran whole and without a hole is in line", "[timeline]") {
  Blocks f;
  f.block_ran(0, 0);
  CHECK(SpanTable{f.t}.blocks()[0].is_in_line);
  ran(f.t, OpId{std::size_t{4}}, 0, 12, 13);  // op 3 is not there
  CHECK_FALSE(SpanTable{f.t}.blocks()[0].is_in_line);
  f.t.spans.back().op = f.message;
  CHECK(SpanTable{f.t}.blocks()[0].is_in_line);
  f.t.spans.back().part = 1;
  CHECK_FALSE(SpanTable{f.t}.blocks()[0].is_in_line);
}

TEST_CASE("of spans that end at once the first in the timeline is the last of its instance", "[timeline]") {
  Blocks f;
  ran(f.t, f.up, 0, 0, 5);
  ran(f.t, f.sum, 0, 5, 9);
  ran(f.t, f.up, 1, 0, 9);
  ran(f.t, f.up, 0, 9, 10, 1);
  CHECK(SpanTable{f.t}.last_of_instances() == std::vector<SpanIndex>{1, 3});
  std::swap(f.t.spans[1], f.t.spans[2]);  // now the timeline is not in order
  CHECK(SpanTable{f.t}.last_of_instances() == std::vector<SpanIndex>{1, 3});
}
