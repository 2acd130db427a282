// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/app/measured_round.hpp"
#include "sim/app/validation_ops.hpp"
#include "sim/plan/builder.hpp"
#include "tests/app_testing.hpp"

using namespace orrery;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000'000;  // picoseconds

/// Executions of one op each, of these plans and seconds, one right after another.
Timeline recording(const std::vector<std::pair<std::uint32_t, int>>& executions) {
  Timeline t;
  t.source = TimelineSource::Measured;
  t.num_ranks = 1;
  for (const auto& [plan, seconds] : executions) {
    const auto instance = static_cast<std::uint32_t>(t.instance_ends_ps.size());
    t.spans.push_back({t.makespan_ps, t.makespan_ps + seconds * kSecond, OpId{0}, RankId{0}, instance, 0});
    t.makespan_ps += seconds * kSecond;
    t.instance_ends_ps.push_back(t.makespan_ps);
    t.instance_plans.push_back(plan);
  }
  return t;
}

MeasuredRound round_of(double seconds, double disturbed) {
  return {.seconds = seconds, .as_run = seconds, .disturbed = disturbed};
}

/// How much each execution was slowed, of which a step feels nothing.
Disturbance slowed(const std::vector<double>& by) { return {by}; }

/// A program of plans that are never executed here.
class Plans : public Program {
 public:
  explicit Plans(std::vector<Plan> plans) : plans_{std::move(plans)} {}
  std::span<const Plan> plans() const override { return plans_; }
  std::optional<Step> next() override { return std::nullopt; }
  void told(const Outcome&) override {}

 private:
  std::vector<Plan> plans_;
};

Plan of_one_op(std::int64_t elements) {
  PlanBuilder b{"p"};
  const TensorId x = b.tensor("x", {elements}, {.persistent = true});
  b.add("fill", Fill{.elements = elements}, {writes(x)});
  return b.take(nullptr);
}

}  // namespace

TEST_CASE("ops are measured in executions of the plan that they are of", "[app]") {
  std::vector<Plan> plans;
  for (const std::int64_t elements : {1, 2, 3}) plans.push_back(of_one_op(elements));
  const Plans program{std::move(plans)};
  // A round of speculation: passes of the drafter and of the target, whose ops have the same numbers.
  const MeasuredRound round = measured_round(recording({{0, 9}, {1, 1}, {2, 5}, {1, 1}, {2, 5}, {1, 1}}), {}, true);
  std::vector<ValidatedOp> ops(1);
  measure_ops(ops, program, {round});
  CHECK(ops[0].measured == Approx(5));
  // Rounds that never came to the last plan tell nothing of its ops.
  std::vector<ValidatedOp> others(1);
  measure_ops(others, program, {measured_round(recording({{0, 9}, {1, 1}, {1, 1}}), {}, true)});
  CHECK(others.empty());
}

TEST_CASE("a round tells the middle one of its quiet steps", "[app]") {
  const Timeline t = recording({{0, 9}, {0, 4}, {0, 8}, {0, 5}, {0, 6}});
  CHECK(measured_round(t, {}, false).seconds == Approx(5.5));  // the first one is cold
  const MeasuredRound quiet = measured_round(t, slowed({0.0, 0.0, 1.0, 0.0, 0.7}), false);
  CHECK(quiet.seconds == Approx(4.5));
  CHECK(quiet.disturbed == 0);
  CHECK(quiet.instances == std::vector<std::uint32_t>{1, 3});
  const MeasuredRound none = measured_round(t, slowed({0.0, 0.9, 0.4, 0.8, 0.7}), false);
  CHECK(none.seconds == Approx(8));
  CHECK(none.disturbed == Approx(0.4));
}

TEST_CASE("what others slowed is taken out of a round as far as a step feels it", "[app]") {
  const Timeline t = recording({{0, 9}, {0, 4}, {0, 8}, {0, 5}});
  const std::vector<double> by{0.0, 0.9, 0.44, 0.8};
  const MeasuredRound half = measured_round(t, {by, 0.5}, false);
  CHECK(half.as_run == Approx(8));
  CHECK(half.seconds == Approx(8 / 1.2));
  const MeasuredRound quiet =
      measured_round(recording({{0, 9}, {0, 4}, {0, 8}}), {std::vector{0.0, 0.0, 0.0}, 1}, false);
  CHECK(quiet.seconds == quiet.as_run);
}

