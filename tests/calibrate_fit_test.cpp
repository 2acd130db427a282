// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "calibrate/fit.hpp"
#include "calibrate/fit_host.hpp"
#include "calibrate/statistics.hpp"
#include "calibrate/step_check.hpp"

using namespace orrery;
using namespace orrery::literals;

TEST_CASE("non-negative least squares recovers planted coefficients", "[calibrate]") {
  // y = 2·a + 3·c exactly; b takes part in nothing.
  std::vector<std::vector<double>> a;
  std::vector<double> y;
  Random r{1};
  for (int i = 0; i < 20; ++i) {
    a.push_back({r.uniform(), r.uniform(), r.uniform()});
    y.push_back(2 * a.back()[0] + 3 * a.back()[2]);
  }
  const std::vector<double> x = nonnegative_least_squares(a, y);
  CHECK(x[0] == Approx(2));
  CHECK(x[1] == Approx(0).margin(1e-9));
  CHECK(x[2] == Approx(3));
}

TEST_CASE("a coefficient that would be negative is zero, and the others are the best without it", "[calibrate]") {
  // y = x₁ − x₂ on (1,0) → 1, (0,1) → −1, (1,1) → 0. Without x₂: min (x−1)² + 1 + x² is at x = 1/2.
  const std::vector<double> x = nonnegative_least_squares({{1, 0}, {0, 1}, {1, 1}}, {1, -1, 0});
  CHECK(x[0] == Approx(0.5));
  CHECK(x[1] == 0);
}

TEST_CASE("a relative fit is not moved by a tenth of outliers", "[calibrate]") {
  // t = 1 us + 2 ns·n; every tenth point took three times as long.
  std::vector<Equation> points;
  for (int i = 1; i <= 60; ++i) {
    const double n = std::exp(0.2 * i);
    points.push_back({{1, n}, (1e-6 + 2e-9 * n) * (i % 10 == 0 ? 3 : 1)});
  }
  const FitResult fit = fit_relative(points);
  CHECK(fit.coefficients[0] == Approx(1e-6).epsilon(0.02));
  CHECK(fit.coefficients[1] == Approx(2e-9).epsilon(0.02));
}

TEST_CASE("a feature that explains nothing is left out", "[calibrate]") {
  std::vector<Equation> points;
  Random r{2};
  for (int i = 0; i < 80; ++i) {
    const double n = std::exp(r.uniform(0, 10)), other = std::exp(r.uniform(0, 10));
    points.push_back({{1, n, other}, (1e-6 + 1e-9 * n) * std::exp(0.01 * r.normal())});
  }
  const FitResult fit = fit_relative(points);
  CHECK(fit.coefficients[2] == Approx(0).margin(2e-12));
}

TEST_CASE("a coefficient is never more than it can be", "[calibrate]") {
  // Times have 5 % noise; all that the third feature has to say is in it, as it is next to nothing in each point. A
  // step with a thousand times as much of it would take for ever.
  std::vector<Equation> points;
  Random r{6};
  for (int i = 0; i < 60; ++i) {
    const double n = std::exp(r.uniform(0, 8)), noise = 0.05 * r.normal();
    points.push_back({{1, n, std::max(0.0, noise) * 1e-9}, (1e-6 + 1e-9 * n) * std::exp(noise)});
  }
  CHECK(fit_relative(points).coefficients[2] > 100);
  const FitResult fit = fit_relative(points, {{1}, {1}, {0.01}});
  CHECK(fit.coefficients[2] == 0);
  CHECK(fit.coefficients[1] == Approx(1e-9).epsilon(0.1));
}

