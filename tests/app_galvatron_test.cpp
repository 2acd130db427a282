// SPDX-License-Identifier: Apache-2.0
// Galvatron's cost model by hand, and its plans against all there are. tests/app_reproduction_test.cpp holds what its
// authors' code comes to beside ours.
#include <catch2/catch.hpp>

#include "sim/app/galvatron_published.hpp"

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
    const std::optional<GalvatronPlan> plan = plan_galvatron(model, ways, {room}, 16);
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
  CHECK(plan_galvatron(model, ways, {20480}, 8)->stages == std::vector<std::int64_t>{1, 3});
}
