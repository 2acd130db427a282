// SPDX-License-Identifier: Apache-2.0
// Attention by products of four warps: where operands lie, mistakes that the emulation sees, results, and the trial
// before its first use.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/attention_hopper.hpp"
#include "kernels/host/attention.hpp"
#include "runtime/cuda/attention_trial.hpp"
#include "runtime/cuda/host_side.hpp"
#include "sim/plan/builder.hpp"
#include "tests/cuda_hopper_emulation.hpp"
#include "tests/emulated_gpu.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery;
using namespace orrery::testing;
using kernels::testing::random_values;
using kernels::testing::Values;

namespace {

/// Where number (r, c) of a tile lies that a kernel has filled by chunk_at.
template <int ROWS>
std::uint32_t number_at(std::uint32_t tile, std::uint32_t r, std::uint32_t c) {
  return tile + gpu::chunk_at<ROWS>(r, c / 8) + c % 8 * 2;
}

/// How a thread's kernel may go wrong.
enum class Slip { None, NoFence, NoProxyFence, LateRows, EarlySums };

/// d = A·Aᵀ of a tile of 64 rows of 64 numbers, 64 columns of the 128 being zeros.
struct SlipKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  Slip slip;
  const gpu::bf16* x;
  float* d;

  template <class Thread>
  void operator()(const Thread& t) const {
    const std::uint32_t tile = (t.shared_base() + 1023) / 1024 * 1024;
    for (std::uint32_t i = static_cast<std::uint32_t>(t.index()); i < 128 * 8; i += 128)
      t.copy_async(tile + gpu::chunk_at<128>(i / 8, i % 8), x + i % 512 * 8, i < 512);
    t.copy_commit();
    t.template copy_wait<0>();
    if (slip != Slip::NoProxyFence) t.proxy_fence();
    t.sync();
    float s[16][4];
    if (slip != Slip::NoFence) t.products_fence();
    for (int k = 0; k < 4; ++k)
      t.multiply(s, gpu::along_rows<128>(tile, k), gpu::along_rows<128>(tile, k), k > 0, gpu::bf16{});
    t.products_commit();
    if (slip == Slip::LateRows) {
      t.sync();
      t.copy_async(tile + gpu::chunk_at<128>(static_cast<std::uint32_t>(t.index()) % 64, 0), x, false);
      t.copy_commit();
      t.template copy_wait<0>();
      t.proxy_fence();
      t.sync();
    }
    const float early = s[0][0];
    t.template products_wait<0>(s);
    d[t.index()] = slip == Slip::EarlySums ? early : s[0][0];
  }
};

struct Sizes {
  std::int64_t batch = 1, heads = 2, kv_heads = 1, q = 70, kv = 70;
  bool causal = true;
  std::int64_t blocks = 0;  // 0: one per tile
};

template <class T>
std::vector<T> rounded(Values& x) {
  std::vector<T> y;
  for (double& v : x) {
    y.push_back(gpu::from_float<T>(static_cast<float>(v)));
    v = gpu::to_float(y.back());
  }
  return y;
}

struct Outputs {
  Values o, lse;
};

Outputs on_host(const Sizes& s, std::int64_t dim, const Values& q, const Values& k, const Values& v) {
  Outputs out{Values(q.size()), Values(static_cast<std::size_t>(s.batch * s.heads * s.q))};
  kernels::AttentionArgs<double> a;
  a.dims = {s.batch, s.q, s.kv, s.heads, s.kv_heads, dim, dim};
  a.scale = 0.3;
  a.q = q.data(), a.k = k.data(), a.v = v.data(), a.o = out.o.data(), a.lse = out.lse.data();
  a.q_strides = a.o_strides = kernels::contiguous(s.q, s.heads, dim);
  a.k_strides = a.v_strides = kernels::contiguous(s.kv, s.kv_heads, dim);
  a.mask.causal = s.causal;
  std::vector<double> workspace(kernels::attention_workspace(a.dims, sizeof(double)) / sizeof(double) + 1);
  a.workspace = workspace.data();
  kernels::attention(a);
  return out;
}