TEST_CASE("what a coefficient is expected to be counts where points tell little, and gives way where they tell more",
          "[calibrate]") {
  // 60 points with 5 % noise; three of them have something of the third feature, a hundredth of their time or all of
  // it.
  const auto third = [](double share) {
    std::vector<Equation> points;
    Random r{8};
    for (int i = 0; i < 60; ++i) {
      const double n = std::exp(r.uniform(0, 8)), time = 1e-6 + 1e-9 * n;
      const double feature = i % 20 == 0 ? share * time / 30e-6 : 0;
      points.push_back({{1, n, feature}, (time + 30e-6 * feature) * std::exp(0.05 * r.normal())});
    }
    return fit_relative(points, {{}, {}, {5e-3, 50e-6}}).coefficients[2];
  };
  CHECK(third(0.01) == Approx(50e-6).epsilon(0.2));
  CHECK(third(10) == Approx(30e-6).epsilon(0.2));
}

TEST_CASE("the spread of normal residuals is their standard deviation", "[calibrate][long]") {
  std::vector<Residual> residuals;
  Random r{3};
  for (int i = 0; i < 20000; ++i) residuals.push_back({r.normal(0, 0.07), 1e-3});
  CHECK(spread(residuals).sigma == Approx(0.07).epsilon(0.03));
}

TEST_CASE("what short ops err by is told from what all ops err by", "[calibrate][long]") {
  // σ² = 0.03² + (100 ns / t)², t from 0.1 us to 1 ms.
  std::vector<Residual> residuals;
  Random r{3};
  for (int i = 0; i < 20000; ++i) {
    const double t = std::exp(r.uniform(std::log(1e-7), std::log(1e-3)));
    residuals.push_back({r.normal(0, std::hypot(0.03, 1e-7 / t)), t});
  }
  const Spread s = spread(residuals);
  CHECK(s.sigma == Approx(0.03).epsilon(0.1));
  CHECK(s.floor == Approx(1e-7));
}

TEST_CASE("what memory does is told from what all ops err by", "[calibrate][long]") {
  // σ² = 0.02² + (0.3 · the part of the time that memory takes)².
  std::vector<Residual> residuals;
  Random r{3};
  for (int i = 0; i < 20000; ++i) {
    const double beyond = std::max(0.0, r.uniform(-1, 1));
    residuals.push_back({r.normal(0, std::hypot(0.02, 0.3 * beyond)), 1e-3, 1, 0, beyond});
  }
  const Spread s = spread(residuals);
  CHECK(s.sigma == Approx(0.02).epsilon(0.2));
  CHECK(s.memory == Approx(0.3));
  for (Residual& x : residuals) x.beyond = 0;  // nothing to tell it by
  CHECK(spread(residuals).memory == 0);
}

TEST_CASE("a group is judged by a fit without it", "[calibrate]") {
  // Eight plans; the ops of plan 7 take twice as long as others of their size. A fit with them would meet half way.
  std::vector<Equation> points;
  for (std::uint32_t plan = 0; plan < 8; ++plan)
    for (int i = 1; i <= 6; ++i) points.push_back({{1, double(i)}, (1e-6 + 1e-6 * i) * (plan == 7 ? 2 : 1), 1, plan});
  const FitResult fit = fit_relative(points);
  for (std::size_t i = 42; i < 48; ++i) CHECK(fit.residuals[i] == Approx(std::log(2)).margin(0.05));
}

TEST_CASE("intervals of a law fitted to noise of known size hold nine of ten new points", "[calibrate]") {
  // Times of additions with 5 % noise; 200 points to fit, 2000 to check.
  Random r{4};
  const Caches caches{1.0_MiB, 16.0_MiB};
  const LawForm& form = stream_form();
  const auto draw = [&] {
    const Add work{static_cast<std::int64_t>(1 + r.below(2000)), static_cast<std::int64_t>(32 + r.below(500))};
    Point p{.work = work};
    p.seconds = {.median = (1e-6 + 3e-10 * double(work.rows * work.cols)) * std::exp(0.05 * r.normal()), .count = 1};
    return p;
  };
  std::vector<Point> points(200);
  std::vector<const Point*> pointers;
  for (Point& p : points) p = draw(), pointers.push_back(&p);
  HostParameters host{.l2 = caches.l2, .l3 = caches.l3, .memory_bandwidth = 10.0_GBps};
  host.laws["add"] = fit_law(form, pointers, caches, 100.0_us);
  CHECK(host.laws["add"].points == 200);
  const HostModel model{"host", host};
  int covered = 0;
  for (int i = 0; i < 2000; ++i) {
    const Point p = draw();
    const OpCost c = model.cost(p.work, {}, {});
    covered +=
        std::abs(std::log(p.seconds.median / c.duration.base())) <= kNinetyPercent * std::hypot(c.deviation, c.bias);
  }
  CHECK(covered / 2000.0 == Approx(0.90).margin(0.05));
}

