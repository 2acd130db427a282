// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include "hw_models/gpu_model.hpp"
#include "hw_models/parameters.hpp"
#include "tests/hw_models_testing.hpp"
#include "tests/user_error.hpp"

using namespace orrery;
using namespace orrery::literals;

namespace {

using Coefficients = std::map<std::string, double>;

/// A law of one form with all coefficients 0 but these.
GpuLaw law(const GpuLawForm& form, const Coefficients& given) {
  GpuLaw l;
  for (const LawParameter& p : form.parameters) l.parameters[std::string{p.name}] = 0;
  for (const auto& [name, value] : given) l.parameters.at(name) = value;
  return l;
}

/// Tiles of 128×128 only (others are 1000 times slower), no launch, splits of k that cost `partial`.
GpuLaw simple_gemm(double partial = 1e9) {
  return law(gemm_law(), {{"tile_256x128", 1e-3},
                          {"tile_128x256", 1e-3},
                          {"tile_128x128", 1},
                          {"tile_128x64", 1e-3},
                          {"tile_64x128", 1e-3},
                          {"tile_64x64", 1e-3},
                          {"memory", 1},
                          {"fill", 1e-6},
                          {"partial", partial}});
}

/// 100 SMs, 128×128 tiles, 100 TFLOP/s, memory that never limits, launches that take no time.
GpuParameters simple_gpu() {
  GpuParameters p = testing::bare_gpu();
  p.laws["gemm.bf16"] = simple_gemm();
  p.laws["elementwise"] = law(stream_law(), {{"memory", 1}});
  return p;
}

double seconds(const GpuParameters& p, const Work& w, const Scales& s = {}) {
  return GpuModel{"gpu", p}.cost(w, {}, s).duration.base();
}
AttentionForward decoding(std::int64_t batch, std::int64_t kv_heads, std::int64_t kv) {
  return {.shape = {.batch = batch,
                    .heads = 32,
                    .kv_heads = kv_heads,
                    .q = 1,
                    .kv = Extent{kv},
                    .qk_dim = 128,
                    .v_dim = 128,
                    .dtype = DType::BF16},
          .keep_lse = false};
}
double seconds(const DeviceModel& d, const Work& w, const Scales& s = {}) { return d.cost(w, {}, s).duration.base(); }

}  // namespace

TEST_CASE("a GEMM that leaves half of the SMs idle runs at half of peak", "[hw_models]") {
  // 1280×640 is 10·5 = 50 tiles of 128×128 on 100 SMs: half a wave.
  const Gemm g{.m = 1280, .n = 640, .k = 4096, .dtype = DType::BF16};
  CHECK(seconds(simple_gpu(), g) == Approx((g.amount({}).flops / 50.0_TFLOPps).base()));
}

TEST_CASE("a GEMM of 101 tiles takes as long as one of 200", "[hw_models]") {
  // 101 tiles are two waves on 100 SMs, as 200 are.
  const Gemm one_more{.m = 128 * 101, .n = 128, .k = 1024, .dtype = DType::BF16},
      full{.m = 128 * 200, .n = 128, .k = 1024, .dtype = DType::BF16};
  CHECK(seconds(simple_gpu(), one_more) == Approx(seconds(simple_gpu(), full)));
}

TEST_CASE("splitting the inner dimension fills the SMs of a small product", "[hw_models]") {
  // 4 tiles, k = 8192: alone 25 times slower than full; split by 16, 64 SMs work.
  GpuParameters p = simple_gpu();
  const Gemm g{.m = 256, .n = 256, .k = 8192, .dtype = DType::BF16};
  const double whole = seconds(p, g);
  p.laws["gemm.bf16"] = simple_gemm(0);
  CHECK(seconds(p, g) == Approx(whole / 16).epsilon(0.01));
}

