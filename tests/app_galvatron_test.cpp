// SPDX-License-Identifier: Apache-2.0
// Galvatron's cost model by hand, and its plans against all there are. tests/app_reproduction_test.cpp holds what its
// authors' code comes to beside ours.
#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/app/reproduce/galvatron_bmw_model.hpp"
#include "sim/app/reproduce/galvatron_published.hpp"

using namespace orrery;

namespace {

const GalvatronModel kBertHuge = galvatron_networks()[0].model(32);

double milliseconds(const GalvatronWay& way, std::int64_t batch) {
  return 1000 * galvatron_cost(kBertHuge, kBertHuge.layers[0], way, batch).seconds;
}

}  // namespace

TEST_CASE("eight devices have 22 ways, and 16 have 37") {
  CHECK(galvatron_ways(8).size() == 22);
  CHECK(galvatron_ways(16).size() == 37);
}

// A layer of 76.98 MiB that takes 55/24 ms forward and twice that backward; rings of eight move a MiB in 0.2153 ms.
TEST_CASE("a layer of BERT-Huge waits for gradients of eight replicas, and for activations of eight parts") {
  const double forward = 55.0 / 24, gradients = 2 * 7.0 / 8 * 76.98 * 0.21530878;  // 29.0 ms
  const double rest = gradients - 2 * forward;  // what its backward pass of one sample does not hide
  CHECK(milliseconds({.dp = 8}, 8) == Approx(1.1 * (forward + 1.3 * 2 * forward + rest)));
  CHECK(milliseconds({.dp = 8, .sharded = true}, 8) ==
        Approx(1.1 * (forward + 1.3 * 2 * forward + rest + gradients / 2)));
  // 64 samples of each replica: 1.3 times as slow for as long as gradients go, and the rest of the pass alone.
  CHECK(milliseconds({.dp = 8}, 512) == Approx(1.1 * (64 * 3 * forward + 0.3 * gradients)));
  // Four sums of 512 x 1,280 floats of each of 8 samples: 80 MiB.
  const double sums = 2 * 7.0 / 8 * 4 * 8 * 2.5 * 0.21530878;
  CHECK(milliseconds({.tp = 8}, 8) == Approx(1.1 * (3 * forward + sums)));
  // Eight stages of two microbatches are busy 2 of 9 times as long; 8 samples are three.
  CHECK(milliseconds({.pp = 8}, 8) == Approx(1.1 * 8 * 3 * forward * (8 + 3 - 1) / (8 * 3)));
}

TEST_CASE("replicas that share states hold their part of them, parts of matrices less activations") {
  const auto mib = [](const GalvatronWay& w) { return galvatron_cost(kBertHuge, kBertHuge.layers[0], w, 8).bytes; };
  CHECK(mib({.dp = 8}) == 402);                   // 4 · 76.98 + 94.07 = 401.99
  CHECK(mib({.dp = 8, .sharded = true}) == 141);  // 307.92 · (1/8 + 0.025) + 94.07 = 140.26
  CHECK(mib({.tp = 8}) == 212);                   // 307.92 / 8 + 8 · 21.61 = 211.38
}

// Layers of two kinds, each with replicas that hold all states or share them; to go back to such that hold all costs
// 0.1 ms.
TEST_CASE("no combination of ways is faster than Galvatron's plan") {
  GalvatronModel model = galvatron_networks()[3].model(32);
  model.layers = {model.layers[0], model.layers[2], model.layers[4], model.layers[31], model.layers[31]};
  const GalvatronWay ways[] = {{.dp = 8}, {.dp = 8, .sharded = true}};
  int found = 0;
  for (std::int64_t room = 2000; room < 6000; room += 100) {
    constexpr std::int64_t kOther = 312 + 70 * 2 + 1024;
    std::optional<double> best;
    for (std::size_t choice = 0; choice < 32; ++choice) {
      LayerCost sum{0, kOther};
      for (std::size_t l = 0; l < model.layers.size(); ++l) {
        const LayerCost c = galvatron_cost(model, model.layers[l], ways[choice >> l & 1], 16);
        sum.seconds += c.seconds, sum.bytes += c.bytes;
        if (l > 0 && (choice >> (l - 1) & 1) && !(choice >> l & 1)) sum.seconds += 1e-4;
      }
      if (sum.bytes <= room && (!best || sum.seconds < *best)) best = sum.seconds;
    }
    CAPTURE(room);
    const std::optional<GalvatronPlan> plan = plan_galvatron(galvatron_costs(model), ways, {room}, 16);
    REQUIRE(plan.has_value() == best.has_value());
    if (!plan) continue;
    CHECK(plan->seconds == Approx(*best));
    ++found;
  }
  CHECK(found > 10);
  CHECK(found < 40);
}

