// SPDX-License-Identifier: Apache-2.0
// Campaigns with failures and checkpoints, against drawn failures.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "sim/base/random.hpp"
#include "sim/program/campaign.hpp"

using namespace orrery;

namespace {

/// Seconds until `work` is done, second by second between drawn failures.
double drawn_wall(const CampaignInputs& in, double work, double interval, Random& random) {
  const double mean = in.mtbf / double(in.devices);
  double now = 0, done = 0, failure = random.exponential(mean);
  const auto passes = [&](double seconds) {  // without a failure
    if (now + seconds <= failure) return now += seconds, true;
    now = failure;
    failure = now + random.exponential(mean);
    return false;
  };
  while (done < work) {
    const double piece = std::min(interval, work - done);
    if (passes(piece + in.checkpoint)) {
      done += piece;
      continue;
    }
    while (!passes(in.restart)) {
    }
  }
  return now;
}

}  // namespace

TEST_CASE("a campaign without failures is its steps", "[campaign]") {
  // 10 M tokens in steps of 3 M take 4; of 2 s on 8 devices: 64 device seconds.
  const TrainingCampaign c =
      campaign({.tokens = 10e6, .step = 2, .tokens_per_step = 3e6, .devices = 8, .price = 3600, .watts = 5});
  CHECK(c.steps == 4);
  CHECK(c.wall == 8);
  CHECK(c.lost() == 0);
  CHECK(c.device_hours == Approx(64.0 / 3600));
  CHECK(c.money == Approx(64));
  CHECK(c.joules == Approx(320));
}

TEST_CASE("failures and checkpoints cost what drawn ones do in the mean", "[campaign]") {
  const CampaignInputs in{
      .tokens = 20000, .step = 1, .tokens_per_step = 1, .devices = 10, .mtbf = 6000, .checkpoint = 20, .restart = 60};
  const TrainingCampaign c = campaign(in);
  Random random{21};
  constexpr int kTrials = 400;
  double sum = 0;
  for (int i = 0; i < kTrials; ++i) sum += drawn_wall(in, 20000, c.interval, random);
  CHECK(sum / kTrials == Approx(c.wall).epsilon(0.02));  // a standard error of 0.4 %
  CHECK(c.failures == Approx(c.wall / 600));
}

TEST_CASE("no other interval is better, and Young's is close where checkpoints are short", "[campaign]") {
  CampaignInputs in{.tokens = 1e6, .step = 1, .tokens_per_step = 1, .devices = 4, .mtbf = 40000, .checkpoint = 50};
  const TrainingCampaign best = campaign(in);
  for (const double factor : {0.5, 0.8, 0.95, 1.05, 1.3, 2.0}) {
    in.interval = factor * best.interval;
    CHECK(campaign(in).wall > best.wall);
  }
  CHECK(best_interval(10000, 1) == Approx(std::sqrt(2 * 1 * 10000.0)).epsilon(0.01));
}

TEST_CASE("checkpoints alone take their share", "[campaign]") {
  const CampaignInputs in{.tokens = 1000, .step = 1, .tokens_per_step = 1, .checkpoint = 10, .interval = 90};
  CHECK(campaign(in).lost() == Approx(0.1));
}
