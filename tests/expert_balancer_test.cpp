// SPDX-License-Identifier: Apache-2.0
// Experts whose heat drifts: statistics of what is drawn, and when replicas follow.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "sim/program/expert_balancer.hpp"

using namespace orrery;

TEST_CASE("drifting shares add up, keep their spread, and forget in the time they are told", "[balancer]") {
  const DriftOptions o{.experts = 16, .spread = 1.5, .correlation = 10, .seed = 4};
  DriftingShares drift{o};
  const int iterations = 40000;
  double sum = 0, squares = 0, lagged = 0;
  std::vector<double> before;
  for (int t = 0; t < iterations; ++t) {
    const std::vector<double> shares = drift.next();
    CHECK(std::accumulate(shares.begin(), shares.end(), 0.0) == Approx(1));
    std::vector<double> logits;
    for (const double s : shares) logits.push_back(std::log(s));
    const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / 16;
    for (double& l : logits) l -= mean;
    for (std::size_t e = 0; e < 16 && !before.empty(); ++e) lagged += logits[e] * before[e];
    for (const double l : logits) sum += l, squares += l * l;
    before = std::move(logits);
  }
  const double count = 16.0 * iterations;
  CHECK(sum / count == Approx(0).margin(1e-9));
  // of 16 draws around their own mean 15/16 of the variance are left
  CHECK(std::sqrt(squares / count * 16 / 15) == Approx(1.5).epsilon(0.03));
  CHECK(lagged / squares == Approx(std::exp(-0.1)).epsilon(0.01));
}

TEST_CASE("a plan is made where loads are uneven, and holds from the next iteration on", "[balancer]") {
  const std::vector<double> hot{0.7, 0.1, 0.1, 0.1}, even{0.25, 0.25, 0.25, 0.25};
  const ExpertPlaces whole = whole_layout(even, 4).places();
  ExpertBalancer b{whole, {.slots = 2, .threshold = 1.2, .period = 3}};
  CHECK(b.step(even).imbalance == Approx(1));
  CHECK(b.step(hot).imbalance == Approx(2.8));  // nobody looks
  CHECK(b.step(hot).imbalance == Approx(2.8));
  CHECK(b.step(hot).awaited == 0);  // planned here
  CHECK(b.places() == whole);
  const BalancedIteration moved = b.step(hot);
  CHECK(moved.awaited >= 1);
  CHECK(moved.imbalance < 1.5);
  CHECK(b.step(hot).awaited == 0);
  CHECK(b.commits() == 1);
}

TEST_CASE("what is fetched beside training holds when all is there", "[balancer]") {
  const std::vector<double> hot{0.7, 0.1, 0.1, 0.1};
  const ExpertPlaces whole = whole_layout(hot, 4).places();
  ExpertBalancer b{whole, {.slots = 2, .threshold = 1.2, .period = 1, .beside = 0.25}};
  int waited = 0;
  while (b.places() == whole && waited < 100) {
    CHECK(b.step(hot).awaited == 0);
    ++waited;
  }
  const std::vector<std::int64_t> fetched = fetched_experts(whole, b.places());
  const std::int64_t most = *std::max_element(fetched.begin(), fetched.end());
  CHECK(most > 0);
  CHECK(waited == 2 + 4 * most);  // planned in the first, fetched in four for each, in force in the one behind
}

TEST_CASE("loads below the threshold stay where they are", "[balancer]") {
  ExpertBalancer b{whole_layout({0.25, 0.25, 0.25, 0.25}, 4).places(), {.slots = 2, .threshold = 3, .period = 1}};
  for (int t = 0; t < 10; ++t) b.step({0.7, 0.1, 0.1, 0.1});
  CHECK(b.commits() == 0);
}