TEST_CASE("layers that differ are dealt out to stages by the memory that they take at least") {
  GalvatronModel model = galvatron_networks()[2].model(4);  // two of an encoder, two of a decoder
  model.other_states = model.other_activations = 0;
  // At least, shared by 4 and of 2 samples: 4 · 48.01 · 0.275 + 2 · 91.003 = 235 MiB, and 386 MiB of a decoder; with
  // the 1,024 of a rank 2,266 MiB, of which half are 1,133. The last stage takes the decoder, has 126 MiB left after
  // one more, which is more than half a layer, and takes the other one, too; but none may have nothing.
  const GalvatronWay ways[] = {{.pp = 2, .dp = 4}, {.pp = 2, .dp = 4, .sharded = true}};
  CHECK(plan_galvatron(galvatron_costs(model), ways, {20480}, 8)->stages == std::vector<std::int64_t>{1, 3});
}

// Two layers of 100 MiB on two devices with rings of a GiB in 100 ms; 10 and 2 MiB and 1 ms per sample.
TEST_CASE(
    "with 1F1B stages hold what their microbatches in flight do, and a step is its slowest stage and hidden sums") {
  constexpr MeasuredRing kRings[] = {{0, 2, true, 0.1}};
  const GalvatronLayer layer{100, {10, 6, 4, 3}, 1, 1 << 19, false, 2};  // a MiB of two bytes each
  BmwModel model{
      {{layer, layer}, 80, 3, 0, nullptr, kRings, {1.25, 1, 2, 0.5, 0, 0, false}}, {40, 2}, {16, 1}, {0, 0.5}};
  model.samples = 1;
  const auto at = [&](const GalvatronWay& w, std::size_t stage) {
    return bmw_costs(model)({w}, 8)->layer(0, w, stage);
  };
  const GalvatronWay stages{.pp = 2}, replicas{.dp = 2}, shared{.dp = 2, .sharded = true},
      again{.pp = 2, .again = true};
  // Of eight microbatches of one sample the first stage holds two, the last one.
  CHECK(at(stages, 0).bytes == 400 + 2 * 10);
  CHECK(at(stages, 1).bytes == 400 + 10);
  CHECK(at(again, 0).bytes == 400 + 2 * 2);
  CHECK(at(replicas, 0).bytes == 267);  // 400 (7/8 · 0.503 + 1/8) = 226.05, and 4 samples; whole MiB
  CHECK(at(shared, 0).bytes == 242);    // 400 · 0.503 + 40
  CHECK(at(again, 0).seconds == Approx(1e-3 * (3.5 + 2 * 2 * 0.5 / 2)));  // a hop of 1 MiB for each layer
  CHECK(bmw_costs(model)({stages}, 8)->other_mib(0) == Approx(1024 + 40 * (0.75 * 1.003 + 0.25) + 2 * 2));
  CHECK(bmw_costs(model)({stages}, 8)->other_mib(1) == Approx(1024 + 16 * (0.75 * 1.003 + 0.25) + 1));
  // Beside what two stages hold at once, one layer that is made again.
  CHECK(bmw_costs(model)({stages, again}, 8)->other_mib(1) == Approx(1024 + 16 * (0.75 * 1.003 + 0.25) + 1 + 10));
  // Eight microbatches through two stages of 4 ms: nine times as long.
  CHECK(plan_galvatron(bmw_costs(model), std::vector{stages}, {4096}, 8)->seconds == Approx(9 * 4e-3));
  // Sums of 50 MiB take 5 ms of the 8 of a backward pass, each then 1.25 times as long.
  CHECK(plan_galvatron(bmw_costs(model), std::vector{replicas}, {4096}, 8)->seconds == Approx(2e-3 * (12 + 0.25 * 5)));
  CHECK(plan_galvatron(bmw_costs(model), std::vector{shared}, {4096}, 8)->seconds ==
        Approx(2e-3 * (12 + 0.25 * 5 + 2.5)));
}

TEST_CASE("microbatches have four samples, and more where eight of them are not enough") {
  const BmwModel model;
  CHECK(bmw_microbatches(model, 1, 6) == std::vector<std::int64_t>{6});
  CHECK(bmw_microbatches(model, 2, 6) == std::vector<std::int64_t>{3, 3});
  CHECK(bmw_microbatches(model, 2, 9) == std::vector<std::int64_t>{3, 3, 3});
  CHECK(bmw_microbatches(model, 4, 34) == std::vector<std::int64_t>{5, 5, 5, 5, 5, 5, 4});
}

TEST_CASE("layers that are made again are a choice of each way") {
  const std::vector<GalvatronWay> ways = with_layers_again(galvatron_ways(8));
  CHECK(ways.size() == 44);
  CHECK(std::count_if(ways.begin(), ways.end(), [](const GalvatronWay& w) { return w.again; }) == 22);
  for (std::size_t i = 1; i < ways.size(); ++i) CHECK(ways[i].pp >= ways[i - 1].pp);
}