TEST_CASE("a stream of memory takes its launch, its ramp and its bytes", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.memory_bandwidth = 1.0_TBps;
  p.laws["elementwise"] = law(stream_law(), {{"launch", 2e-6}, {"memory", 0.5}, {"ramp", 1e-6}});
  // 250,000 sums in f32 move 3 MB, at half of 1 TB/s: 6 us, and 3 us more.
  CHECK(seconds(p, Add{.rows = 250, .cols = 1000}) == Approx(9e-6));
}

TEST_CASE("clocks fall while a lone product lasts, and are those of lasting work in a plan", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.laws["gemm.bf16"].parameters["heat"] = 0.1;
  p.sustained_clock = 0.8;
  const Gemm g{.m = 12800, .n = 12800, .k = 12800, .dtype = DType::BF16};
  const double best = (g.amount({}).flops / 100.0_TFLOPps).base();  // 41.9 ms: 100·100 tiles on 100 SMs
  CHECK(seconds(p, g) == Approx(best * (1 + 0.1 * std::log1p(best / 0.2e-3))));
  Bindings in_a_plan;
  in_a_plan.working_set = 1;
  CHECK(GpuModel{"gpu", p}.cost(g, in_a_plan, {}).duration.base() == Approx(best / 0.8));
}

TEST_CASE("in a plan a law from an eager loop has neither the loop's launches nor a lower clock", "[hw_models]") {
  // One tile of 128x128x4096 on one of 100 SMs at 1 TFLOP/s: 2·128·128·4096 FLOP are 134.2 us.
  GpuParameters p = simple_gpu();
  p.sustained_clock = 0.5;
  p.laws["gemm.bf16"].parameters["launch"] = 30e-6;
  const Gemm g{.m = 128, .n = 128, .k = 4096, .dtype = DType::BF16};
  const double math = 2.0 * 128 * 128 * 4096 / 1e12;
  Bindings in_a_plan;
  in_a_plan.working_set = 1;
  const auto both = [&] {
    const GpuModel gpu{"gpu", p};
    return std::pair{gpu.cost(g, {}, {}).duration.base(), gpu.cost(g, in_a_plan, {}).duration.base()};
  };
  CHECK(both().first == Approx(30e-6 + math));
  CHECK(both().second == Approx(30e-6 + 2 * math));
  p.laws["gemm.bf16"].eager_loop = true;
  CHECK(both().first == Approx(30e-6 + math));
  CHECK(both().second == Approx(2.5e-6 + math));
}

TEST_CASE("a loop that a power limit slowed gives a law whose ops run at the clock of plans", "[hw_models]") {
  // As above, 134.2 us at 1 TFLOP/s as measured at half of the best clock; plans run at 0.8 of it.
  GpuParameters p = simple_gpu();
  p.sustained_clock = 0.8;
  p.laws["gemm.bf16"].eager_loop = true;
  p.laws["gemm.bf16"].loop_clock = 0.5;
  const Gemm g{.m = 128, .n = 128, .k = 4096, .dtype = DType::BF16};
  const double math = 2.0 * 128 * 128 * 4096 / 1e12;
  Bindings in_a_plan;
  in_a_plan.working_set = 1;
  CHECK(seconds(p, g) == Approx(math));
  CHECK(GpuModel{"gpu", p}.cost(g, in_a_plan, {}).duration.base() == Approx(math * 0.5 / 0.8));
}

TEST_CASE("a product of few rows takes a smaller tile of vector units, and a whole one of matrix units",
          "[hw_models]") {
  // 20 rows are 24, of a tile of 64x128, on one of 100 SMs at 1 TFLOP/s.
  GpuParameters p = simple_gpu();
  p.peak["f32"] = 100.0_TFLOPps;
  for (const char* type : {"gemm.bf16", "gemm.f32"}) {
    p.laws[type] = simple_gemm();
    p.laws[type].parameters["tile_128x128"] = 1e-3;
    p.laws[type].parameters["tile_64x128"] = 1;
  }
  Gemm g{.m = 20, .n = 128, .k = 4096, .dtype = DType::BF16};
  CHECK(seconds(p, g) == Approx(2.0 * 64 * 128 * 4096 / 1e12));
  g.dtype = DType::F32;
  CHECK(seconds(p, g) == Approx(2.0 * 24 * 128 * 4096 / 1e12));
}

