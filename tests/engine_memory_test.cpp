// SPDX-License-Identifier: Apache-2.0
// Live bytes, peaks and arenas that the engine predicts.
#include <catch2/catch.hpp>

#include "sim/plan/builder.hpp"
#include "tests/engine_plans.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kKiB = 1024;

Peak only_peak(const Timeline& t, Tier tier = Tier::Device) {
  for (const Peak& p : t.peaks)
    if (p.tier == tier) return p;
  FAIL("no peak on this tier");
  return {};
}

}  // namespace

TEST_CASE("the peak counts what is live at once, and names it largest first", "[engine][memory]") {
  // w (4 KiB) is there throughout; x (2 KiB) lives over ops 0 and 1, y (1 KiB) over 1 and 2, z (1 KiB) in op 2 only.
  // Op 0: 6, op 1: 7, op 2: 4 + 1 + 1 = 6 KiB.
  RawPlan p;
  const TensorId w = p.tensor("w", 4 * kKiB, true), x = p.tensor("x", 2 * kKiB), y = p.tensor("y", kKiB),
                 z = p.tensor("z", kKiB);
  p.add("a", lasting(10), Stream::Compute, {}, {{w, Access::Read}, taking(x)});
  const OpId b = p.add("b", lasting(10), Stream::Compute, {}, {giving(x), taking(y)});
  Operand both = taking(z);
  both.set_frees(true);
  p.add("c", lasting(10), Stream::Compute, {}, {giving(y), both});
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{1}, {.record = Record::SpansAndMemory});
  const Peak peak = only_peak(t);
  CHECK(peak.bytes == 7 * kKiB);
  CHECK(peak.op == b);
  CHECK(peak.arena_bytes == 7 * kKiB);  // w at 0, x at 4, y at 6; z goes where x was
  using Owner = std::pair<TensorId, std::int64_t>;
  CHECK(peak.owners == std::vector<Owner>{{w, 4 * kKiB}, {x, 2 * kKiB}, {y, kKiB}});
  // At 10 ns x is not yet given back when y is taken; at 20 ns it is when z is taken.
  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{
      {0, 6 * kKiB}, {10 * kNs, 7 * kKiB}, {20 * kNs, 6 * kKiB}, {30 * kNs, 4 * kKiB}};
  std::vector<std::pair<std::int64_t, std::int64_t>> samples;
  for (const MemorySample& s : t.memory) samples.emplace_back(s.at_ps, s.bytes);
  CHECK(samples == expected);
}

TEST_CASE("storage given back at an instant serves what is taken at that instant", "[engine][memory]") {
  // Streams end a and start b at the same 10 ns; only one of the two KiB is ever live.
  RawPlan p;
  const TensorId x = p.tensor("x", kKiB), y = p.tensor("y", kKiB);
  Operand whole_x = taking(x), whole_y = taking(y);
  whole_x.set_frees(true);
  whole_y.set_frees(true);
  p.add("wait", lasting(10), Stream::Comm);
  p.add("b", lasting(10), Stream::Comm, {}, {whole_y});
  p.add("a", lasting(10), Stream::Compute, {}, {whole_x});
  CHECK(only_peak(simulate(p.plan, {}, TableCost{}, NodeResources{1})).bytes == kKiB);
}

TEST_CASE("a tensor with last uses on two streams lives until the later one", "[engine][memory]") {
  // x is read until 20 on Compute and until 50 on Comm; y is taken at 20: both are live.
  RawPlan p;
  const TensorId x = p.tensor("x", kKiB), y = p.tensor("y", kKiB);
  const OpId a = p.add("a", lasting(10), Stream::Compute, {}, {taking(x)});
  p.add("b", lasting(10), Stream::Compute, {}, {giving(x)});
  p.add("slow", lasting(40), Stream::Comm, {a}, {giving(x)});
  const OpId c = p.add("c", lasting(10), Stream::Compute, {}, {taking(y)});
  p.add("d", lasting(10), Stream::Compute, {}, {giving(y)});
  const Peak peak = only_peak(simulate(p.plan, {}, TableCost{}, NodeResources{1}));
  CHECK(peak.bytes == 2 * kKiB);
  CHECK(peak.op == c);
}

TEST_CASE("sizes round up to the unit of storage, and tiers count apart", "[engine][memory]") {
  RawPlan p;
  const TensorId odd = p.tensor("odd", 1, true), host = p.tensor("host", 65, true, Tier::Pinned);
  p.add("a", lasting(1), Stream::Compute, {}, {{odd, Access::Read}, {host, Access::Read}});
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{1});
  CHECK(only_peak(t).bytes == 64);
  CHECK(only_peak(t).op.is_none());
  CHECK(only_peak(t, Tier::Pinned).bytes == 128);
  CHECK(t.peaks.size() == 2);
}

TEST_CASE("fragmentation shows in the arena, not in the bytes", "[engine][memory]") {
  // a b c of 1 KiB each at 0, 1, 2; a and c go, 2 KiB are free but not together below b's end: d (2 KiB) goes to 2 … 4
  // after b at 1 … 2.
  RawPlan p;
  const TensorId a = p.tensor("a", kKiB), b = p.tensor("b", kKiB), d = p.tensor("d", 2 * kKiB);
  p.add("make a b", lasting(1), Stream::Compute, {}, {taking(a), taking(b)});
  p.add("drop a", lasting(1), Stream::Compute, {}, {giving(a)});
  p.add("make d", lasting(1), Stream::Compute, {}, {taking(d)});
  p.add("drop", lasting(1), Stream::Compute, {}, {giving(b), giving(d)});
  const Peak peak = only_peak(simulate(p.plan, {}, TableCost{}, NodeResources{1}));
  CHECK(peak.bytes == 3 * kKiB);
  CHECK(peak.arena_bytes == 4 * kKiB);
}

