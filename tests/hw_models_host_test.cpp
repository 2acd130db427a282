// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "hw_models/host_model.hpp"
#include "sim/base/random.hpp"
#include "tests/hw_models_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;
using orrery::testing::millions;

namespace {

constexpr const char* kHost = R"(
provenance: {status: fitted, machine: m, date: 2026-11-21, tool: t, source: s}
l2: 1 MiB
l3: 16 MiB
memory_bandwidth: 20 GB/s
peak: 100 GFLOP/s
dispatch: 1 us
laws:
  add:
    coefficients: {call: 2 us, element: 500 us}
    range: {rows: [1, 1000], elements: [64, 1e6]}
    deviation: 0.03
    bias: 0.04
  gemm.nt:
    coefficients: {call: 1 us, math: 10 us}
    range: {m: [9, 1024], n: [32, 1024], k: [32, 1024], mflop: [0, 2000]}
    deviation: 0.02
    bias: 0.02
)";

HostModel host(const std::string& text = kHost) {
  return HostModel{"host", read_host_parameters(parse_yaml(text, "h.yaml"))};
}

}  // namespace

TEST_CASE("a pass over memory costs its call and its elements", "[hw_models]") {
  // 100·1000 sums read 2 and write 1 element each: 0.3 million elements of 500 us per million, and 2 us: 152 us.
  const OpCost c = host().cost(Add{100, 1000}, {}, {});
  CHECK(c.duration.base() == Approx(152e-6));
  CHECK(c.deviation == Approx(0.03));
  CHECK(c.bias == Approx(0.04));
  CHECK(c.calibrated);
  CHECK(c.used()[0].resource == Resource::CpuCores);
}

TEST_CASE("a product computes whole tiles of 8 by 32", "[hw_models]") {
  // m = 10 → 16, n = 40 → 64: 2·16·64·100 = 0.2048 MFLOP of 10 us, and 1 us: 3.048 us.
  const Gemm g{.m = 10, .n = 40, .k = 100, .transpose_b = true};
  CHECK(host().cost(g, {}, {}).duration.base() == Approx(3.048e-6));
}

TEST_CASE("an op beyond the fitted range says so and its interval widens", "[hw_models]") {
  const HostModel model = host();
  const Work far = Add{8000, 1000};  // rows 8 times, elements 24 times the most that was measured
  CHECK_FALSE(model.cost(far, {}, {}).calibrated);
  CHECK(model.cost(far, {}, {}).bias > 0.3);
  CHECK(model.extrapolation(far, {}, {}) == "add: rows 8000 is outside of 1 to 1000");
  CHECK(model.extrapolation(Add{100, 1000}, {}, {}).empty());
}

TEST_CASE("attention of documents visits the keys that the kernel does", "[hw_models]") {
  Random random{11};
  for (const std::int64_t most : {60, 400, 1000}) {
    constexpr std::int64_t kWindow = 1024, kSamples = 200;
    std::int64_t visited = 0, pairs = 0, documents = 0;
    for (std::int64_t n = 0; n < kSamples; ++n) {
      std::vector<std::int64_t> first;  // key that each query sees
      for (std::int64_t begin = 0; begin < kWindow; ++documents) {
        const auto length = static_cast<std::int64_t>(1 + random.below(static_cast<std::uint64_t>(most)));
        const std::int64_t end = std::min(begin + length, kWindow);
        for (; std::ssize(first) < end;) pairs += std::ssize(first) - begin + 1, first.push_back(begin);
        begin = end;
      }
      for (std::int64_t i = 0; i < kWindow; i += 64)  // tiles of 64 queries, parts of 32 keys
        visited += 64 * (i + 64 - first[static_cast<std::size_t>(i)] / 32 * 32);
    }
    const AttentionForward op{.shape = {.q = kWindow,
                                        .kv = kWindow,
                                        .qk_dim = 32,
                                        .v_dim = 32,
                                        .visible = pairs / kSamples,
                                        .documents = documents / kSamples}};
    const Work work = op;
    CHECK(millions(attention_form(), "scores", {work, {}}) == Approx(double(visited) / kSamples).epsilon(0.05));
  }
}