TEST_CASE("decoding with shared keys reads the cache once at the bandwidth of the memory", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.memory_bandwidth = 1.0_TBps;
  p.laws["grouped_decode"] = law(grouped_decode_law(), {{"memory", 0.5}, {"traffic", 1e9}});
  AttentionShape s{
      .batch = 64, .heads = 32, .kv_heads = 8, .q = 1, .kv = 4096, .qk_dim = 128, .v_dim = 128, .dtype = DType::BF16};
  // 64·8·4096 tokens of 512 B are 1.07 GB; at 0.5 TB/s 2.15 ms
  CHECK(seconds(p, AttentionForward{s}) == Approx(64.0 * 8 * 4096 * 512 / 0.5e12).epsilon(1e-3));
}

TEST_CASE("decoding for many sequences takes what the memory needs for their keys, whatever type they have",
          "[hw_models]") {
  const AttentionForward decode = decoding(512, 8, 2048);
  const double bytes = 512.0 * 2048 * 8 * 2 * 128 * 2;
  std::map<std::string, double> of;
  for (const char* name : {"a100_80g", "h100_sxm", "h200_sxm", "l40s", "b200"}) {
    const auto gpu = find_device(name, {parameters_folder()});
    const double least = bytes / dynamic_cast<const GpuModel&>(*gpu).parameters().memory_bandwidth.base();
    of[name] = seconds(*gpu, decode);
    INFO(name);
    CHECK(of[name] > least);
    CHECK(of[name] < 1.6 * least);
    AttentionForward narrow = decode;
    narrow.shape.cache = Quantised::F8;
    CHECK(seconds(*gpu, narrow) < 0.62 * of[name]);
  }
  CHECK(of["h200_sxm"] / of["h100_sxm"] == Approx(3.35 / 4.8).epsilon(0.05));
}

TEST_CASE("products of experts with even loads take no longer than those of skewed ones", "[hw_models]") {
  for (const char* name : {"a100_80g", "h100_sxm"}) {
    const auto gpu = find_device(name, {parameters_folder()});
    for (const std::int64_t rows : {32, 256, 2048}) {  // of each; of fewer, skewed loads leave out experts
      GroupedGemm even{.rows = 8 * rows, .n = 14336, .k = 4096, .groups = 8, .dtype = DType::BF16}, skewed = even;
      skewed.skew = 4;
      CHECK(seconds(*gpu, even) < 1.1 * seconds(*gpu, skewed));
    }
  }
}

TEST_CASE("a program without kernels for shared keys reads them once for each head", "[hw_models]") {
  const auto gpu = find_device("h100_sxm", {parameters_folder()});
  const AttentionForward decode = decoding(64, 4, 4096);
  Scales together, apart;
  apart.choose({.shared_heads = 4});  // groups of 8 are too large
  CHECK(seconds(*gpu, decode, apart) > 1.5 * seconds(*gpu, decode, together));
}

TEST_CASE("a product in 8 bits whose rows were converted before is faster by the conversion", "[hw_models]") {
  const auto gpu = find_device("h100_sxm", {parameters_folder()});
  const Gemm narrow{.m = 16, .n = 4096, .k = 4096, .dtype = DType::F8E4M3};
  Scales before;
  before.scale("gemm.conversion", 1e-9);
  CHECK(seconds(*gpu, narrow, before) < 0.7 * seconds(*gpu, narrow));
  const Gemm wide{.m = 16, .n = 4096, .k = 4096, .dtype = DType::BF16};
  CHECK(seconds(*gpu, wide, before) == seconds(*gpu, wide));
}