TEST_CASE("a step whose cores ran faster than usual is made longer by as much", "[app]") {
  const std::vector<double> by{0.0, -0.04, -0.04};
  const MeasuredRound fast = measured_round(recording({{0, 9}, {0, 8}, {0, 8}}), {by, 1, {0.0, -0.1, -0.1}}, false);
  CHECK(fast.as_run == Approx(8));
  CHECK(fast.seconds == Approx(8 / 0.96));
  CHECK(fast.disturbed == Approx(-0.04));
  const Plans program{{of_one_op(1)}};
  std::vector<ValidatedOp> ops(1);
  ops[0].sensitivity = 0.5;  // an op by what its own core did meanwhile, as far as it feels it
  measure_ops(ops, program, {fast});
  CHECK(ops[0].measured == Approx(8 / std::sqrt(0.9)));
}

TEST_CASE("a round of speculation adds up the quiet passes of each plan", "[app]") {
  // Two rounds of a verification (plan 1) and two drafts (plan 2) each, after a prefill.
  const Timeline t = recording({{0, 50}, {1, 10}, {2, 3}, {2, 1}, {1, 14}, {2, 1}, {2, 2}});
  CHECK(measured_round(t, {}, true).seconds == Approx(12 + 2 * 1.5));
  const MeasuredRound r = measured_round(t, slowed({0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0}), true);
  CHECK(r.seconds == Approx(10 + 2 * 1));
  CHECK(r.disturbed == 0);
}

TEST_CASE("the rounds that count are the least disturbed ones, however long they took", "[app]") {
  CountedRounds counted{2};
  CHECK_FALSE(counted.are_quiet());
  counted.add(round_of(1, 0.5));
  counted.add(round_of(2, 0.9));
  counted.add(round_of(3, 0.2));
  REQUIRE(counted.rounds().size() == 2);
  CHECK(counted.rounds()[0].seconds == 1);
  CHECK(counted.rounds()[1].seconds == 3);
  CHECK(counted.disturbed() == Approx((0.5 * 1 + 0.2 * 3) / 4));
  CHECK_FALSE(counted.are_quiet());
  counted.add(round_of(4, 0.01));
  counted.add(round_of(9, 0));
  CHECK(counted.are_quiet());
  CHECK(counted.rounds()[1].seconds == 9);
  counted.add(round_of(1, 0));  // a quiet one is as good as another
  CHECK(counted.rounds()[0].seconds == 4);
  CHECK(counted.measured() == 6);
}

namespace {

/// A plan of one op, both predicted as 1 within 10 %.
ValidatedPlan plan_measured(double step, double op) {
  ValidatedPlan p;
  p.name = "p";
  p.predicted = 1, p.low = 0.9, p.high = 1.1, p.measured = p.as_run = step;
  p.ops.push_back({OpClass::Gemm, "gemm", 1, 0.9, 1.1, op});
  return p;
}

Validation validation_of(double step, double op, double disturbed) {
  Validation v;
  v.plans.push_back(plan_measured(step, op));
  v.disturbed = disturbed;
  return v;
}

}  // namespace

TEST_CASE("intervals are judged over several calibrations together, and over those of an idle computer", "[app]") {
  const Validation idle = validation_of(1.05, 1.02, 0.1), busy = validation_of(1.25, 0.8, 0.6);
  const std::vector<const Validation*> both{&idle, &busy};
  const std::vector<IntervalCheck> checks = intervals_of(both);
  const auto all = std::find_if(checks.begin(), checks.end(), [](const auto& c) { return c.what == kOpsAndPlans; });
  REQUIRE(all != checks.end());
  CHECK(all->count == 4);
  CHECK(all->coverage == Approx(0.5));
  CHECK(all->median_half_width == Approx(0.1));
  // Errors of 1/1.02, 1/1.05, 1/1.25 and 1/0.8.
  CHECK(all->median_abs_error == Approx(((1 - 1 / 1.05) + (1 - 1 / 1.25)) / 2));
  CHECK(mean_abs_error(both) == Approx(all->median_abs_error));

  testing::QuietApp app;
  const std::string text = to_text(both, app.console);
  CHECK_THAT(text, Catch::Contains("idle below 40 %"));
  CHECK_THAT(text, Catch::Contains("-4.8 %  -20.0 %  1 of 2"));
  CHECK_THAT(text, Catch::Contains("peak memory is exact on 2 of 2 plans"));
  const nlohmann::json document = to_json(both);
  CHECK(document.at("validations").size() == 2);
  CHECK(document.at("worst_abs_error") == Approx(0.2));
  // Where all were idle, or none was, there is nothing to tell apart.
  const std::vector<const Validation*> same{&idle, &idle};
  CHECK_THAT(to_text(same, app.console), !Catch::Contains("idle below"));
}