TEST_CASE("a kind without a law borrows one and says from where", "[hw_models]") {
  const HostModel model = host();
  const OpCost c = model.cost(Multiply{100, 1000}, {}, {});
  CHECK_FALSE(c.calibrated);
  CHECK(c.bias > 0.5);
  CHECK(model.extrapolation(Multiply{100, 1000}, {}, {}) == "multiply: not measured, taken from add");
}

TEST_CASE("arithmetic in double costs twice and is not calibrated", "[hw_models]") {
  Gemm g{.m = 64, .n = 64, .k = 64, .transpose_b = true};
  const double single = host().cost(g, {}, {}).duration.base() - 1e-6;
  g.dtype = DType::F64;
  CHECK(host().cost(g, {}, {}).duration.base() - 1e-6 == Approx(2 * single));
  CHECK(host().extrapolation(g, {}, {}) == "gemm.nt: fitted in f32 only");
}

TEST_CASE("knobs scale the part of a law that they name", "[hw_models]") {
  Scales s;
  s.scale("launch.overhead", 3);
  s.scale("memory.bandwidth", 2);
  CHECK(host().cost(Add{100, 1000}, {}, s).duration.base() == Approx(3 * 2e-6 + 150e-6 / 2));
}

TEST_CASE("an op feels what slows its core by how much of what it moves is near", "[hw_models]") {
  std::string text = kHost;
  text.replace(text.find("    bias: 0.04"), 14, "    bias: 0.04\n    sensitivity: 1.1\n    sensitivity_far: 0.3");
  Bindings far;
  far.working_set = 1e12;
  CHECK(host(text).cost(Add{10, 100}, {}, {}).sensitivity == Approx(1.1));
  CHECK(host(text).cost(Add{10, 100}, far, {}).sensitivity == Approx(0.3));
  CHECK(host().cost(Add{10, 100}, {}, {}).sensitivity == Approx(1));  // where it was not measured, as a fixed work does
}

TEST_CASE("parameters of a host read back as they were written", "[hw_models]") {
  const HostParameters p = read_host_parameters(parse_yaml(kHost, "h.yaml"));
  const HostParameters again = read_host_parameters(parse_yaml(to_yaml(write_host_parameters(p)), "again.yaml"));
  CHECK(again.laws.at("add").coefficients.at("element") == 500.0_us);
  CHECK(again.laws.at("gemm.nt").range.at("m") == std::vector<double>{9, 1024});
  CHECK(again.dispatch == 1.0_us);
}

TEST_CASE("parameters with an unknown law or feature are of another version", "[hw_models][error]") {
  std::string text = kHost;
  text.replace(text.find("  add:"), 6, "  ad:");
  CHECK_THAT(user_error([&] { host(text); }), Catch::Contains("unknown law 'ad'"));
  text = kHost;
  text.replace(text.find("element: 500"), 7, "elemant");
  CHECK_THAT(user_error([&] { host(text); }),
             Catch::Contains("unknown feature 'elemant'\n") &&
                 Catch::EndsWith("hint: parameters of another version: `orrery calibrate` measures them again"));
  text.replace(text.find("  add:"), 6, "  ad:");
  text.replace(text.find("elemant"), 7, "element");
  text.replace(text.find("gemm.nt"), 7, "gemm.xy");
  CHECK_THAT(user_error([&] { host(text); }), Catch::Contains("unknown law '") && Catch::Contains(", and 1 more\n"));
}

TEST_CASE("a coefficient without a unit is refused", "[hw_models][error]") {
  std::string text = kHost;
  text.replace(text.find("call: 2 us"), 10, "call: 2   ");
  CHECK_THAT(user_error([&] { host(text); }), Catch::Contains("h.yaml:10:26"));
}