TEST_CASE("the backward pass of attention has five products for two", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.laws["prefill"] = law(prefill_law(), {{"rate", 0.5}, {"input", 1e9}, {"output", 1e9}});
  p.attention_backward = 0.5;
  const AttentionShape s{.batch = 8,
                         .heads = 32,
                         .kv_heads = 32,
                         .q = 2048,
                         .kv = 2048,
                         .qk_dim = 128,
                         .v_dim = 128,
                         .dtype = DType::BF16};
  CHECK(seconds(p, AttentionBackward{s}) == Approx(seconds(p, AttentionForward{s}) * 2.5 / 0.5));
}

TEST_CASE("an even grouped product is that of its tiles; skew empties groups of few rows", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.laws["grouped_gemm.bf16"] = law(grouped_gemm_law(), {{"rate", 1}, {"memory", 1e9}});
  // 64 groups of 1280 rows: 64·10.5 tiles in m and 8 in n, 53.76 waves on 100 SMs and half a wave more
  const GroupedGemm even{.rows = 64 * 1280, .n = 1024, .k = 1024, .groups = 64, .dtype = DType::BF16};
  const double tile = 2.0 * 128 * 128 * 1024 / 1e12;
  CHECK(seconds(p, even) == Approx((64 * 10.5 * 8 / 100 + 0.5) * tile).epsilon(1e-6));
  p.memory_bandwidth = 1.0_TBps;
  p.laws["grouped_gemm.bf16"] = law(grouped_gemm_law(), {{"rate", 1e9}, {"memory", 1}});
  GroupedGemm few{.rows = 128, .n = 8192, .k = 8192, .groups = 64, .dtype = DType::BF16};
  const double spread = seconds(p, few);
  few.skew = 6;
  CHECK(seconds(p, few) < 0.75 * spread);  // fewer weights are read
}

// 8 experts of 1280 rows: 10 · 8 tiles each, one wave of the 100 SMs.
TEST_CASE("a program that computes experts apart takes a dense product and a launch for each", "[hw_models]") {
  GpuParameters p = simple_gpu();
  p.enqueue = Seconds{1e-6};
  Scales apart;
  apart.choose({.experts_apart = true});
  const auto mode = GENERATE(GroupedMode::Forward, GroupedMode::InputGradient, GroupedMode::WeightGradient);
  const GroupedGemm experts{.rows = 8 * 1280, .n = 1024, .k = 2048, .groups = 8, .mode = mode, .dtype = DType::BF16};
  const Gemm one = mode == GroupedMode::Forward         ? Gemm{.m = 1280, .n = 1024, .k = 2048, .dtype = DType::BF16}
                   : mode == GroupedMode::InputGradient ? Gemm{.m = 1280, .n = 2048, .k = 1024, .dtype = DType::BF16}
                                                        : Gemm{.m = 2048, .n = 1024, .k = 1280, .dtype = DType::BF16};
  INFO(int(mode));
  CHECK(seconds(p, experts, apart) == Approx(8 * seconds(p, one)));
  const GpuModel gpu{"gpu", p};
  CHECK(gpu.launch(experts, apart).enqueue.base() == Approx(8e-6));
  CHECK(gpu.launch(experts, {}).enqueue.base() == Approx(1e-6));
  CHECK(gpu.launch(one, apart).enqueue.base() == Approx(1e-6));
}

TEST_CASE("attention by kernels for all devices leaves out what is new in Hopper", "[hw_models]") {
  Scales portable;
  portable.choose({.portable_attention = true});
  const AttentionShape s{.batch = 4,
                         .heads = 32,
                         .kv_heads = 32,
                         .q = 16384,
                         .kv = 16384,
                         .qk_dim = 128,
                         .v_dim = 128,
                         .dtype = DType::BF16};
  for (const auto& [name, slower] : {std::pair{"h100_sxm", 0.62}, {"a100_80g", 1.0}}) {
    const auto gpu = find_device(name, {parameters_folder()});
    CHECK(seconds(*gpu, AttentionForward{s}) ==
          Approx(slower * seconds(*gpu, AttentionForward{s}, portable)).epsilon(0.05));
    const Gemm product{.m = 4096, .n = 4096, .k = 4096, .dtype = DType::BF16};
    CHECK(seconds(*gpu, product) == seconds(*gpu, product, portable));
  }
}