TEST_CASE("what of the last cache there really is, and how steeply it loses what is beyond, is found", "[calibrate]") {
  // Of 256 MiB a program has 64. Steps of one-row products pass over 2 to 300 MB; times are those of a law, with 1 %
  // of noise: an element of B takes 0.05 ns, and 0.15 more from memory.
  const double steepness = GENERATE(2.0, 8.0);
  CAPTURE(steepness);
  const Caches truth{.l2 = 2.0_MiB, .l3 = 64.0_MiB, .cores = 2, .steepness = steepness};
  const LawForm& form = few_rows_form();
  std::vector<double> coefficients;
  for (const Feature& f : form.features)
    coefficients.push_back(f.name == "stream_b" ? 50e-6 : f.name == "b_cold_2" ? 37.5e-6 : f.name == "call" ? 1e-6 : 0);
  Random r{6};
  const auto side = [&] { return static_cast<std::int64_t>(256 + 32 * r.below(24)); };
  Measurements measured;
  for (double bytes = 2e6; bytes < 300e6; bytes *= 1.15) {
    MeasuredPlan plan;
    for (int i = 0; i < 8; ++i) {
      Bindings b;
      b.working_set = bytes;
      const Gemm work{.m = 1, .n = side(), .k = side(), .transpose_b = true};
      const double seconds = law_time(form, coefficients, {work, b}, truth).seconds * std::exp(0.01 * r.normal());
      plan.points.push_back({.work = work, .bindings = b, .seconds = {.median = seconds, .count = 1}});
      plan.seconds.median += seconds;
    }
    measured.plans.push_back(std::move(plan));
  }
  measured.sweep = measured.steps = {0, measured.plans.size()};
  measured.sensitivity.slots.resize(kNumSlots);
  measured.pairs = measured.plans.size();
  measured.plans.emplace_back();  // no messages
  HostParameters host{.l2 = truth.l2, .l3 = 256.0_MiB, .cores = 2, .peak = 100.0_GFLOPps};
  fit_host(host, measured);
  CHECK(host.l3_steepness == steepness);
  CHECK(host.l3 / truth.l3 == Approx(1).margin(0.25));
}

TEST_CASE("steps that err more than single ops explain make their errors shared", "[calibrate]") {
  // σ of ops 10 %. Independent ops would leave 1 % of a step, ops in step 8 %; steps err by 4 %: about half is shared.
  HostParameters p;
  p.laws["add"] = {.deviation = 0.06, .bias = 0.08};
  std::vector<StepCheck> steps;
  Random r{5};
  for (int i = 0; i < 400; ++i) steps.push_back({"step", std::exp(0.04 * r.normal()), 1.0, 0.08, 0.01});
  settle_bias(p, steps);
  CHECK(p.laws["add"].bias == Approx(0.05).margin(0.011));
  CHECK(std::hypot(p.laws["add"].bias, p.laws["add"].deviation) == Approx(0.10));
}

TEST_CASE("errors of measuring and drift are no errors of the laws", "[calibrate]") {
  // Steps err by 5 %: 3 % of measuring and 4 % of drift explain it all, so that ops share as little as they may.
  HostParameters p{.drift = 0.04};
  p.laws["add"] = {.deviation = 0.06, .bias = 0.08};
  std::vector<StepCheck> steps;
  Random r{5};
  for (int i = 0; i < 400; ++i) steps.push_back({"step", std::exp(0.05 * r.normal()), 1.0, 0.08, 0.01, 0.03});
  settle_bias(p, steps);
  CHECK(p.laws["add"].bias == Approx(0.02).margin(0.011));
}

