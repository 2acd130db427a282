// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "calibrate/disturbance.hpp"

using namespace orrery;

namespace {

/// An op that takes `seconds` alone and feels what slows the cores with this exponent, in four visits of five
/// executions with 1 % noise: half of the visits quiet, half slowed by 40 %.
std::vector<Observed> executions(double seconds, double exponent, Random& r) {
  std::vector<Observed> out;
  for (std::uint32_t visit = 0; visit < 4; ++visit)
    for (int i = 0; i < 5; ++i) {
      const double slowed = (visit % 2 == 0 ? 0.4 : 0.0) + 0.02 * r.uniform();
      out.push_back({seconds * std::pow(1 + slowed, exponent) * std::exp(0.01 * r.normal()), slowed, visit});
    }
  return out;
}

/// In which the operands of all these ops stay.
constexpr Caches kCaches{Bytes{1e9}, Bytes{1e10}};

}  // namespace

TEST_CASE("times are corrected for how much neighbours slowed the cores, as far as each op feels it", "[calibrate]") {
  // Products feel 0.9 of it, copies nothing; one product waits for memory alone.
  Random r{1};
  MeasuredPlan plan;
  for (int i = 0; i < 20; ++i) {
    Point product{.work = Gemm{.m = 64, .n = 64, .k = 64 + i}};
    product.samples = {executions(1e-3, i == 7 ? 0.0 : 0.9, r)};
    Point copy{.work = Copy{Bytes{1e6 + i}}};
    copy.samples = {executions(2e-3, 0, r)};
    plan.points.push_back(product), plan.points.push_back(copy);
  }
  plan.totals = executions(60e-3, 0.3, r);
  summarise(plan, {});
  CHECK(plan.points[0].seconds.median > 1.1e-3);
  const Sensitivity s = sensitivity_of(std::span{&plan, 1}, kCaches);
  CHECK(s.of(plan.points[0]) == Approx(0.86).margin(0.04));  // one of twenty feels nothing
  CHECK(s.of(plan.points[1]) == Approx(0).margin(0.03));
  summarise(plan, s);
  for (std::size_t i = 0; i < plan.points.size(); i += 2) {
    CHECK(plan.points[i].seconds.median == Approx(1e-3).epsilon(i == 14 ? 0.06 : 0.02));
    CHECK(plan.points[i + 1].seconds.median == Approx(2e-3).epsilon(0.02));
  }
  CHECK(plan.seconds.median == Approx(60e-3).epsilon(0.03));
  CHECK(plan.visits.size() == 4);
}

TEST_CASE("products that stream weights are corrected for no more than a core does, others for twice that",
          "[calibrate]") {
  Random r{3};
  MeasuredPlan plan;
  for (int i = 0; i < 20; ++i) {
    Point tiled{.work = Gemm{.m = 64, .n = 64, .k = 64 + i}}, few{.work = Gemm{.m = 1, .n = 64, .k = 64 + i}};
    tiled.samples = {executions(1e-3, 1.8, r)}, few.samples = {executions(1e-3, 1.8, r)};
    plan.points.push_back(tiled), plan.points.push_back(few);
  }
  plan.totals = executions(40e-3, 1.4, r);
  const Sensitivity s = sensitivity_of(std::span{&plan, 1}, kCaches);
  CHECK(s.of(plan.points[0]) == Approx(1.8).margin(0.05));
  CHECK(s.of(plan.points[1]) == 1);
  summarise(plan, s);
  CHECK(plan.seconds.median == Approx(40e-3).epsilon(0.03));
  CHECK(plan.points[0].seconds.median == Approx(1e-3).epsilon(0.03));
  CHECK(plan.points[1].seconds.median > 1.1e-3);
}

TEST_CASE("what feels more of neighbours than the fixed work does is told by the quieter half", "[calibrate]") {
  // Whoever shares the core takes 10 to 30 % of the fixed work and 30 % of products at once.
  Random r{5};
  MeasuredPlan plan;
  for (int i = 0; i < 20; ++i) {
    Point p{.work = Gemm{.m = 64, .n = 64, .k = 64 + i}};
    p.samples.emplace_back();
    for (std::uint32_t visit = 0; visit < 60; ++visit) {
      const double slowed = visit % 5 < 2 ? 0.1 + 0.2 * r.uniform() : 0.01 * r.uniform();
      const double factor = slowed > 0.05 ? 1.3 * (1 + slowed) : 1 + slowed;
      p.samples[0].push_back({1e-3 * factor * std::exp(0.02 * r.normal()), slowed, visit});
    }
    plan.points.push_back(p);
  }
  plan.totals = plan.points[0].samples[0];
  const Sensitivity s = sensitivity_of(std::span{&plan, 1}, kCaches);
  CHECK(s.of(plan.points[0]) > 1.5);
  summarise(plan, s);
  for (const Point& p : plan.points) CHECK(p.seconds.median == Approx(1e-3).epsilon(0.015));
}