TEST_CASE("the host does in a layer of experts what its program says", "[hw_models]") {
  GpuParameters p = simple_gpu();
  Scales program;
  program.choose({.host_experts = 0.004});
  CHECK(seconds(p, HostWork{.experts = true}, program) == Approx(0.004));
  CHECK(seconds(p, HostWork{}, program) == 0);
  CHECK(seconds(p, HostWork{.experts = true}) == 0);
}

TEST_CASE("a product in 4 bits takes the law of 4 bits, and half the time of one in 8", "[hw_models]") {
  const auto gpu = find_device("b200", {parameters_folder()});
  Scales before;  // casts are part of other ops
  before.scale("gemm.conversion", 1e-9);
  Gemm g{.m = 16384, .n = 8192, .k = 8192, .narrow = Narrow::EightBits, .dtype = DType::BF16};
  const double eight = seconds(*gpu, g, before);
  g.narrow = Narrow::FourBits;
  CHECK(seconds(*gpu, g, before) < 0.65 * eight);
  CHECK(seconds(*gpu, g, before) > 0.4 * eight);
}

TEST_CASE("a law that a device lacks is that of a device like it, and is said to be", "[hw_models]") {
  GpuParameters p = simple_gpu();
  const GpuLaw own = p.laws["gemm.bf16"];
  p.laws.erase("gemm.bf16");
  const Gemm g{.m = 1280, .n = 1280, .k = 4096, .dtype = DType::BF16};
  CHECK(user_error([&] { seconds(p, g); }) ==
        "device 'gpu' has no law for gemm.bf16\n  hint: fit one with `orrery calibrate --from`, or name a device that "
        "has one under `like`");
  p.uncertainty.gemm = 0.3;
  const GpuModel like{"gpu", p, {{"other", {{"gemm.bf16", own}}}}};
  CHECK(like.cost(g, {}, {}).duration.base() == Approx(seconds(simple_gpu(), g)));
  CHECK(like.cost(g, {}, {}).bias == Approx(0.3));
  CHECK_FALSE(like.cost(g, {}, {}).calibrated);
  CHECK(like.extrapolation(g, {}, {}) == "gemm on gpu: unfitted, by law gemm.bf16 of other");
}

TEST_CASE("a corrected law is right where it was fitted and says where it was not", "[hw_models]") {
  GpuParameters p = simple_gpu();
  GpuLaw& l = p.laws["gemm.bf16"];
  std::vector<double> c(basis_size(gemm_law()), 0.0);
  c[0] = std::log(1.25);
  l.correction = {c};
  c[0] = std::log(0.1);
  l.spread = {c};
  l.range["m"] = {7, 11};
  const Gemm g{.m = 1280, .n = 1280, .k = 4096, .dtype = DType::BF16};
  const GpuModel gpu{"gpu", p};
  CHECK(gpu.cost(g, {}, {}).duration.base() == Approx(1.25 * seconds(simple_gpu(), g)));
  CHECK(std::hypot(gpu.cost(g, {}, {}).deviation, gpu.cost(g, {}, {}).bias) == Approx(0.1));
  CHECK(gpu.cost(g, {}, {}).calibrated);
  // Eight times as long as nine tenths of what was fitted, 5 % more doubt each time.
  l.range["seconds"] = {-30, std::log2(seconds(simple_gpu(), g)) - 3}, l.growth = 0.05;
  const OpCost beyond = GpuModel{"gpu", p}.cost(g, {}, {});
  CHECK(std::hypot(beyond.deviation, beyond.bias) == Approx(std::hypot(0.1, 3 * 0.05)).epsilon(1e-3));
  CHECK(gpu.extrapolation(g, {}, {}).empty());
  CHECK(gpu.extrapolation(Gemm{.m = 8, .n = 8, .k = 8, .dtype = DType::BF16}, {}, {}) ==
        "gemm on gpu: m is outside of what law gemm.bf16 was fitted to");
}

