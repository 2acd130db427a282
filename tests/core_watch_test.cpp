// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core_watch.hpp"
#include "runtime/executor.hpp"

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
  const float usual = sample_core(0).seconds;
  CHECK(usual > 0);
  CHECK(slowed_by({}) == 0);
  const auto at = [](std::int64_t ns, float seconds) { return CoreSample{ns, 0, seconds}; };
  CHECK(slowed_by(std::vector{at(0, usual / 100), at(10, usual / 100)}) == 0);  // no faster than a quiet core
  const double ten = slowed_by(std::vector{at(0, 10 * usual), at(10, 10 * usual)});
  CHECK(ten >= 9);  // than the shortest, which is no more than the usual one
  CHECK(slowed_by(std::vector{at(0, usual / 100), at(10, 10 * usual)}) == Approx(ten / 2));
  // Half of 10, all of 20, half of 10, nothing of 60.
  CHECK(slowed_by(std::vector{at(0, usual / 100), at(10, 10 * usual), at(30, 10 * usual), at(40, usual / 100),
                              at(100, usual / 100)}) == Approx(0.3 * ten));
}

TEST_CASE("an executor that watches cores tells of each execution how much it was slowed", "[runtime]") {
  const std::int64_t ranks = GENERATE(1, 3);
  const Plan plan = products(ranks);
  const auto watching = make_host_executor({.watch_cores = true}), other = make_host_executor();
  for (int i = 0; i < 3; ++i) watching->execute(plan, {}), other->execute(plan, {});
  const Timeline t = watching->take();
  const std::vector<double> disturbed = watching->disturbed();
  REQUIRE(disturbed.size() == 3);
  for (const double d : disturbed) CHECK(d >= 0);
  CHECK(t.spans.size() == static_cast<std::size_t>(3 * 6 * ranks));  // looking is no op
  CHECK(other->take().spans.size() == t.spans.size());
  CHECK(other->disturbed().empty());
  watching->take();
  CHECK(watching->disturbed().empty());
}
