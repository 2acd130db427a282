// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/timeline/interval.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;

namespace {

/// Ops of 3 and 4 us one after another, and a short one beside them that is not critical.
struct Chain {
  SmallPlan p;
  OpId a = p.add("a", gemm());
  OpId b = p.add("b", gemm());
  OpId c = p.add("c", gemm(), Stream::Comm);
  Timeline t;
  CriticalPath path;
  Chain() {
    ran(t, a, 0, 0, 3);
    ran(t, b, 0, 3, 7);
    ran(t, c, 0, 0, 1);
    const PlanDigests plans = describe(p.plan);
    path = critical_path(t, plans, SpanGraph{t, plans});
  }
};

}  // namespace

TEST_CASE("independent errors add in squares", "[timeline]") {
  // 10 % of 3 and of 4: √(0.3² + 0.4²) = 0.5 of 7.
  const Chain f;
  const std::vector<SpanDeviation> d(2, SpanDeviation{0.1f, 0, 0});
  CHECK(makespan_interval(f.t, f.path, d, 0).deviation == Approx(0.5 / 7).epsilon(1e-6));
}

TEST_CASE("errors of one group add up before they are squared", "[timeline]") {
  // 10 % of 3 and of 4 together: 0.7 of 7. In groups of their own: 0.5 of 7.
  const Chain f;
  const std::vector<SpanDeviation> same(2, SpanDeviation{0, 0.1f, 5});
  CHECK(makespan_interval(f.t, f.path, same, 0).deviation == Approx(0.1).epsilon(1e-6));
  const std::vector<SpanDeviation> apart{{0, 0.1f, 1}, {0, 0.1f, 2}};
  CHECK(makespan_interval(f.t, f.path, apart, 0).deviation == Approx(0.5 / 7).epsilon(1e-6));
}

TEST_CASE("what memory takes longer all ops take longer, of whatever group", "[timeline]") {
  const Chain f;
  const std::vector<SpanDeviation> d{{0, 0, 1, 0.1f}, {0, 0, 2, 0.1f}};
  CHECK(makespan_interval(f.t, f.path, d, 0).deviation == Approx(0.1).epsilon(1e-6));
  // 0.7 of 7 by memory, and 10 % of 3 and of 4 each by itself
  const std::vector<SpanDeviation> both{{0.1f, 0, 1, 0.1f}, {0.1f, 0, 2, 0.1f}};
  CHECK(makespan_interval(f.t, f.path, both, 0).deviation == Approx(std::hypot(0.7, 0.5) / 7).epsilon(1e-6));
}

TEST_CASE("the error of the whole plan is added in squares and the interval is log-normal", "[timeline]") {
  const Chain f;
  const std::vector<SpanDeviation> none(2);
  const Interval interval = makespan_interval(f.t, f.path, none, 0.2);
  CHECK(interval.deviation == Approx(0.2));
  // exp(1.6449 · 0.2) = 1.3896
  CHECK(interval.high.base() == Approx(7e-6 * 1.3896).epsilon(1e-4));
  CHECK(interval.low.base() == Approx(7e-6 / 1.3896).epsilon(1e-4));
}