TEST_CASE("parameters scale by name", "[hw_models]") {
  const Gemm g{.m = 1280, .n = 1280, .k = 4096, .dtype = DType::BF16};
  Scales twice;
  twice.scale("gemm.rate", 2.0);
  CHECK(seconds(simple_gpu(), g, twice) == Approx(seconds(simple_gpu(), g) / 2));
}

TEST_CASE("an unknown parameter names the known ones", "[hw_models][error]") {
  Scales s;
  CHECK(user_error([&] { s.scale("gemm.rat", 2.0); }) ==
        "unknown parameter 'gemm.rat'; "
        "did you mean 'gemm.rate'? known parameters: gemm.rate, attention.rate, memory.bandwidth, "
        "launch.overhead, launch.enqueue, link.bandwidth, "
        "link.latency, nic.bandwidth, nic.latency, network.bandwidth, host_link.bandwidth, host.rate, disk.bandwidth, "
        "gemm.conversion");
  CHECK(user_error([&] { s.scale("gemm.rate", 0.0); }) ==
        "parameter 'gemm.rate' cannot be scaled by 0\n  hint: use a number above 0, such as 2 or 0.5");
}

TEST_CASE("a data type that a device has no arithmetic for names those it has", "[hw_models][error]") {
  CHECK(user_error([] { seconds(simple_gpu(), Gemm{.m = 1, .n = 1, .k = 1, .dtype = DType::F8E4M3}); }) ==
        "device 'gpu' has no matrix arithmetic in f8e4m3\n  hint: data types it has: bf16");
}

TEST_CASE("predictions from a data sheet are not calibrated and say so", "[hw_models]") {
  const GpuModel gpu{"gpu", simple_gpu()};
  const Gemm g{.m = 8, .n = 8, .k = 8, .dtype = DType::BF16};
  CHECK_FALSE(gpu.cost(g, {}, {}).calibrated);
  CHECK_THAT(gpu.extrapolation(g, {}, {}), Catch::StartsWith("gemm on gpu: unfitted"));
}

TEST_CASE("laws of an unknown name, with missing or too many coefficients are refused", "[hw_models][error]") {
  const std::string head =
      "gpu: {provenance: {status: fitted, machine: m, date: d, tool: t, source: s}, memory: 1 GB, memory_bandwidth: 1 "
      "GB/s, "
      "sm_count: 1, peak: {bf16: 1 TFLOP/s}, vector_rate: 1 TFLOP/s, enqueue: 1 us, start_latency: 1 us, "
      "host_rate: 1 GFLOP/s, host_memory_bandwidth: 1 GB/s, laws: ";
  const auto error = [&](const std::string& laws) {
    return user_error([&] { read_device(parse_yaml(head + laws + "}", "g.yaml"), "g"); });
  };
  CHECK_THAT(error("{sofmax: {parameters: {launch: 1, memory: 1, ramp: 1}}}"),
             Catch::Contains("unknown law 'sofmax'") && Catch::Contains("did you mean 'softmax'?"));
  CHECK_THAT(error("{softmax: {parameters: {launch: 1, memory: 1}}}"), Catch::Contains("the law has no 'ramp'"));
  CHECK_THAT(error("{softmax: {parameters: {launch: 1, memory: 1, ramp: 1, slope: 1}}}"),
             Catch::Contains("unknown coefficient 'slope'"));
  CHECK_THAT(error("{softmax: {parameters: {launch: 1, memory: 1, ramp: 1}, correction: [[1, 2]]}}"),
             Catch::Contains("the correction has 2 coefficients"));
  CHECK_THAT(error("{softmax: {parameters: {launch: 1, memory: 1, ramp: 1}, spread: [[1]]}}"),
             Catch::Contains("the spread has 1 coefficients"));
  CHECK_THAT(error("{softmax: {parameters: {launch: 1, memory: 1, ramp: 1}, range: {bytes: [1]}}}"),
             Catch::Contains("the range of 'bytes' has 1 numbers"));
}