TEST_CASE("what an op feels goes with how much of what it moves has left the core's caches", "[calibrate]") {
  // Of every second pass the step before has left nothing in the caches.
  Random r{4};
  MeasuredPlan plan;
  for (int i = 0; i < 40; ++i) {
    Point p{.work = Add{.rows = 10, .cols = 100 + i}};
    if (i % 2 == 0) p.bindings.working_set = 1e12;
    p.samples = {executions(1e-3, i % 2 == 0 ? 0.2 : 1.0, r)};
    plan.points.push_back(p);
  }
  plan.totals = executions(40e-3, 0.6, r);
  const Sensitivity s = sensitivity_of(std::span{&plan, 1}, kCaches);
  CHECK(s.slots[slot_of(plan.points[0].work)].near == Approx(1).margin(0.05));
  CHECK(s.slots[slot_of(plan.points[0].work)].far == Approx(0.2).margin(0.05));
  summarise(plan, s);
  CHECK(plan.seconds.median == Approx(40e-3).epsilon(0.03));
  for (const Point& p : plan.points) CHECK(p.seconds.median == Approx(1e-3).epsilon(0.02));
}

TEST_CASE("disturbances are told from a core as quiet as the quiet executions", "[calibrate]") {
  // Told from a core on which the fixed work takes 1 us, most executions seem 10 % slowed, some of them 60 %.
  MeasuredPlan plan;
  for (int i = 0; i < 300; ++i) plan.totals.push_back({1e-3, i % 3 == 0 ? 0.6 : 0.1, 0});
  plan.points.push_back({.work = Gemm{.m = 64, .n = 64, .k = 64}, .samples = {{{1e-4, 0.1, 0}, {2e-4, 0.6, 0}}}});
  const double quiet = quiet_core_of(std::span{&plan, 1}, 1e-6);
  CHECK(quiet == Approx(1.1e-6).epsilon(0.003));
  tell_from(plan, 1e-6, quiet);
  CHECK(plan.totals[0].disturbed == Approx(1.6 / 1.1 - 1).margin(0.005));
  CHECK(plan.totals[1].disturbed == Approx(0).margin(0.005));
  CHECK(plan.points[0].samples[0][1].disturbed == Approx(1.6 / 1.1 - 1).margin(0.005));
}

TEST_CASE("where nothing was slowed times are as measured", "[calibrate]") {
  Random r{2};
  MeasuredPlan plan;
  Point p{.work = Gemm{.m = 64, .n = 64, .k = 64}};
  p.samples.emplace_back();
  for (std::uint32_t visit = 0; visit < 4; ++visit)
    p.samples[0].push_back({1e-3 * std::exp(0.02 * r.normal()), 0, visit});
  plan.points = {p};
  plan.totals = p.samples[0];
  summarise(plan, {});
  const double before = plan.points[0].seconds.median;
  summarise(plan, sensitivity_of(std::span{&plan, 1}, kCaches));
  CHECK(plan.points[0].seconds.median == before);
}

TEST_CASE("the ops of a whole plan add up to its time, those of others are left as they are", "[calibrate]") {
  MeasuredPlan plan{.gap = 1e-5, .whole = GENERATE(true, false)};
  for (const double seconds : {1e-3, 3e-3}) {
    Point p{.work = Gemm{.m = 64, .n = 64, .k = 64}};
    for (std::uint32_t visit = 0; visit < 3; ++visit) p.samples.resize(1), p.samples[0].push_back({seconds, 0, visit});
    plan.points.push_back(p);
  }
  for (std::uint32_t visit = 0; visit < 3; ++visit) plan.totals.push_back({4.1e-3, 0, visit});
  summarise(plan, {});
  const double share = plan.whole ? (4.1 - 0.02) / 4 : 1;
  CHECK(plan.points[0].seconds.median == Approx(1e-3 * share));
  CHECK(plan.points[1].seconds.median == Approx(3e-3 * share));
  CHECK(plan.seconds.median == Approx(4.1e-3));
}