TEST_CASE("every law has a name of its own", "[hw_models]") {
  std::set<std::string> names;
  for (std::size_t slot = 0; slot < kNumSlots; ++slot)
    if (const std::string name = slot_name(slot); !name.empty()) CHECK(names.insert(name).second);
  CHECK(names.contains("gemm.few_nt"));
  CHECK(names.contains("activation.gelu_tanh"));
  CHECK(names.contains("attention.decode"));
  CHECK(names.contains("collective.all_reduce"));
  CHECK(slot_name(slot_of(Gemm{.m = 8, .n = 64, .k = 64, .transpose_b = true})) == "gemm.few_nt");
  CHECK(slot_name(slot_of(NormForward{.kind = NormKind::Rms, .rows = 1, .dim = 1})) == "norm.rms");
}

TEST_CASE("a grouped product is one product per group", "[hw_models]") {
  // 64 rows over 4 groups: 16 rows each; dW has the rows inside.
  const GroupedGemm g{.rows = 64, .n = 128, .k = 96, .groups = 4};
  CHECK(even_groups(g) == Gemm{.m = 16, .n = 128, .k = 96, .batch = 4});
  GroupedGemm dw = g;
  dw.mode = GroupedMode::WeightGradient;
  CHECK(even_groups(dw) == Gemm{.m = 96, .n = 128, .k = 16, .batch = 4, .transpose_a = true});
}

TEST_CASE("a cache keeps half of what is as large as itself", "[hw_models]") {
  CHECK(spill(1.0_MiB, 1.0_MiB) == 0.5);
  CHECK(spill(10.0_MiB, 1.0_MiB) == Approx(100.0 / 101));
}

TEST_CASE("a step keeps all or nothing in a cache of its own, and in a shared one more of what is too large",
          "[hw_models]") {
  const Caches caches{1.0_MiB, 16.0_MiB};
  const auto of = [&](CacheLevel level) {
    const Bytes size = level == CacheLevel::Last ? caches.l3 : caches.l2;
    return std::array{evicted(0.5 * size, caches, level), evicted(size, caches, level),
                      evicted(2.0 * size, caches, level)};
  };
  CHECK(of(CacheLevel::Second) == std::array{1.0 / 257, 0.5, 256.0 / 257});
  CHECK(of(CacheLevel::Last) == std::array{1.0 / 17, 0.5, 4.0 / 5});
}

TEST_CASE("a last cache may lose what is too large as steeply as one of a core", "[hw_models]") {
  const Caches caches{.l2 = 1.0_MiB, .l3 = 16.0_MiB, .steepness = 8};
  CHECK(evicted(8.0_MiB, caches, CacheLevel::Last) == 1.0 / 257);
  CHECK(evicted(32.0_MiB, caches, CacheLevel::Last) == 256.0 / 257);
  CHECK(evicted(Bytes{1e300}, caches, CacheLevel::Last) == 1);  // x⁸ has no number
}

TEST_CASE("weights that the last cache may or may not hold make a prediction doubtful", "[hw_models]") {
  std::string text = kHost;
  text +=
      "  gemm.few_nt:\n    coefficients: {b_cold_2: 60 us}\n    range: {m: [1, 8], n: [32, 4096], k: [32, 4096], "
      "mflop: "
      "[0, 100]}\n"
      "    deviation: 0\n    bias: 0.01\n    floor: 10 ns\n";
  const HostModel model = host(text);
  const Gemm g{.m = 1, .n = 1024, .k = 1024, .transpose_b = true};
  const auto within = [&](double step) {
    Bindings b;
    b.working_set = step;
    return model.cost(g, b, {});
  };
  CHECK(within(16e6).memory > 0.4);
  CHECK(within(16e6).bias == Approx(0.01));
  CHECK(within(2e9).error() == Approx(0.01).epsilon(0.01));
  // 4.19 MB of 60 us are 252 us, of which 10 ns are 0.004 %.
  Bindings far;
  far.working_set = 2e9;
  CHECK(model.cost(g, far, {}).duration.base() == Approx(251.7e-6).epsilon(0.001));
  CHECK(model.cost(g, far, {}).deviation == Approx(1e-8 / 251.7e-6).epsilon(0.01));
}

