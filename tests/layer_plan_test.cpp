// SPDX-License-Identifier: Apache-2.0
// Ways of layers under a memory limit, against all there are.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "sim/base/random.hpp"
#include "sim/search/layer_plan.hpp"

using namespace orrery;

namespace {

constexpr double kClosed = std::numeric_limits<double>::infinity();

LayerCost cost_of(const LayerChoices& c, const std::vector<std::size_t>& ways) {
  LayerCost sum;
  for (std::size_t l = 0; l < ways.size(); ++l) {
    sum.seconds += c.layers[l][ways[l]].seconds;
    sum.bytes += c.layers[l][ways[l]].bytes;
    if (l > 0 && !c.changes.empty()) sum.seconds += c.changes[ways[l - 1]][ways[l]];
  }
  return sum;
}

/// Of all combinations the fastest that takes at most `room`.
std::optional<LayerCost> best_of_all(const LayerChoices& c, std::int64_t room) {
  std::optional<LayerCost> best;
  std::vector<std::size_t> ways(c.layers.size(), 0);
  for (;;) {
    const LayerCost sum = cost_of(c, ways);
    if (sum.bytes <= room && sum.seconds < kClosed && (!best || sum.seconds < best->seconds)) best = sum;
    std::size_t l = 0;
    while (l < ways.size() && ++ways[l] == c.layers[l].size()) ways[l++] = 0;
    if (l == ways.size()) return best;
  }
}

LayerChoices drawn(Random& random, std::size_t layers, std::size_t ways, bool changes) {
  LayerChoices c;
  for (std::size_t l = 0; l < layers; ++l) {
    c.layers.emplace_back();
    for (std::size_t s = 0; s < ways; ++s)
      c.layers.back().push_back(
          {random.below(8) == 0 ? kClosed : random.uniform() - 0.3, static_cast<std::int64_t>(random.below(200)) - 50});
  }
  for (std::size_t a = 0; changes && a < ways; ++a) {
    c.changes.emplace_back();
    for (std::size_t b = 0; b < ways; ++b) c.changes.back().push_back(a == b ? 0 : random.uniform() / 4);
  }
  return c;
}

}  // namespace

TEST_CASE("no combination of ways of layers is faster, with and without changes that cost") {
  Random random{1};
  int found = 0, impossible = 0;
  for (int i = 0; i < 300; ++i) {
    const LayerChoices c = drawn(random, 1 + random.below(6), 1 + random.below(4), i % 2 == 0);
    const auto room = static_cast<std::int64_t>(random.below(500)) - 100;
    const std::optional<LayerPlan> plan = plan_layers(c, room);
    const std::optional<LayerCost> best = best_of_all(c, room);
    CAPTURE(i, room);
    REQUIRE(plan.has_value() == best.has_value());
    if (!plan) {
      ++impossible;
      continue;
    }
    ++found;
    const LayerCost sum = cost_of(c, plan->ways);
    CHECK(sum.bytes == plan->cost.bytes);
    CHECK(sum.bytes <= room);
    CHECK(sum.seconds == Approx(plan->cost.seconds).margin(1e-12));
    CHECK(sum.seconds == Approx(best->seconds).margin(1e-12));
  }
  CHECK(found > 100);
  CHECK(impossible > 20);
}

TEST_CASE("layers that take whole quanta never take more than there is, and lose little") {
  Random random{2};
  for (int i = 0; i < 60; ++i) {
    const LayerChoices c = drawn(random, 5, 3, true);
    const auto room = static_cast<std::int64_t>(random.below(400));
    const std::optional<LayerPlan> plan = plan_layers(c, room, 16);
    // With 15 bytes less for each layer the fastest still fits in whole quanta.
    const std::optional<LayerCost> tighter = best_of_all(c, room - 5 * 15), best = best_of_all(c, room);
    CAPTURE(i, room);
    if (tighter) REQUIRE(plan.has_value());
    if (!plan) continue;
    CHECK(cost_of(c, plan->ways).bytes <= room);
    CHECK(plan->cost.bytes % 16 == 0);
    CHECK(plan->cost.seconds >= best->seconds - 1e-12);
    if (tighter) CHECK(plan->cost.seconds <= tighter->seconds + 1e-12);
  }
}

TEST_CASE("equal layers go to the fast way as far as memory lets them, and stand together where changes cost") {
  LayerChoices c;
  c.layers.assign(80, {{1.0, 10}, {1.3, 1}});
  c.changes = {{0, 0.01}, {0.01, 0}};
  const std::optional<LayerPlan> plan = plan_layers(c, 80 + 9 * 33 + 5);
  REQUIRE(plan);
  CHECK(std::count(plan->ways.begin(), plan->ways.end(), 0) == 33);
  CHECK(plan->cost.seconds == Approx(33 + 1.3 * 47 + 0.01));
  CHECK(!plan_layers(c, 79));
  CHECK(plan_layers({}, 0)->ways.empty());
  CHECK(!plan_layers({}, -1));
}