TEST_CASE("robust statistics of repeated times ignore the slow ones", "[calibrate]") {
  const std::vector<double> times{10, 11, 9, 10, 500};
  const RobustSummary s = summarise(times);
  CHECK(s.median == 10);
  CHECK(s.deviation == Approx(1.4826));  // |x − 10| = 0, 1, 1, 0, 490: median 1
  CHECK(quantile({1, 2, 3, 4}, 0.5) == 2.5);
}

TEST_CASE("what was measured while something else used the cores counts only where there is nothing else",
          "[calibrate]") {
  const std::vector<Observed> times{{10, 0.6}, {5, 0}, {9, 0.5}, {6, 0.04}, {7, 0.02}, {20, 1}};
  CHECK(quiet_values(times, 3) == std::vector<double>{5, 6, 7});
  CHECK(quiet_values(times, 0) == std::vector<double>{5, 6, 7});
  CHECK(quiet_values(times, 5) == std::vector<double>{10, 5, 9, 6, 7});
  CHECK(quiet_values(std::vector<Observed>{{3, 1}, {4, 0.9}}, 1) == std::vector<double>{4});
  CHECK(quiet_values(std::vector<Observed>{{3, 1}, {4, 0.9}}, 0).empty());
  CHECK(quiet_values({}, 3).empty());
}

TEST_CASE("measurements of one visit are alike, so that the error of a median is that of so many visits",
          "[calibrate]") {
  // Visits differ by 10 %, executions of one by 1 %: 3 visits of 8 are no 24 measurements.
  Random r{7};
  double squares = 0, told = 0;
  constexpr int kTimes = 400;
  for (int k = 0; k < kTimes; ++k) {
    std::vector<Observed> times;
    for (std::uint32_t visit = 0; visit < 3; ++visit) {
      const double here = std::exp(0.1 * r.normal());
      for (int i = 0; i < 8; ++i) times.push_back({here * std::exp(0.01 * r.normal()), 0, visit});
    }
    const RobustSummary s = summarise_visits(times);
    CHECK(s.count == 24);
    squares += std::pow(s.median - 1, 2) / kTimes, told += s.median_error / kTimes;
  }
  CHECK(told / std::sqrt(squares) == Approx(1).margin(0.25));
}

TEST_CASE("jitter is the standard deviation of one visit, whatever the machine drifts", "[calibrate]") {
  Random r{8};
  std::vector<double> steady, drifting;
  for (int i = 0; i < 4000; ++i) {
    steady.push_back(std::exp(0.05 * r.normal()));
    drifting.push_back(steady.back() * (1 + i / 4000.0));
  }
  CHECK(jitter(steady) == Approx(0.05).epsilon(0.05));
  CHECK(jitter(drifting) == Approx(0.05).epsilon(0.05));
  CHECK(jitter(std::vector<double>{1}) == 0);
  CHECK(trimmed_rms({3, 3, 3, 3, 3, 3, 3, 3, 3, 1000}) == Approx(3));
}

TEST_CASE("what comes and goes slowly is told from what comes from one sample to the next", "[calibrate]") {
  Random r{7};
  std::vector<double> noisy, drifting;
  for (int i = 0; i < 240; ++i) {
    noisy.push_back(std::exp(0.1 * r.normal()));
    drifting.push_back((i < 120 ? 0.95 : 1.05) * std::exp(0.02 * r.normal()));
  }
  // Middles of 40 samples vary by 1.25 · 10 % / √40 = 2 % by chance.
  CHECK(slow_deviation(noisy) < 0.02);
  CHECK(slow_deviation(drifting) == Approx(0.1 * std::sqrt(0.3)).margin(0.01));
  CHECK(slow_deviation(std::vector<double>{1, 2, 3}) == 0);
}