template <class T, int D>
void compare(const Sizes& s) {
  Values q = random_values(s.batch * s.q * s.heads * D, 1), k = random_values(s.batch * s.kv * s.kv_heads * D, 2),
         v = random_values(s.batch * s.kv * s.kv_heads * D, 3);
  std::vector<T> dq = rounded<T>(q), dk = rounded<T>(k), dv = rounded<T>(v);
  const Outputs want = on_host(s, D, q, k, v);
  std::vector<T> o(q.size(), T{0x7fff});  // no number
  std::vector<float> lse(want.lse.size(), std::numeric_limits<float>::quiet_NaN());
  const auto view = [](std::vector<T>& x, std::int64_t tokens, std::int64_t heads) {
    return gpu::HeadView{x.data(), tokens * heads * D, heads * D, D};
  };
  std::int32_t fault[4] = {};
  const gpu::HopperAttentionKernel<T, D> kernel{.p = {.batch = s.batch,
                                                      .heads = s.heads,
                                                      .kv_heads = s.kv_heads,
                                                      .q_len = s.q,
                                                      .kv_len = s.kv,
                                                      .qk_dim = D,
                                                      .v_dim = D,
                                                      .window = 0,
                                                      .scale = 0.3f,
                                                      .causal = s.causal,
                                                      .q = view(dq, s.q, s.heads),
                                                      .k = view(dk, s.kv, s.kv_heads),
                                                      .v = view(dv, s.kv, s.kv_heads),
                                                      .bias = {},
                                                      .group_mask = {},
                                                      .tree_mask = {},
                                                      .pages = {}},
                                                .o = view(o, s.q, s.heads),
                                                .lse = {lse.data(), gpu::NumberType::F32},
                                                .fault = {fault, 0}};
  run_hopper_grid<gpu::HopperAttentionKernel<T, D>>({&gpu::kTagOf<gpu::HopperAttentionKernel<T, D>>, &kernel,
                                                     s.blocks > 0 ? s.blocks : kernel.tiles(), kernel.kShared});
  CHECK(fault[0] == 0);
  Values got, sums, sums_wanted;
  for (const T x : o) got.push_back(gpu::to_float(x));
  CHECK(kernels::testing::distance(got, want.o) < (std::is_same_v<T, gpu::f16> ? 1e-3 : 1e-2));
  for (std::size_t i = 0; i < lse.size(); ++i) {
    if (std::isinf(want.lse[i])) {
      CHECK(static_cast<double>(lse[i]) == want.lse[i]);
      continue;
    }
    sums.push_back(lse[i]);
    sums_wanted.push_back(want.lse[i]);
  }
  CHECK(kernels::testing::distance(sums, sums_wanted) < 1e-5);
}

void compare_all(const Sizes& s) {
  compare<gpu::bf16, 64>(s);
  compare<gpu::f16, 128>(s);
}

}  // namespace

TEST_CASE("a product finds each number of a tile where a kernel has put it", "[cuda]") {
  constexpr int kRows = 128;
  constexpr std::uint32_t kTile = 5 * 1024;
  std::set<std::uint32_t> places;
  for (int r = 0; r < kRows; ++r)
    for (int c = 0; c < 128; ++c) {
      const std::uint32_t at = number_at<kRows>(kTile, static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(c));
      places.insert(at);
      CHECK(operand_at(gpu::along_rows<kRows>(kTile, c / 16), Major::K, r, c % 16) == at);
      CHECK(operand_at(gpu::down_rows<kRows>(kTile, r / 16), Major::MN, c, r % 16) == at);
    }
  CHECK(places.size() == 128 * 128);
  CHECK(*places.rbegin() == kTile + 128 * 128 * 2 - 2);
}

TEST_CASE("eight rows of a column and eight columns of a row are in different banks", "[cuda]") {
  for (std::uint32_t fixed = 0; fixed < 8; ++fixed) {
    std::set<std::uint32_t> by_row, by_column;
    for (std::uint32_t i = 0; i < 8; ++i) {
      by_row.insert(gpu::chunk_at<64>(i, fixed) % 128);
      by_column.insert(gpu::chunk_at<64>(fixed, i) % 128);
    }
    CHECK(by_row.size() == 8);
    CHECK(by_column.size() == 8);
  }
}

TEST_CASE("a descriptor says what the PTX ISA has it say", "[cuda]") {
  // Address 0x2c00 → 0x2c0 in bits 0 … 13, 16384 B → 1024 from bit 16 on, 1024 B → 64 from bit 32 on, swizzle 1 at 62.
  CHECK(gpu::matrix_descriptor(0x2c00, 16384, 1024) == (0x2c0u | 1024ull << 16 | 64ull << 32 | 1ull << 62));
}

