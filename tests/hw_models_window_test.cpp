// SPDX-License-Identifier: Apache-2.0
// What attention within a window takes on GPUs.
#include <catch2/catch.hpp>
#include <cmath>

#include "hw_models/gpu_model.hpp"
#include "hw_models/parameters.hpp"
#include "tests/hw_models_testing.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

double seconds(const DeviceModel& d, const Work& w, const Bindings& b = {}) { return d.cost(w, b, {}).duration.base(); }

PagedAttention served(std::int64_t window) {
  return {.rows = 64,
          .sequences = 64,
          .heads = 64,
          .kv_heads = 8,
          .qk_dim = 64,
          .v_dim = 64,
          .window = window,
          .dtype = DType::BF16,
          .stored = DType::BF16};
}

Bindings decoding(std::int64_t sequences, std::int64_t keys) {
  Bindings b;
  b[Symbol::Decodes] = sequences;
  b[Symbol::DecodeKeys] = sequences * keys;
  return b;
}

}  // namespace

TEST_CASE("one token per sequence reads its window, however long the context", "[hw_models]") {
  for (const char* name : {"a100_80g", "h100_sxm", "b200"}) {
    const auto gpu = find_device(name, {parameters_folder()});
    const double within = seconds(*gpu, served(0), decoding(64, 128));
    CHECK(seconds(*gpu, served(128), decoding(64, 8192)) == within);
    CHECK(seconds(*gpu, served(128), decoding(64, 128)) == within);
    CHECK(seconds(*gpu, served(0), decoding(64, 8192)) > 4 * within);
  }
  // 64 sequences · 128 keys · 8 heads · (64 + 64) numbers of 2 B, and queries of 64 · 64 · 64
  CHECK(amount(Work{served(128)}, decoding(64, 8192)).read == Bytes{64.0 * 128 * 8 * 128 * 2 + 64.0 * 64 * 64 * 2});
}

namespace {

/// Of a GPU that nothing but arithmetic takes time on.
GpuParameters arithmetic_alone() {
  GpuParameters p = testing::bare_gpu();
  GpuLaw law;
  law.parameters = {{"launch", 0}, {"rate", 1}, {"tile", 0}, {"input", 1e9}, {"output", 1e9}, {"quantum", 0}};
  p.laws["prefill"] = law;
  return p;
}

const AttentionShape kPrompt{
    .heads = 100, .kv_heads = 100, .q = 8192, .kv = 8192, .qk_dim = 128, .v_dim = 128, .dtype = DType::BF16};

}  // namespace

TEST_CASE("a prompt passes over the tiles of its window", "[hw_models]") {
  const GpuModel gpu{"gpu", arithmetic_alone()};
  AttentionShape s = kPrompt;
  const double step = 2.0 * 128 * 128 * 256 / 1e12;  // of one SM, which has a head of its own
  // 64 tiles of 128 queries pass over 1, 2, … 64 steps of 128 keys.
  CHECK(seconds(gpu, AttentionForward{s}) == Approx(64 * 65 / 2 * step).epsilon(1e-3));
  // Over the tile's own and the one before it.
  s.window = 128;
  CHECK(seconds(gpu, AttentionForward{s}) == Approx((1 + 63 * 2) * step).epsilon(1e-3));
  // Over nine: eight whole ones between two that are cut; the first 8 tiles see 1 … 8.
  s.window = 1024;
  CHECK(seconds(gpu, AttentionForward{s}) == Approx((8 * 9 / 2 + 56 * 9) * step).epsilon(1e-3));
  // The last 1024 tokens of a prompt that was read before: 8 tiles of 9 steps.
  s.q = 1024;
  CHECK(seconds(gpu, AttentionForward{s}) == Approx(8 * 9 * step).epsilon(1e-3));
  // Side by side: those 8 tiles are a window of their own and pass over 1, 2, … 8 steps, softly at least the longest's.
  s.chunked = true;
  CHECK(seconds(gpu, AttentionForward{s}) ==
        Approx(std::pow(std::pow(36, 4) + std::pow(8, 4), 0.25) * step).epsilon(1e-3));
}

TEST_CASE("documents of a prompt are passed over as prompts of their own", "[hw_models]") {
  const GpuModel gpu{"gpu", arithmetic_alone()};
  AttentionShape s = kPrompt;
  s.documents = 8, s.visible = 8 * 1024 * 1025 / 2;
  const double step = 2.0 * 128 * 128 * 256 / 1e12;
  // Eight documents whose 8 tiles pass over 1, 2, … 8 steps; where documents end within a tile, each has one tile more.
  const double full = 8 * 36, more = 8 * 45, time = seconds(gpu, AttentionForward{s}) / step;
  CHECK(time > full);
  CHECK(time < more);
  s.documents = 1, s.visible = 8192LL * 8193 / 2;
  AttentionShape one = s;
  one.documents = 0, one.visible = 0;
  CHECK(seconds(gpu, AttentionForward{s}) == Approx(seconds(gpu, AttentionForward{one})).epsilon(1e-9));
}
