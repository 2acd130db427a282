// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/reuse.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/machine/cost.hpp"
#include "sim/plan/builder.hpp"
#include "sim/plan/execution_history.hpp"
#include "sim/plan/stretches.hpp"
#include "tests/unit_cost.hpp"

using namespace orrery;

namespace {

constexpr double kKiB = 1024;
constexpr double kStep = 0.06;  // distances are told apart in steps of a seventh of a doubling

Work fill(std::int64_t kib, double value = 0) { return Fill{.elements = kib * 1024 / 4, .value = value}; }
Shape floats(std::int64_t kib) { return {kib * 1024 / 4}; }

/// What the ops of a work touch.
Reuse reuse_of(const Plan& plan, const Work& work) {
  const auto at = std::find(plan.works.begin(), plan.works.end(), work);
  REQUIRE(at != plan.works.end());
  return reuse_of_works(plan, {})[static_cast<std::size_t>(at - plan.works.begin())];
}

/// Writes x of 64 KiB, y of 128 KiB twice, and x again; returns x.
TensorId write_around(PlanBuilder& b) {
  const TensorSpec kept{.persistent = true};
  const TensorId x = b.tensor("x", floats(64), kept), y = b.tensor("y", floats(128), kept);
  b.add("x", fill(64, 1), {writes(x)});
  b.add("y", fill(128), {writes(y)});
  b.add("y again", fill(128, 1), {writes(y)});
  b.add("x again", fill(64, 2), {writes(x)});
  return x;
}

}  // namespace

TEST_CASE("between two uses lies what else was touched, once each", "[plan]") {
  PlanBuilder b{"p"};
  write_around(b);
  const Plan plan = b.take(nullptr);

  // x: 15 of its own 16 pieces of 4 KiB, and y, which counts once though it was written twice.
  const Reuse again = reuse_of(plan, fill(64, 2));
  REQUIRE(again.touches.size() == 1);
  CHECK(again.touches[0].writes);
  CHECK_FALSE(again.touches[0].reads);
  CHECK(again.touches[0].bytes.base() == Approx(64 * kKiB));
  CHECK(again.touches[0].distance.base() == Approx(188 * kKiB).epsilon(kStep));
  // The step before ended with x.
  const Reuse first = reuse_of(plan, fill(64, 1));
  REQUIRE(first.touches.size() == 1);
  CHECK(first.touches[0].distance.base() == Approx(60 * kKiB).epsilon(kStep));
  CHECK(reuse_of(plan, fill(128)).touches[0].distance.base() == Approx((64 + 124) * kKiB).epsilon(kStep));
  CHECK(reuse_of(plan, fill(128, 1)).touches[0].distance.base() == Approx(124 * kKiB).epsilon(kStep));
}

TEST_CASE("what kernels write by themselves lies between two uses too", "[plan]") {
  struct : WorkspaceModel {
    Bytes workspace(const Work& work) const override {
      return std::get<Fill>(work).elements == 128 * 256 ? Bytes{256 * kKiB} : Bytes{};
    }
  } of_y;
  PlanBuilder b{"p"};
  const TensorId x = write_around(b);
  b.add("x once more", fill(64, 3), {writes(x)});
  const Plan plan = b.take(&of_y);

  const auto distance = [&](const Work& work) {
    const Reuse r = reuse_of(plan, work);
    REQUIRE(r.touches.size() == 1);  // the scratch is none of them
    return r.touches[0].distance.base();
  };
  // Both use the same 256 KiB, which count once, as y does.
  CHECK(distance(fill(64, 2)) == Approx((60 + 128 + 256) * kKiB).epsilon(kStep));
  CHECK(distance(fill(128, 1)) == Approx((124 + 248) * kKiB).epsilon(kStep));
  CHECK(distance(fill(64, 3)) == Approx(60 * kKiB).epsilon(kStep));  // x uses none
}

TEST_CASE("ops of one work are counted together, what they touch by distance", "[plan]") {
  PlanBuilder b{"p"};
  const TensorSpec kept{.persistent = true};
  const TensorId x = b.tensor("x", floats(64), kept), y = b.tensor("y", floats(1024), kept);
  b.add("x", fill(64), {writes(x)});
  b.add("x again", fill(64), {writes(x)});
  b.add("y", fill(1024), {writes(y)});
  const Reuse r = reuse_of(b.take(nullptr), fill(64));
  REQUIRE(r.touches.size() == 2);
  for (const Touch& t : r.touches) CHECK(t.bytes.base() == Approx(32 * kKiB));  // half of the ops
  CHECK(r.touches[0].distance.base() == Approx(60 * kKiB).epsilon(kStep));
  CHECK(r.touches[1].distance.base() == Approx((1024 + 60) * kKiB).epsilon(kStep));
}