TEST_CASE("a cache loses what was used long ago, and to others what was used before much arithmetic", "[hw_models]") {
  const Caches caches{.l2 = 1.0_MiB, .l3 = 16.0_MiB, .foreign = 0.1};
  const Work work{Add{1024, 1024}};
  Reuse reuse{{{.operand = 0, .reads = true, .bytes = Bytes{4e6}, .distance = Bytes{400e6}},
               {.operand = 1, .reads = true, .bytes = Bytes{2e6}, .distance = Bytes{2e6}},
               {.operand = 2, .writes = true, .bytes = Bytes{3e6}, .distance = Bytes{0.1e6}, .work = Flops{4e9}}}};
  Bindings b;
  b.reuse = &reuse;
  const LawInput in{work, b};
  // 400 MB are more than either cache holds, 2 MB more than the second level, and during 4 GFLOP others move 400 MB.
  const Moved last = lost(in, caches, CacheLevel::Last, {}), second = lost(in, caches, CacheLevel::Second, {});
  CHECK(last.read == Approx(4).epsilon(0.01));
  CHECK(last.written == Approx(3).epsilon(0.01));
  CHECK(second.read == Approx(6).epsilon(0.01));
  CHECK(second.written == Approx(0).margin(0.01));
  CHECK(share_lost(in, caches, CacheLevel::Second) == Approx(6e6 / (3 * 4.0 * 1024 * 1024)).epsilon(0.01));
  CHECK(lost(in, caches, CacheLevel::Last, {}, {1, 2}).all() == Approx(0).margin(0.01));
  // Nothing is known of when it was used: as long ago as what a step keeps.
  b.reuse = nullptr;
  b.working_set = 400e6;
  CHECK(lost({work, b}, caches, CacheLevel::Last, {8, 4}).read == Approx(8).epsilon(0.01));
}

TEST_CASE("behind other plans a cache finds again what it keeps, execution by execution", "[hw_models]") {
  const Caches caches{.l2 = 1.0_MiB, .l3 = 16.0_MiB};
  const Work work{Add{1024, 1024}};
  const Bytes half = 8.0_MiB;
  Reuse reuse{{{.reads = true, .carried = true, .bytes = Bytes{4e6}, .distance = half},
               {.writes = true, .bytes = Bytes{2e6}, .distance = half}}};
  Bindings b;
  b.reuse = &reuse;
  const auto part = [&](double bytes, std::int32_t executions) {
    b.before = {bytes, executions};
    const Moved m = lost({work, b}, caches, CacheLevel::Last, {});
    CHECK(m.written == Approx(2.0 / 17));  // it was touched in the same execution: (1/2)^4 / (1 + (1/2)^4)
    return m.read / 4;
  };
  CHECK(part(0, 0) == Approx(1.0 / 17));
  // Much passed: nearly all is gone; then 1 − e^(−0.98/2), 1 − e^(−0.39/2), 1 − e^(−0.18/2) …
  CHECK(part(100e6, 1) == Approx(0.9766).margin(0.0001));  // 6.46^2 / (1 + 6.46^2)
  CHECK(part(100e6, 2) == Approx(0.3863).margin(0.0001));
  CHECK(part(100e6, 3) == Approx(0.1757).margin(0.0001));
  CHECK(part(100e6, 4) == Approx(0.0841).margin(0.0001));
  CHECK(part(100e6, 30) == Approx(1.0 / 17));            // as if nothing had passed
  CHECK(part(1e6, 1) == Approx(0.0893).margin(0.0001));  // both still fit
  // What does not stay anyhow is not kept behind others either.
  reuse.touches = {{.reads = true, .carried = true, .bytes = Bytes{4e6}, .distance = 64.0_MiB}};
  b.before = {100e6, 30};
  CHECK(lost({work, b}, caches, CacheLevel::Last, {}).read > 3.9);
}

TEST_CASE("each core has its part of the last cache, and more ranks than cores take turns on it", "[hw_models]") {
  const Caches caches{1.0_MiB, 16.0_MiB, 2};
  Bindings b;
  b.working_set = 6e6;
  CHECK(core_view(b, caches).caches.l3 == 16.0_MiB);
  b.ranks_of_node = 2;
  CHECK(core_view(b, caches).caches.l3 == 8.0_MiB);
  CHECK(core_view(b, caches).crowd == 1);
  b.ranks_of_node = 8;  // four on each of two cores
  CHECK(core_view(b, caches).caches.l3 == 8.0_MiB);
  CHECK(core_view(b, caches).crowd == 4);
}

