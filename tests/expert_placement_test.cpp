// SPDX-License-Identifier: Apache-2.0
// Where replicas of experts go: figures of a toy, all placements of a few experts, and policies that never make it
// worse.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "sim/base/random.hpp"
#include "sim/strategy/expert_placement.hpp"

using namespace orrery;

namespace {

std::vector<double> zipf(std::size_t n, double exponent) {
  std::vector<double> shares;
  for (std::size_t k = 0; k < n; ++k) shares.push_back(std::pow(double(k + 1), -exponent));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& s : shares) s /= sum;
  return shares;
}

std::vector<double> drawn(std::size_t n, Random& random) {
  std::vector<double> shares;
  for (std::size_t k = 0; k < n; ++k) shares.push_back(std::exp(1.5 * random.normal()));
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& s : shares) s /= sum;
  return shares;
}

double imbalance(const std::vector<double>& shares, const ExpertPlaces& places) {
  return ExpertLayout{shares, places}.imbalance();
}

/// The least imbalance of all ways to fill two ranks' slots.
double best_of_two(const std::vector<double>& shares, std::size_t slots) {
  const std::size_t n = shares.size(), all = 2 * slots;
  std::vector<std::size_t> chosen(all, 0);
  double best = 2;
  while (true) {
    std::vector<double> count(n, 0);
    for (const std::size_t e : chosen) ++count[e];
    if (std::none_of(count.begin(), count.end(), [](double c) { return c == 0; })) {
      double first = 0;
      for (std::size_t k = 0; k < slots; ++k) first += shares[chosen[k]] / count[chosen[k]];
      best = std::min(best, 2 * std::max(first, 1 - first));
    }
    std::size_t k = 0;
    while (k < all && ++chosen[k] == n) chosen[k++] = 0;
    if (k == all) return best;
  }
}

}  // namespace

// 64 experts on 64 ranks, static and with 2 and 4 slots: a greedy done by hand elsewhere has 4.4 → 1.03; 13.5 → 1.12,
// 1.03; 18.7 → 1.20, 1.03; 21.5 → 1.29, 1.05.
TEST_CASE("slots even out what Zipf skews", "[placement]") {
  struct Row {
    double exponent, whole, two, four;
  };
  for (const Row& r :
       {Row{0.5, 4.4, 1.03, 1.01}, Row{1, 13.5, 1.12, 1.03}, Row{1.2, 18.7, 1.20, 1.03}, Row{1.3, 21.5, 1.29, 1.05}}) {
    const std::vector<double> shares = zipf(64, r.exponent);
    INFO(r.exponent);
    CHECK(whole_layout(shares, 64).imbalance() == Approx(r.whole).margin(0.05));
    CHECK(imbalance(shares, place_experts(shares, 64, 2)) == Approx(r.two).margin(0.005));
    CHECK(imbalance(shares, place_experts(shares, 64, 4)) == Approx(r.four).margin(0.005));
  }
}

TEST_CASE("all slots are filled, all experts have one, and all rows go somewhere", "[placement]") {
  Random random{7};
  for (int trial = 0; trial < 200; ++trial) {
    const std::int64_t ranks = 1 + std::int64_t(random.below(8)), slots = 1 + std::int64_t(random.below(5));
    const std::vector<double> shares = drawn(1 + random.below(static_cast<std::uint64_t>(ranks * slots)), random);
    const ExpertLayout layout{shares, place_experts(shares, ranks, slots)};
    double load = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t used = 0;
      for (const HeldExpert& h : layout.held(r)) used += h.replicas;
      CHECK(used == slots);
      CHECK(std::is_sorted(layout.held(r).begin(), layout.held(r).end(),
                           [](const HeldExpert& a, const HeldExpert& b) { return a.expert < b.expert; }));
      load += layout.load(r);
    }
    CHECK(load == Approx(1));
    for (std::int64_t e = 0; e < layout.experts(); ++e) CHECK(layout.replicas(e) >= 1);
  }
}

TEST_CASE("two ranks are filled nearly as well as they can be", "[placement]") {
  Random random{3};
  double sum = 0;
  const int trials = 60;
  for (int trial = 0; trial < trials; ++trial) {
    const std::vector<double> shares = drawn(2 + random.below(2), random);
    const std::size_t slots = 2 + random.below(2);
    const double best = best_of_two(shares, slots),
                 ours = imbalance(shares, place_experts(shares, 2, std::int64_t(slots)));
    CHECK(ours >= best - 1e-12);
    CHECK(ours <= 1.34 * best);
    sum += ours / best;
  }
  CHECK(sum / trials < 1.08);
}

TEST_CASE("rebalancing never makes a layer slower, and evens out a hot expert", "[placement]") {
  Random random{11};
  for (int trial = 0; trial < 100; ++trial) {
    const std::int64_t ranks = 2 + std::int64_t(random.below(7)), each = 1 + std::int64_t(random.below(3));
    const std::size_t experts = static_cast<std::size_t>(ranks * each);
    const PlacementCosts costs{.compute = Seconds{1},
                               .exchange = Seconds{random.uniform()},
                               .sum = Seconds{0.1 * random.uniform() / double(experts)}};
    ExpertLayout layout = whole_layout(drawn(experts, random), ranks);
    for (int step = 0; step < 3; ++step) {
      const Seconds before = placement_time(layout, costs);
      layout = {layout.shares(), rebalance(layout, each + 1, costs)};
      CHECK(placement_time(layout, costs) <= before);
      layout = {drawn(experts, random), layout.places()};  // other experts are hot now
    }
  }
  const ExpertLayout whole = whole_layout(zipf(8, 1), 8);
  const ExpertLayout better{whole.shares(), rebalance(whole, 2, {})};
  CHECK(whole.imbalance() == Approx(8 / 2.717857).epsilon(1e-6));
  CHECK(better.imbalance() < 0.6 * whole.imbalance());
}

// 4 ranks with an expert each, the first of which has 70 % of the rows: 0.7 of a second there. A second replica takes
// half of them, and its gradient as many bytes over the links as it has, 2·(2 − 1)/2 times.
TEST_CASE("a replica whose gradient takes longer than its rows is not made", "[placement]") {
  const ExpertLayout whole = whole_layout({0.7, 0.1, 0.1, 0.1}, 4);
  CHECK(placement_time(whole, {}) == Seconds{0.7});
  const ExpertLayout two{whole.shares(), {{{0, 1}}, {{0, 1}, {1, 1}}, {{2, 1}}, {{3, 1}}}};
  CHECK(placement_time(two, {.sum = Seconds{0.2}}).base() == Approx(0.45 + 0.2));
  CHECK(rebalance(whole, 2, {.sum = Seconds{0.2}}) != whole.places());
  CHECK(rebalance(whole, 2, {.sum = Seconds{0.4}}) == whole.places());
}

TEST_CASE("ranks keep what they have where rows allow it", "[placement]") {
  const ExpertPlaces now{{{0, 1}, {1, 1}}, {{2, 1}, {3, 1}}};
  const std::vector<double> shares{0.25, 0.25, 0.25, 0.25};
  CHECK(place_experts(shares, 2, 2, &now) == now);
  CHECK(fetched_experts(now, now) == std::vector<std::int64_t>{0, 0});
  CHECK(fetched_experts(now, {{{0, 2}}, {{1, 1}, {2, 1}}}) == std::vector<std::int64_t>{0, 1});
}