TEST_CASE("plans on one engine share persistent tensors of equal name, tier and size", "[engine][memory]") {
  RawPlan prefill, decode;
  const TensorId w1 = prefill.tensor("w", 4 * kKiB, true);
  prefill.add("a", lasting(1), Stream::Compute, {}, {{w1, Access::Read}});
  const TensorId own = decode.tensor("state", kKiB, true), w2 = decode.tensor("w", 4 * kKiB, true);
  decode.add("b", lasting(1), Stream::Compute, {}, {{w2, Access::Read}, {own, Access::Read}});
  const TableCost cost;
  const NodeResources resources{1};
  Engine engine{cost, resources};
  engine.execute(prefill.plan, {});
  for (int i = 0; i < 3; ++i) engine.execute(decode.plan, {});
  const Peak peak = only_peak(engine.take());
  CHECK(peak.bytes == 5 * kKiB);
  CHECK(peak.arena_bytes == 5 * kKiB);
  CHECK(peak.instance == 1);
}

TEST_CASE("what only another plan holds is one owner without a tensor", "[engine][memory]") {
  RawPlan first, second;
  const TensorId w = first.tensor("w", 4 * kKiB, true);
  first.add("a", lasting(1), Stream::Compute, {}, {{w, Access::Read}});
  const TensorId s = second.tensor("s", kKiB, true);
  second.add("b", lasting(1), Stream::Compute, {}, {{s, Access::Read}});
  const TableCost cost;
  const NodeResources resources{1};
  Engine engine{cost, resources};
  engine.execute(first.plan, {});
  engine.execute(second.plan, {});
  using Owner = std::pair<TensorId, std::int64_t>;
  CHECK(only_peak(engine.take()).owners == std::vector<Owner>{{TensorId{}, 4 * kKiB}, {s, kKiB}});
}

TEST_CASE("each expanded rank has an account of its own", "[engine][memory]") {
  RawPlan p{{{"dp", 3}}};
  p.begin_class({{0, 3}});
  const TensorId w = p.tensor("w", kKiB, true), x = p.tensor("x", kKiB);
  p.add("a", lasting(1), Stream::Compute, {}, {{w, Access::Read}, taking(x)});
  p.add("b", lasting(1), Stream::Compute, {}, {giving(x)});
  const Timeline t = simulate(p.plan, {}, TableCost{}, NodeResources{3}, {.expansion = Expansion::Expanded});
  REQUIRE(t.peaks.size() == 3);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(t.peaks[r].rank == RankId{r});
    CHECK(t.peaks[r].bytes == 2 * kKiB);
  }
}

TEST_CASE("copies of a block give back what a view of theirs has of others", "[engine][memory]") {
  // In each round x is made first; then the block takes y, sees x through a view of its own and takes z.
  constexpr std::int64_t kRounds = 4;
  const auto plan = [&](bool is_copied) {
    PlanBuilder b{"borrowing"};
    const TensorId sum = b.tensor("sum", Shape{256}, {.role = TensorRole::Gradient, .persistent = true});
    std::vector<TensorId> made;
    for (std::int64_t i = 0; i < kRounds; ++i) {
      made.push_back(b.tensor("x", Shape{1024}, {}));
      b.add("make", lasting(10), {writes(made.back())});
    }
    OpBlock block;
    for (std::int64_t i = 0; i < kRounds; ++i) {
      if (is_copied && i > 0) {
        b.repeat(block, std::vector<Replacement>{{made.front(), made[static_cast<std::size_t>(i)]}});
        continue;
      }
      const OpBlock begun = b.begin_block();
      const TensorId y = b.tensor("y", Shape{512}, {}),
                     part = b.view(made[static_cast<std::size_t>(i)], "part", Layout::contiguous(Shape{256}));
      const TensorId z = b.tensor("z", Shape{256}, {});
      b.add("begin", lasting(10), {writes(y)});
      b.add("use", lasting(10), {reads(y), reads(part), writes(z)});
      b.add("add", lasting(10), {reads(z), writes(sum)});
      block = b.end_block(begun);
    }
    return b.take(nullptr);
  };
  const auto samples = [&](const Plan& p) {
    std::vector<std::pair<std::int64_t, std::int64_t>> out;
    for (const MemorySample& s :
         simulate(p, {}, TableCost{}, NodeResources{1}, {.record = Record::SpansAndMemory}).memory)
      out.emplace_back(s.at_ps, s.bytes);
    return out;
  };
  const auto copied = samples(plan(true));
  CHECK(copied == samples(plan(false)));
  CHECK(copied.back().second == kKiB);  // the sum alone
}

TEST_CASE("memory that is not asked for is not counted", "[engine][memory]") {
  RawPlan p;
  p.add("a", lasting(1), Stream::Compute, {}, {taking(p.tensor("x", kKiB))});
  CHECK(simulate(p.plan, {}, TableCost{}, NodeResources{1}, {.track_memory = false}).peaks.empty());
}
