// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core_watch.hpp"
#include "runtime/executor.hpp"
#include "runtime/quiet_core.hpp"
#include "sim/base/random.hpp"

using namespace orrery;

namespace {

/// A product of each rank that takes some milliseconds, on as many ranks.
Plan products(std::int64_t ranks) {
  PlanBuilder b{"products", Mesh{{{"rank", ranks}}}};
  b.begin_class("all", all_of(b.plan().mesh));
  const TensorSpec kept{.role = TensorRole::Parameter, .persistent = true};
  const TensorId x = b.tensor("x", Shape{384, 384}, kept), y = b.tensor("y", Shape{384, 384}, kept);
  for (int i = 0; i < 6; ++i) b.add("product", Gemm{.m = 384, .n = 384, .k = 384}, {reads(x), reads(x), writes(y)});
  return b.take(&host_workspaces());
}

}  // namespace

TEST_CASE("a core is slowed by how much longer its samples took, over the time between them", "[runtime]") {
  CHECK(slowed_by({}) == 0);
  const auto at = [](std::int64_t ns, float seconds) { return CoreSample{ns, 0, seconds}; };
  // Relative to a quiet core, which is between one that is far too fast and one that is ten times slower than a sample.
  const float sample = sample_core(0).seconds;
  CHECK(sample > 0);
  CHECK(slowed_by(std::vector{at(0, sample / 2), at(10, sample / 2)}) <
        slowed_by(std::vector{at(0, sample), at(10, sample)}));  // a faster clock is a slowdown below 0
  const double ten = 1 + slowed_by(std::vector{at(0, 10 * sample), at(10, 10 * sample)});
  CHECK(ten > 4);  // neighbours and clocks leave this sample and a quiet core within a factor of two of each other
  CHECK(slowed_by(std::vector{at(0, 20 * sample), at(10, 20 * sample)}) == Approx(2 * ten - 1).epsilon(1e-3));
  // Half of the time at 10, all of it at 20, half of it at 10.
  CHECK(slowed_by(std::vector{at(0, 10 * sample), at(10, 20 * sample), at(30, 20 * sample), at(40, 10 * sample)}) ==
        Approx((1.5 * ten * 10 + 2 * ten * 20 + 1.5 * ten * 10) / 40 - 1).epsilon(1e-3));
}

TEST_CASE("an op is slowed by what the samples around it say", "[runtime]") {
  const auto at = [](std::int64_t ms, float times) {
    return CoreSample{ms * 1'000'000, 0, times * static_cast<float>(quiet_core())};
  };
  const std::vector samples{at(0, 1.1F), at(4, 1.1F), at(8, 1.0F), at(12, 0.9F), at(16, 0.9F), at(60, 2.0F)};
  CHECK(slowed_around({}, 0, 1) == 0);
  CHECK(slowed_around(samples, 1'000'000, 2'000'000) == Approx(0.1));
  CHECK(slowed_around(samples, 8'000'000, 12'000'000) == Approx(-0.025));
  CHECK(slowed_around(samples, 14'000'000, 15'000'000) == Approx(-0.1));
  CHECK(slowed_around(samples, 30'000'000, 31'000'000) == Approx(-0.1));  // the last one before it
  CHECK(slowed_around(samples, -90'000'000, -80'000'000) == Approx(0.1));
  CHECK(slowed_around(samples, 90'000'000, 91'000'000) == Approx(1));
}

TEST_CASE("a quiet core is the middle of the quiet samples, whatever others are like", "[runtime]") {
  // 2,000 samples of 12 µs that scatter evenly by up to 2 %, with ever more that a neighbour makes 30 to 60 % longer,
  // and 20 that a jump of the clock makes ten times shorter.
  const int disturbed = GENERATE(0, 500, 2000, 8000);
  QuietCore core;
  Random random{7};
  for (int i = 0; i < 2000; ++i) core.note(12e-6 * random.uniform(0.98, 1.02));
  for (int i = 0; i < disturbed; ++i) core.note(12e-6 * random.uniform(1.3, 1.6));
  for (int i = 0; i < 20; ++i) core.note(1.2e-6);
  CHECK(core.seconds() == Approx(12e-6).epsilon(0.01));
}

TEST_CASE("a quiet core is the middle of what clocks do, however short the fixed work", "[runtime]") {
  const double seconds = GENERATE(0.3e-6, 0.95e-6, 12e-6);
  QuietCore core;
  Random random{3};
  for (int i = 0; i < 2000; ++i) core.note(seconds * random.uniform(0.93, 1.07));
  CHECK(core.seconds() == Approx(seconds).epsilon(0.01));
}

TEST_CASE("an executor that watches cores tells of each execution how much it was slowed", "[runtime]") {
  const std::int64_t ranks = GENERATE(1, 3);
  const Plan plan = products(ranks);
  const auto watching = make_host_executor({.watch_cores = true}), other = make_host_executor();
  for (int i = 0; i < 3; ++i) watching->execute(plan, {}), other->execute(plan, {});
  const Timeline t = watching->take();
  const std::vector<double> disturbed = watching->disturbed();
  REQUIRE(disturbed.size() == 3);
  for (const double d : disturbed) CHECK(d > -0.5);
  for (std::uint32_t i = 0; i < 3; ++i) {  // nor is it time of the plan
    std::int64_t last = 0;
    for (const Span& span : t.spans)
      if (span.instance == i) last = std::max(last, span.end_ps);
    CHECK(t.instance_ends_ps[i] == last);
  }
  CHECK(t.spans.size() == static_cast<std::size_t>(3 * 6 * ranks));  // looking is no op
  CHECK(other->take().spans.size() == t.spans.size());
  CHECK(other->disturbed().empty());
  for (const Span& span : t.spans) CHECK(watching->disturbed(span) > -0.5);
  CHECK(other->disturbed(t.spans.front()) == 0);
  watching->take();
  CHECK(watching->disturbed().empty());
}