TEST_CASE("what lies beside a tensor does not bring it into a cache", "[plan]") {
  PlanBuilder b{"p"};
  const TensorSpec kept{.persistent = true};
  const Shape few{128};  // 512 bytes
  const auto write = [](double value) { return Fill{.elements = 128, .value = value}; };
  const TensorId x = b.tensor("x", few, kept), y = b.tensor("y", few, kept), z = b.tensor("z", floats(1024), kept);
  b.add("x", write(1), {writes(x)});
  b.add("y", write(2), {writes(y)});
  b.add("z", fill(1024), {writes(z)});
  b.add("y again", write(3), {writes(y)});
  b.add("x again", write(4), {writes(x)});
  const Plan plan = b.take(nullptr);
  const Reuse again = reuse_of(plan, write(4));
  REQUIRE(again.touches.size() == 1);
  CHECK(again.touches[0].bytes.base() == Approx(512));
  CHECK(again.touches[0].distance.base() == Approx(1025 * kKiB).epsilon(kStep));  // z and y
  CHECK(reuse_of(plan, write(3)).touches[0].distance.base() == Approx(1024 * kKiB).epsilon(kStep));
  CHECK(reuse_of(plan, write(1)).touches[0].distance.base() <= 64);
}

TEST_CASE("columns of one tensor that an op takes as several operands were all used before it", "[plan]") {
  constexpr std::int64_t kRows = 16, kWidth = 128, kAll = 3 * kWidth;  // floats; three rows in four pieces of 4 KiB
  PlanBuilder b{"p"};
  const TensorSpec kept{.persistent = true};
  const TensorId fused = b.tensor("qkv", {kRows, kAll}, kept), other = b.tensor("other", floats(256), kept);
  const auto columns = [&](std::string_view name, std::int64_t first) {
    Layout part{{kRows, kWidth}};
    part.strides = {kAll, 1};
    part.offset = first;
    return b.view(fused, name, part);
  };
  const TensorId q = columns("q", 0), k = columns("k", kWidth), v = columns("v", 2 * kWidth);
  b.add("other", fill(256), {writes(other)});
  b.add("attention", fill(8), {reads(q), reads(k), reads(v)});
  const Reuse r = reuse_of(b.take(nullptr), fill(8));
  double bytes[3] = {};
  for (const Touch& t : r.touches) {
    bytes[t.operand] += t.bytes.base();
    CHECK(t.distance.base() >= 256 * kKiB);
  }
  for (const double of_operand : bytes) CHECK(of_operand == Approx(8 * kKiB));
}

TEST_CASE("an op that touches part of what was touched together splits it", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = b.tensor("x", floats(4), {.persistent = true}),
                 z = b.tensor("z", floats(64), {.persistent = true});
  const TensorId half = b.view(x, "half", Layout::contiguous(floats(2)));
  b.add("x", fill(4, 1), {writes(x)});
  b.add("z", fill(64), {writes(z)});
  b.add("half", fill(2), {writes(half)});
  b.add("x again", fill(4, 2), {writes(x)});
  const Reuse r = reuse_of(b.take(nullptr), fill(4, 2));
  REQUIRE(r.touches.size() == 2);
  CHECK(r.touches[0].bytes.base() == Approx(2 * kKiB));
  CHECK(r.touches[0].distance.base() <= 64);
  CHECK(r.touches[1].bytes.base() == Approx(2 * kKiB));
  CHECK(r.touches[1].distance.base() == Approx(66 * kKiB).epsilon(kStep));
}