TEST_CASE("ranks that share a core lose time, and those that are woken need little of one", "[hw_models]") {
  std::string text = kHost;
  text +=
      "  collective.all_reduce:\n    coefficients: {call: 90 us, moved: 50 us}\n    range: {ranks: [2, 16], megabytes: "
      "[0, 4]}\n    deviation: 0\n    bias: 0\n";
  HostParameters p = read_host_parameters(parse_yaml(text, "h.yaml"));
  p.cores = 2, p.turns = 0.2, p.message_cores = 0.1;
  const HostModel model{"host", p};
  const Gemm g{.m = 64, .n = 64, .k = 64, .transpose_b = true};
  Bindings two, four;
  two.ranks_of_node = 2, four.ranks_of_node = 4;
  CHECK(model.cost(g, four, {}).duration / model.cost(g, two, {}).duration == Approx(1 / 0.8));
  // 0.1 MB, read twice: 10 us on two cores, 20 us for four ranks on them. Who is woken needs a tenth of a core.
  const Collective sum{.kind = CollectiveKind::AllReduce, .group = GroupId{std::size_t{0}}, .bytes = Bytes{1e5}};
  const OpCost of_two = *model.collective(sum, 2, {}), of_four = *model.collective(sum, 4, {});
  CHECK(of_two.duration.base() == Approx(100e-6));
  CHECK(of_four.duration.base() == Approx(110e-6));
  CHECK(of_two.demands[0].share == Approx((0.1 * 90 + 10) / 100));
}

TEST_CASE("a rank loses time to ranks on other cores, as far as these work", "[hw_models]") {
  HostParameters p = read_host_parameters(parse_yaml(kHost, "h.yaml"));
  p.cores = 4, p.beside = 0.12, p.turns = 0.2;
  const HostModel model{"host", p};
  const Gemm g{.m = 64, .n = 64, .k = 64, .transpose_b = true};
  const auto against_one = [&](std::int64_t ranks) {
    Bindings alone, together;
    together.ranks_of_node = ranks;
    return model.cost(g, together, {}).duration / model.cost(g, alone, {}).duration;
  };
  CHECK(against_one(1) == 1);
  CHECK(against_one(2) == Approx(1 / 0.96));
  CHECK(against_one(4) == Approx(1 / 0.88));
  CHECK(against_one(8) == Approx(1 / 0.88 / 0.8));
}

TEST_CASE("half a vector of a key counts as one, half of a value is left over", "[hw_models]") {
  const auto feature = [](std::string_view name, std::int64_t dim) {
    const Work decode{AttentionForward{
        .shape = {.heads = 4, .kv_heads = 2, .q = 1, .kv = 100, .qk_dim = dim, .v_dim = dim}, .keep_lse = false}};
    return millions(attention_decode_form(), name, {decode, {}});
  };
  CHECK(feature("tail", 24) == Approx(4 * 100 * 8));
  CHECK(feature("math", 24) == Approx(2 * 4 * 100 * (32 + 24)));
  CHECK(feature("tail", 64) == 0);
  CHECK(feature("math", 64) == Approx(2 * 4 * 100 * (64 + 64)));
}

TEST_CASE("rows of a head lie as far apart as the heads of a token are wide, up to a page", "[hw_models]") {
  const auto apart = [](std::int64_t heads) {
    const AttentionShape shape{
        .batch = 2, .heads = heads, .kv_heads = heads, .q = 32, .kv = 32, .qk_dim = 64, .v_dim = 64};
    const double forward = millions(attention_form(), "apart", {AttentionForward{shape}, {}});
    CHECK(millions(attention_backward_form(), "apart", {AttentionBackward{shape}, {}}) == forward);
    return forward / double(2 * heads * 32);
  };
  CHECK(apart(1) == Approx(1.0 / 16));
  CHECK(apart(8) == Approx(0.5));
  CHECK(apart(16) == Approx(1));
  CHECK(apart(40) == Approx(1));
}