TEST_CASE("the emulation of products sees what a GPU would leave to chance", "[cuda]") {
  Values x = random_values(64 * 64, 4);
  const std::vector<gpu::bf16> numbers = rounded<gpu::bf16>(x);
  std::vector<float> d(128);
  const auto run = [&](Slip slip) {
    const SlipKernel kernel{slip, numbers.data(), d.data()};
    run_hopper_grid<SlipKernel>({&gpu::kTagOf<SlipKernel>, &kernel, 1, 1024 + 128 * 128});
  };
  run(Slip::None);
  double square = 0;  // of row 0, which lane 0 of warp 0 has: s[0][0] is (0, 0)
  for (std::size_t k = 0; k < 64; ++k) square += x[k] * x[k];
  CHECK(double(d[0]) == Approx(square).epsilon(1e-5));
  CHECK_THROWS_WITH(run(Slip::NoFence), "products without wgmma.fence before them");
  CHECK_THROWS_WITH(run(Slip::NoProxyFence), "products read memory whose writer has not made it visible to them");
  CHECK_THROWS_WITH(run(Slip::LateRows), "memory of an operand changed while products were under way");
  run(Slip::EarlySums);
  CHECK(std::isnan(d[0]));
}

TEST_CASE("attention by products of four warps agrees with the host", "[cuda]") {
  SECTION("less than a tile") { compare_all({.q = 5, .kv = 3, .causal = false}); }
  SECTION("odd sizes, causal") { compare_all({.q = 197, .kv = 197}); }
  SECTION("odd sizes, not causal") { compare_all({.q = 133, .kv = 301, .causal = false}); }
  SECTION("few queries behind many keys") { compare_all({.q = 17, .kv = 530}); }
  SECTION("shared keys, sequences side by side") {
    compare_all({.batch = 2, .heads = 4, .kv_heads = 2, .q = 129, .kv = 140});
  }
  SECTION("the first queries see no key") { compare_all({.q = 200, .kv = 40}); }
  SECTION("a block with tile after tile") { compare_all({.heads = 3, .q = 260, .kv = 400, .blocks = 2}); }
  SECTION("the other types") {
    compare<gpu::f16, 64>({.q = 131, .kv = 257});
    compare<gpu::bf16, 128>({.q = 131, .kv = 257});
  }
}

TEST_CASE("a kernel whose trial fails is not used, which is told once", "[cuda]") {
  const std::uint32_t bit = quick_attention_bit(DType::BF16, 64, 64);
  std::vector<std::string> told;
  const auto warn = [&](std::string_view text) { told.emplace_back(text); };
  SECTION("one that computes what it should is") {
    EmulatedGpu driver;
    CHECK(try_quick_attention(driver, bit, warn) == bit);
    CHECK(told.empty());
    CHECK(driver.bytes_in_use(0) == 0);
    CHECK(driver.streams() == 0);
  }
  SECTION("one that does nothing") {
    EmulatedGpu driver{{.skips = "HopperAttention"}};
    CHECK(try_quick_attention(driver, bit, warn) == 0);
    CHECK(try_quick_attention(driver, bit, warn) == 0);
    REQUIRE(told.size() == 1);
    CHECK(told[0] ==
          "attention by wgmma in bf16 with heads of 64 is not used, the slower kernel is: device 0 computes something "
          "else");
    CHECK(driver.quick_attention.refused == told);
    CHECK(driver.bytes_in_use(0) == 0);
  }
  SECTION("one that cannot be started") {
    EmulatedGpu driver{{.fails_at = "launch", .fails_after = 0}};
    CHECK(try_quick_attention(driver, bit, warn) == 0);
    REQUIRE(told.size() == 1);
    CHECK(
        told[0] ==
        "attention by wgmma in bf16 with heads of 64 is not used, the slower kernel is: launch: an error that the test "
        "asked for");
  }
  SECTION("devices without such products, and heads of other sizes") {
    EmulatedGpu driver{{.capability = 100}};
    CHECK(try_quick_attention(driver, bit, warn) == 0);
    CHECK(told.empty());
    CHECK(driver.quick_attention.tried == 0);
    CHECK(quick_attention_bit(DType::BF16, 80, 80) == 0);
    CHECK(quick_attention_bit(DType::F32, 64, 64) == 0);
    CHECK(quick_attention_bit(DType::F16, 128, 64) == 0);
  }
}

TEST_CASE("a kernel whose threads wait for one another in vain says so", "[cuda]") {
  EmulatedGpu driver;
  PlanBuilder b{"stalled"};
  b.add("attend", Fill{.elements = 1}, {writes(b.tensor("x", Shape{1}, {.dtype = DType::F32, .persistent = true}))});
  const Plan plan = b.take(nullptr);
  HostSide side{driver};
  side.fault(OpId{std::size_t{0}}).raise(gpu::FaultKind::Stalled, 0, 0);
  CHECK_THROWS_WITH(
      side.check(plan),
      "op 0 'attend': threads of a block waited for one another for seconds, and went on: the result is wrong");
}
