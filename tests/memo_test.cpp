// SPDX-License-Identifier: Apache-2.0
// MEMO: what is swapped of a layer, and plans of memory in two levels.
#include <catch2/catch.hpp>

#include "sim/search/memory_plan.hpp"
#include "sim/strategy/offload/memo.hpp"

using namespace orrery;

TEST_CASE("the part that is swapped follows from link and host", "[memo]") {
  // 7B on 8 GPUs: U = 2·s·4096/8 bytes per GPU; 2 TiB/8 per GPU; 30 layers are swapped.
  const double million = 1 << 20;
  const Bytes host{2.0 * (std::int64_t{1} << 40) / 8};
  const SwappedLayer layer = SwappedLayer::of_gpt(1, million, 4096, 8);
  CHECK(layer.always.base() == 2 * 1024.0 * million);
  CHECK(layer.bytes(1).base() == 16 * 1024.0 * million);
  const SwapBounds slow = swap_bounds(layer, 32, Seconds{1.0}, 10.0 * BytesPerSecond{1e9}, host);
  CHECK(slow.host == Approx((256.0 / 30 - 2) / 14));  // 0.467
  CHECK(slow.link == Approx((1e10 / (1024.0 * million) - 2) / 14));
  CHECK(slow.alpha() == Approx(slow.host));
  // s* = 16·F/B − 12·h: with 180 TFLOP/s and 11.7 GB/s the forward pass of a causal layer (24·s·h² + 2·s²·h FLOP over 8
  // ranks) takes as long as the copy of all.
  const double f = 180e12, b = 11.7e9, s = 16 * f / b - 12 * 4096;
  const Seconds forward{(24 * s * 4096 * 4096 + 2 * s * s * 4096) / 8 / f};
  CHECK(swap_bounds(SwappedLayer::of_gpt(1, s, 4096, 8), 32, forward, BytesPerSecond{b}, host).link == Approx(1));
  CHECK(s / 1024 == Approx(192).epsilon(0.01));
}

TEST_CASE("bounds of zero and of all", "[memo]") {
  const SwappedLayer layer = SwappedLayer::of_gpt(1, 1024, 64, 1);
  CHECK(swap_bounds(layer, 8, Seconds{0.0}, BytesPerSecond{1e9}, Bytes{1e12}).alpha() == 0);
  CHECK(swap_bounds(layer, 8, Seconds{1e3}, BytesPerSecond{1e9}, Bytes{1e12}).alpha() == 1);
  CHECK(swap_bounds(layer, 2, Seconds{1e3}, BytesPerSecond{1e9}, Bytes{0.0}).alpha() == 1);  // nothing is swapped
}

namespace {

/// Layers forward and back: each takes what it keeps, and transient blocks in between.
AllocationTrace layered(int layers) {
  using Kind = AllocationTrace::Kind;
  AllocationTrace t;
  std::vector<std::uint32_t> kept;
  const auto take = [&](int layer, std::int64_t bytes) {
    t.labels.push_back("layers." + std::to_string(layer) + ".x");
    t.events.push_back(
        {.kind = Kind::Take, .block = t.num_blocks, .label = std::uint32_t(t.labels.size() - 1), .bytes = bytes});
    return t.num_blocks++;
  };
  const auto give = [&](std::uint32_t block) { t.events.push_back({.kind = Kind::Give, .block = block}); };
  for (int l = 0; l < layers; ++l) {
    const auto a = take(l, 300), b = take(l, 500);
    kept.push_back(take(l, 100));
    give(a);
    const auto c = take(l, 200);
    give(b);
    give(c);
  }
  for (int l = layers - 1; l >= 0; --l) {
    const auto a = take(l, 400), b = take(l, 700);
    give(kept[std::size_t(l)]);
    give(a);
    give(b);
  }
  return t;
}

}  // namespace

TEST_CASE("layers that do the same are planned once, and get the same places relative to each other", "[memo]") {
  const MemoryPlan p = plan_memory(layered(24), Seconds{5.0});
  // In the middle the last layer turns: its forward and its backward pass are one run of events.
  CHECK(p.passes == 47);
  CHECK(p.kinds == 3);
  CHECK(p.proved == 3);
  CHECK(p.transient_blocks >= 24 * 5 - 1);
  CHECK(p.most_live == 24 * 100 + 1100);
  CHECK(p.places.height == p.most_live);
  const auto blocks = blocks_of(layered(24));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (blocks[i].begin < blocks[j].end && blocks[j].begin < blocks[i].end)
        REQUIRE((p.places.places[i] + blocks[i].bytes <= p.places.places[j] ||
                 p.places.places[j] + blocks[j].bytes <= p.places.places[i]));
}

TEST_CASE("labels name layers", "[memo]") {
  CHECK(layer_of("layers.12.mlp.up") == 12);
  CHECK(layer_of("logits") == -1);
}
