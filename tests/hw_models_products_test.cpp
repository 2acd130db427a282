// SPDX-License-Identifier: Apache-2.0
// What products on a host take their time for.
#include <catch2/catch.hpp>

#include "sim/plan/reuse.hpp"
#include "tests/hw_models_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("packed columns that fill the near cache are read from beyond it, and rows 4 KB apart collide",
          "[hw_models]") {
  const auto feature = [](std::string_view name, const Gemm& g) { return millions(gemm_form(), name, {Work{g}, {}}); };
  const auto of = [](std::int64_t m, std::int64_t n, DType t = DType::F32) {
    return Gemm{.m = m, .n = n, .k = 256, .dtype = t};
  };
  // 32 rows of A and C and 256 of B, of 4 bytes, in 1 MiB: x = 1.15625 of 1,024 columns, 0.171875 of 128; x² / (1 + x²)
  CHECK(feature("panel_far", of(128, 1024)) == Approx(4 * 256 * 1024 * 0.572085).epsilon(1e-4));
  CHECK(feature("panel_far", of(129, 1024)) == Approx(2 * feature("panel_far", of(128, 1024))));
  CHECK(feature("panel_far", of(128, 128)) == Approx(4 * 256 * 128 * 0.028694).epsilon(1e-4));
  CHECK(feature("aliased", of(128, 2048)) == Approx(128 * 2048));
  CHECK(feature("aliased", of(128, 1056)) == 0);
  CHECK(feature("aliased", of(128, 512)) == 0);
  CHECK(feature("aliased", of(128, 512, DType::F64)) == Approx(128 * 512));
}

TEST_CASE("what a few rows wait for falls with their number, and sums begin anew as often as A is used up",
          "[hw_models]") {
  const auto feature = [](std::string_view name, const Gemm& g) {
    Bindings far;
    far.working_set = 1e12;
    return millions(few_rows_form(), name, {Work{g}, far});
  };
  const auto of = [](std::int64_t m, std::int64_t n, std::int64_t k, bool transposed) {
    return Gemm{.m = m, .n = n, .k = k, .transpose_b = transposed};
  };
  const double elements = 64 * 512;
  CHECK(feature("few", of(1, 64, 512, true)) == Approx(elements));
  CHECK(feature("few", of(2, 64, 512, true)) == Approx(elements / 2));
  CHECK(feature("few", of(3, 64, 512, true)) == 0);
  for (const auto& [m, name] : {std::pair{2, "b_cold_2"}, {4, "b_cold_4"}, {8, "b_cold_8"}})
    for (const std::string_view other : {"b_cold_2", "b_cold_4", "b_cold_8"})
      CHECK(feature(other, of(m, 64, 512, true)) == Approx(other == name ? 4 * elements : 0));
  // 8 rows of 512 f32 are 16 KB, of 513 more
  CHECK(feature("column", of(8, 64, 512, true)) == Approx(8 * 64));
  CHECK(feature("column", of(8, 64, 513, true)) == Approx(2 * 8 * 64));
  CHECK(feature("tail", of(8, 64, 512, true)) == 0);
  CHECK(feature("tail", of(8, 64, 513, true)) == Approx(8 * 64));
  CHECK(feature("tail", of(8, 67, 512, false)) == Approx(8 * 512 * 3));
  CHECK(feature("split", of(8, 64, 513, true)) == Approx(64 * 513));
  CHECK(feature("split", of(8, 64, 512, true)) == 0);
}

TEST_CASE("what is read from memory takes longer the more a step passes over", "[hw_models]") {
  const Gemm g{.m = 1, .n = 64, .k = 512, .transpose_b = true};
  const Work decode{AttentionForward{.shape = {.heads = 2, .kv_heads = 2, .q = 1, .kv = 128, .qk_dim = 64, .v_dim = 64},
                                     .keep_lse = false}};
  for (const double mib : {32.0, 128.0, 512.0}) {
    Bindings step;
    step.working_set = mib * (1 << 20);
    // 128 KiB of B, 128 KiB of keys and values, a cache of 16 MiB, and tables for half of 128 MiB.
    const auto part = [](double times) { return times * times / (1 + times * times); };
    const double lost = 131072 * part(mib / 16) * part(mib / 128);
    CHECK(millions(few_rows_form(), "b_wide", {Work{g}, step}) == Approx(lost));
    CHECK(millions(attention_decode_form(), "wide", {decode, step}) == Approx(lost));
  }
}

TEST_CASE("what a product has to fetch of either operand counts by itself", "[hw_models]") {
  const Work work{Gemm{.m = 64, .n = 128, .k = 256}};
  const Bytes near = Bytes{1e3}, warm = Bytes{4e6}, cold = Bytes{1e9};  // in caches of 1 and 16 MiB
  const auto features = [&](Bytes of_a, Bytes of_b) {
    const Reuse reuse{{{.operand = 0, .reads = true, .bytes = Bytes{1000}, .distance = of_a},
                       {.operand = 1, .reads = true, .bytes = Bytes{2000}, .distance = of_b}}};
    Bindings b;
    b.reuse = &reuse;
    std::vector<double> out;
    for (const std::string_view name : {"a_warm", "warm", "a_cold", "cold"})
      out.push_back(millions(gemm_form(), name, {work, b}));
    return out;
  };
  const auto is = [](const std::vector<double>& got, const std::vector<double>& want) {
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i] == Approx(want[i]).margin(10));
  };
  is(features(near, near), {0, 0, 0, 0});
  is(features(warm, near), {1000, 0, 0, 0});
  is(features(near, warm), {0, 2000, 0, 0});
  is(features(cold, near), {1000, 0, 1000, 0});
  is(features(warm, cold), {1000, 2000, 0, 2000});
}