TEST_CASE("a lookup touches the rows that random picks meet, each once", "[plan]") {
  constexpr std::int64_t kRows = 1024, kCols = 256;  // 1 KiB per row
  PlanBuilder b{"p"};
  const TensorId table = b.tensor("table", {kRows, kCols}, {.persistent = true}),
                 x = b.tensor("x", {kRows, kCols}, {.persistent = true}),
                 index = b.tensor("index", {kRows}, {.dtype = DType::I32, .persistent = true});
  const Fill all{.elements = kRows * kCols};
  b.add("table", all, {writes(table)});
  b.add("pick", ScatterAdd{.rows = kRows, .cols = kCols, .table_rows = kRows, .first = 0, .last = kRows},
        {reads(x), reads(index), updates(table)});
  const Reuse r = reuse_of(b.take(nullptr), all);
  // 1 − 1/e of the rows have x and themselves between two uses, 1.63 MiB; the others all of the table.
  double near = 0, far = 0;
  for (const Touch& t : r.touches) (t.distance.base() < 1.8 * double(kRows) * kKiB ? near : far) += t.bytes.base();
  CHECK(near / (near + far) == Approx(1 - std::exp(-1)).epsilon(0.02));
}

TEST_CASE("a lookup whose indices the plan holds touches the rows that they name", "[plan]") {
  constexpr std::int64_t kRows = 1024, kCols = 256, kNamed = 256;
  PlanBuilder b{"p"};
  const TensorId table = b.tensor("table", {kRows, kCols}, {.persistent = true}),
                 x = b.tensor("x", {kRows, kCols}, {.persistent = true}),
                 index = b.tensor("index", {kRows}, {.dtype = DType::I32, .persistent = true});
  b.add("pick", Gather{.rows = kRows, .cols = kCols, .table_rows = kRows, .first = 0, .last = kRows},
        {reads(table), reads(index), writes(x)});
  Plan plan = b.take(nullptr);
  plan.constants.push_back({index, ClassId{0}, [](std::span<const std::int64_t>) {
                              std::vector<double> rows;
                              for (std::int64_t i = 0; i < kRows; ++i) rows.push_back(double(i % kNamed));
                              rows[3] = -1;  // none
                              return rows;
                            }});
  const std::vector<Reach> reach = reach_of_works(plan, {});
  REQUIRE(reach.size() == 1);
  CHECK(reach[0].of(0).base() == kNamed * kKiB);
  CHECK(reach[0].of(2).base() > kRows * kKiB);
}

TEST_CASE("between two uses lies arithmetic too", "[plan]") {
  PlanBuilder b{"p"};
  const TensorSpec kept{.persistent = true};
  const TensorId x = b.tensor("x", floats(64), kept), m = b.tensor("m", {64, 64}, kept);
  const Work product{Gemm{.m = 64, .n = 64, .k = 64}};
  b.add("x", fill(64, 1), {writes(x)});
  b.add("product", product, {reads(m), reads(m), writes(b.tensor("out", {64, 64}, {}))});
  b.add("product again", product, {reads(m), reads(m), writes(b.tensor("out again", {64, 64}, {}))});
  b.add("x again", fill(64, 2), {writes(x)});
  const Plan plan = b.take(nullptr);
  // Two products of 2·64³ FLOP, in steps of a third of a doubling.
  CHECK(reuse_of(plan, fill(64, 2)).touches[0].work.base() == Approx(2 * 2 * 64.0 * 64 * 64).epsilon(0.13));
  CHECK(reuse_of(plan, fill(64, 1)).touches[0].work.base() <= 1);
}

TEST_CASE("storage that is taken is what was given back before", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId kept = b.tensor("kept", floats(256), {.persistent = true});
  const TensorId first = b.tensor("first", floats(64), {}), second = b.tensor("second", floats(64), {});
  b.add("first", fill(64, 1), {writes(first)});
  b.add("kept", fill(256), {writes(kept)});
  b.add("second", fill(64, 2), {writes(second)});
  const Plan plan = b.take(nullptr);
  CHECK(reuse_of(plan, fill(64, 2)).touches[0].distance.base() == Approx((60 + 256) * kKiB).epsilon(kStep));
  CHECK(reuse_of(plan, fill(64, 1)).touches[0].distance.base() == Approx(60 * kKiB).epsilon(kStep));
}

TEST_CASE("a touch tells whether it reaches back to the execution before", "[plan]") {
  PlanBuilder b{"p"};
  const TensorId x = b.tensor("x", floats(64), {.persistent = true});
  b.add("x", fill(64, 1), {writes(x)});
  b.add("x again", fill(64, 2), {writes(x)});
  const Plan plan = b.take(nullptr);
  REQUIRE(reuse_of(plan, fill(64, 1)).touches.size() == 1);
  CHECK(reuse_of(plan, fill(64, 1)).touches[0].carried);
  CHECK_FALSE(reuse_of(plan, fill(64, 2)).touches[0].carried);
}

TEST_CASE("between two executions of a plan lies what others touched, and it is counted how often it ran since",
          "[plan]") {
  const auto plan_of = [](std::vector<std::pair<const char*, std::int64_t>> tensors) {
    PlanBuilder b{"p"};
    for (const auto& [name, kib] : tensors)
      b.add(name, fill(kib), {writes(b.tensor(name, floats(kib), {.persistent = true}))});
    return b.take(nullptr);
  };
  const Plan target = plan_of({{"w", 64}, {"head", 32}}), draft = plan_of({{"d", 16}, {"head", 4}});
  ExecutionHistory history;
  const auto next = [&](const Plan& plan) {
    Bindings bindings;
    history.next(plan, bindings);
    CHECK(bindings.working_set == working_set(plan, {}).base());
    return bindings.before;
  };
  CHECK(next(target) == Interlude{kBeyondCaches, 1});  // nobody has touched w
  CHECK(next(target) == Interlude{kBeyondCaches, 2});
  CHECK(next(draft) == Interlude{kBeyondCaches, 1});  // nor d, which is most of it
  CHECK(next(draft) == Interlude{kBeyondCaches, 2});
  // Most of what it touches is w, behind which d was touched; the head is what both share.
  CHECK(next(target) == Interlude{16 * kKiB, 1});
  for (std::int32_t i = 1; i <= 32; ++i) CHECK(next(draft) == Interlude{64 * kKiB, i});
  CHECK(next(draft) == Interlude{});
  CHECK(next(target) == Interlude{16 * kKiB, 1});
  // Another plan with the same weights is the same to a cache.
  CHECK(next(plan_of({{"w", 64}, {"head", 32}, {"logits", 1}})) == Interlude{16 * kKiB, 2});
}

TEST_CASE("executions that are alike share what was found of their plan", "[machine]") {
  const auto plan_of = [](std::int64_t kib) {
    PlanBuilder b{"p"};
    b.add("x", fill(kib), {writes(b.tensor("x", floats(kib), {.persistent = true}))});
    return b.take(nullptr);
  };
  const Plan small = plan_of(64), large = plan_of(128);
  KnownReuse known;
  Bindings at_100, at_101, at_120;  // 0b1100100, 0b1100101, 0b1111000: the first two round to 0b1101000
  at_100[Symbol::Context] = 100, at_101[Symbol::Context] = 101, at_120[Symbol::Context] = 120;
  const KnownReuse::Works first = known.of(small, at_100);
  CHECK(known.of(small, at_101) == first);
  CHECK(known.of(small, at_120) != first);
  CHECK(known.of(large, at_100) != first);
  CHECK(known.of(small, at_100) == first);
  at_100.before = {1e6, 1};
  CHECK(known.of(small, at_100) == first);
  at_100.working_set = 1e6;
  CHECK(known.of(small, at_100) == first);
}

TEST_CASE("what a plan touches is counted where the cost model looks at caches, else there is something", "[machine]") {
  class WithCaches final : public testing::UnitCost {
    bool sees_reuse() const override { return true; }
  };
  PlanBuilder b{"p"};
  b.add("x", fill(64), {writes(b.tensor("x", floats(64), {.persistent = true}))});
  const Plan plan = b.take(nullptr);
  KnownReuse known;
  CHECK(Surroundings{plan, {}, WithCaches{}, known}.bindings().working_set == 64 * kKiB);
  CHECK(Surroundings{plan, {}, testing::UnitCost{}, known}.bindings().working_set == 1);
  Bindings behind_others;
  behind_others.before = {1000 * kKiB, 1};
  CHECK(Surroundings{plan, behind_others, WithCaches{}, known}.bindings().working_set == 1064 * kKiB);
  behind_others.before.executions = 2;
  CHECK(Surroundings{plan, behind_others, WithCaches{}, known}.bindings().working_set == 64 * kKiB);
  behind_others.working_set = 65 * kKiB;  // whoever executes has looked already
  CHECK(Surroundings{plan, behind_others, WithCaches{}, known}.bindings().working_set == 65 * kKiB);
  CHECK(Surroundings{plan, behind_others, testing::UnitCost{}, known}.bindings().working_set == 1);
}
