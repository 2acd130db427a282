// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu_benches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "calibrate/gpu_indexed_benches.hpp"
#include "runtime/cuda/gpu_executor.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kSmallChain = 1000, kAllocations = 200;
constexpr double kLeastBytes = 1 << 20, kMostBytes = 1 << 28;
constexpr int kEightBits = 89;  // compute capability from which tensor cores take 8 bits

class Benches {
 public:
  Benches(const GpuInfo& gpu, bool quick, Random& random, int processes)
      : memory_{double(gpu.memory_bytes)},
        capability_{gpu.capability},
        quick_{quick},
        random_{random},
        processes_{processes} {}

  std::vector<GpuBench> take() {
    for (const DType t : {DType::BF16, DType::F16, DType::F32}) {
      for (int i = 0; i < points(40); ++i) product(t, i);
      for (int i = 0; i < points(12); ++i) t == DType::F32 ? product_in_tf32(i) : product_in_eight_bits(t, i);
      for (int i = 0; i < points(12); ++i) attention(t, i);
      for (int i = 0; i < points(8); ++i) streams(t, i);
      indexed(t);
      if (t != DType::F32)
        for (const bool backward : {false, true}) long_attention(t, backward);
    }
    for (int i = 0; i < points(8); ++i) copies(i);
    for (int i = 0; i < points(8); ++i) exchange(i);
    single_kernel();
    for (const int lanes : {1, 2})
      for (const bool graphs : {false, true}) chain(lanes, graphs);
    for (const Spans spans : {Spans::Events, Spans::Records}) observed_chain(spans);
    for (const bool plain : {false, true}) allocations(plain);
    for (const DType t : {DType::BF16, DType::F32}) {
      beside_a_copy(t);
      for (const bool small : {false, true}) two_at_once(t, small);
    }
    return std::move(benches_);
  }

 private:
  int points(int full) const { return std::max(3, quick_ ? full / 4 : full); }
  /// Evenly on a logarithmic scale; every fourth at random.
  double size(int i, int of, double low, double high) {
    const double at = i % 4 == 3 ? random_.uniform() : (i + 0.5) / of;
    return low * std::pow(high / low, at);
  }
  std::int64_t multiple(double x, std::int64_t of) const {
    return std::max<std::int64_t>(1, std::llround(x / double(of))) * of;
  }
  TensorId persistent(PlanBuilder& b, std::string_view name, const Shape& shape, DType t, Tier tier = Tier::Device) {
    return b.tensor(name, shape, {.dtype = t, .tier = tier, .persistent = true});
  }
  void add(std::string name, std::string group, PlanBuilder& b, const Amount& amount, bool whole = false) {
    GpuBench bench{std::move(name),
                   std::move(group),
                   b.take(&gpu_workspaces()),
                   amount.flops.base(),
                   (amount.read + amount.written).base(),
                   whole};
    if (memory_of(bench.plan) < 0.8 * memory_) benches_.push_back(std::move(bench));
  }
  /// Bytes of operands: those that stay, and the largest of those that come and go. The scratch of products is little
  /// beside the memory of a device.
  static double memory_of(const Plan& plan) {
    double stays = 0, largest = 0;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      const Tensor& t = plan.tensors[i];
      const auto& scratch = plan.workspaces.front();
      if (!t.base.is_none() || std::find(scratch.begin(), scratch.end(), TensorId{i}) != scratch.end()) continue;
      const double bytes = size_of(t.dtype, plan.layouts[t.layout.index()].shape.elements()).base();
      t.persistent ? stays += bytes : largest = std::max(largest, bytes);
    }
    return (stays + largest) * double(plan.mesh.size());
  }
  /// One whose law is fitted.
  void add(std::string group, PlanBuilder& b, const Work& work) {
    const std::size_t before = benches_.size();
    add(to_text(work), std::move(group), b, amount(work));
    if (benches_.size() > before) benches_.back().work = work;
  }
  void measured(PlanBuilder& b, const Work& work, std::vector<Operand> operands, Stream stream = Stream::Compute) {
    b.add("measured", work, operands, stream);
  }

  /// Point i of n.
  Gemm drawn_product(DType t, int i, int n) {
    constexpr std::int64_t kAligned = 16;
    const auto side = [&](double high) {
      return multiple(std::exp(random_.uniform(std::log(64.0), std::log(high))), kAligned);
    };
    const bool few = i % 5 == 4;  // decoding
    return {.m = few ? std::int64_t(1 + random_.below(8)) : multiple(size(i, n, 64, 16384), 8),
            .n = side(16384),
            .k = side(8192),
            .transpose_a = !few && i % 5 == 2,
            .transpose_b = i % 2 == 0,
            .dtype = t};
  }
  void multiply(PlanBuilder& b, const Gemm& g) {
    const TensorId x = persistent(b, "a", g.transpose_a ? Shape{g.k, g.m} : Shape{g.m, g.k}, g.dtype);
    const TensorId y = persistent(b, "b", g.transpose_b ? Shape{g.n, g.k} : Shape{g.k, g.n}, g.dtype);
    measured(b, g, {reads(x), reads(y), writes(persistent(b, "c", Shape{g.m, g.n}, g.dtype))});
  }
  void product(DType t, int i) {
    const Gemm g = drawn_product(t, i, points(40));
    PlanBuilder b{"product"};
    multiply(b, g);
    add("products", b, g);
  }
  /// With the casts of both operands.
  void product_in_eight_bits(DType t, int i) {
    if (capability_ < kEightBits) return;
    Gemm g = drawn_product(t, i, points(12));
    g.narrow = Narrow::EightBits;
    if (i % 3 == 2) g.gradient = i % 2 == 0 ? GradientOperand::A : GradientOperand::B;
    PlanBuilder b{"product"};
    multiply(b, g);
    add("products in 8 bits", b, g);
  }
  /// No law is fitted to these: plans in f32 are predicted as if none of their products were in tf32.
  void product_in_tf32(int i) {
    const Gemm g = drawn_product(DType::F32, i, points(12));
    PlanBuilder b{"product"};
    multiply(b, g);
    const std::size_t before = benches_.size();
    add(to_text(g) + " in tf32", "products in tf32", b, amount(g));
    if (benches_.size() > before) benches_.back().use.fast_f32 = true;
  }

  void attention(DType t, int i) {
    const int n = points(12);
    const bool decode = i % 3 == 2;
    const std::int64_t tokens = multiple(size(i, n, 512, 8192), 64), dim = i % 2 == 0 ? 128 : 64;
    AttentionShape s{.batch = decode ? 8 : 1, .heads = 32, .kv_heads = i % 4 == 0 ? 8 : 32, .q = decode ? 1 : tokens};
    s.kv = Extent{tokens};
    s.qk_dim = s.v_dim = dim;
    s.scale = 1 / std::sqrt(double(dim));
    s.dtype = t;
    attention_of(s, !decode && i % 3 == 1);
  }

  /// Over 8192 tokens, where it should be as fast as products are.
  void long_attention(DType t, bool backward) {
    constexpr std::int64_t kTokens = 8192, kHeads = 32, kDim = 128;
    AttentionShape s{.batch = 1, .heads = kHeads, .kv_heads = kHeads, .q = kTokens};
    s.kv = Extent{kTokens};
    s.qk_dim = s.v_dim = kDim;
    s.scale = 1 / std::sqrt(double(kDim));
    s.dtype = t;
    attention_of(s, backward);
  }
  void attention_of(const AttentionShape& s, bool backward) {
    const DType t = s.dtype;
    PlanBuilder b{"attention"};
    const Shape queries{s.batch, s.q, s.heads, s.qk_dim}, keys{s.batch, s.kv.base, s.kv_heads, s.qk_dim};
    const TensorId q = persistent(b, "q", queries, t), k = persistent(b, "k", keys, t), v = persistent(b, "v", keys, t);
    const TensorId o = persistent(b, "o", queries, t), lse = persistent(b, "lse", Shape{s.batch, s.heads, s.q}, t);
    b.add(backward ? "forward" : "measured", AttentionForward{s},
          {reads(q), reads(k), reads(v), writes(o), writes(lse)});
    if (backward)
      measured(b, AttentionBackward{s},
               {reads(q), reads(k), reads(v), reads(o), reads(lse), reads(o), writes(persistent(b, "dq", queries, t)),
                writes(persistent(b, "dk", keys, t)), writes(persistent(b, "dv", keys, t))});
    add("attention", b, backward ? Work{AttentionBackward{s}} : Work{AttentionForward{s}});
  }

  /// A kernel of each family that memory limits, over one size.
  void streams(DType t, int i) {
    const double bytes = size(i, points(8), kLeastBytes, kMostBytes);
    const std::int64_t cols = i % 2 == 0 ? 4096 : 1024;
    const std::int64_t rows = std::max<std::int64_t>(1, std::llround(bytes / (bits(t) / 8.0) / double(cols)));
    const Shape matrix{rows, cols};
    const auto one = [&](const Work& work, const std::function<std::vector<Operand>(PlanBuilder&)>& operands) {
      PlanBuilder b{"stream"};
      measured(b, work, operands(b));
      add("memory", b, work);
    };
    const auto in = [&](PlanBuilder& b, std::string_view name) { return reads(persistent(b, name, matrix, t)); };
    const auto out = [&](PlanBuilder& b, std::string_view name) { return writes(persistent(b, name, matrix, t)); };
    one(Copy{size_of(t, rows * cols)}, [&](PlanBuilder& b) { return std::vector{in(b, "x"), out(b, "y")}; });
    one(Add{rows, cols, t}, [&](PlanBuilder& b) { return std::vector{in(b, "x"), in(b, "y"), out(b, "z")}; });
    one(ActivationForward{ActivationKind::GeluTanh, rows, cols, t}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), out(b, "y")};
    });
    one(GatedForward{ActivationKind::Silu, rows, cols, t}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), in(b, "y"), out(b, "z")};
    });
    one(NormForward{NormKind::Rms, rows, cols, 1e-5, t}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), reads(persistent(b, "w", Shape{cols}, t)), out(b, "y"),
                         writes(persistent(b, "rstd", Shape{rows}, t))};
    });
    one(CrossEntropyForward{rows, cols, 1, t}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), reads(persistent(b, "targets", Shape{rows}, DType::I32)),
                         writes(persistent(b, "lse", Shape{rows}, t)), updates(persistent(b, "loss", Shape{1}, t))};
    });
    if (t == DType::F32) update(rows * cols);
    if (i % 2 != 0) return;
    one(SoftmaxForward{.rows = rows, .cols = cols, .dtype = t}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), out(b, "y")};
    });
    const DType other = t == DType::F32 ? DType::BF16 : DType::F32;
    one(Cast{rows * cols, t, other}, [&](PlanBuilder& b) {
      return std::vector{in(b, "x"), writes(persistent(b, "y", matrix, other))};
    });
    constexpr std::int64_t kHead = 128;
    const std::int64_t heads = cols / kHead;
    one(
        RotaryEmbedding{
            .rows = rows, .heads = heads, .head_dim = kHead, .rot_dim = kHead, .sequence = rows, .dtype = t},
        [&](PlanBuilder& b) {
          const Shape angles{rows, kHead / 2};
          return std::vector{reads(persistent(b, "cos", angles, t)), reads(persistent(b, "sin", angles, t)),
                             updates(persistent(b, "x", Shape{rows, heads, kHead}, t))};
        });
  }
  void indexed(DType t) {
    IndexedSizes sizes;
    for (int i = 0; i < points(4); ++i)
      sizes.rows.push_back(std::max<std::int64_t>(
          64, std::llround(size(i, points(4), 4 * kLeastBytes, kMostBytes) / (bits(t) / 8.0) / double(sizes.cols))));
    for (GpuBench& bench : gpu_indexed_benches(t, sizes, random_))
      if (memory_of(bench.plan) < 0.8 * memory_) benches_.push_back(std::move(bench));
  }
  void update(std::int64_t n) {
    AdamW a{.elements = n, .step = Extent{1}, .master = true, .dtype = DType::BF16, .gradient = DType::BF16};
    PlanBuilder b{"update"};
    const auto state = [&](std::string_view name) { return updates(persistent(b, name, Shape{n}, DType::F32)); };
    measured(b, a,
             {updates(persistent(b, "w", Shape{n}, DType::BF16)), reads(persistent(b, "g", Shape{n}, DType::BF16)),
              state("m"), state("v"), state("master")});
    add("memory", b, a);
  }

  /// To the device, from it and within it (that one alone is among the streams), each beside each other one. Copies
  /// within it are so much faster that it takes many of them to last as long as one that comes from the host.
  void copies(int i) {
    constexpr int kAsLong = 32;
    constexpr std::string_view kNames[] = {"to the device", "from the device", "within the device"};
    const auto n = multiple(size(i, points(8), kLeastBytes, kMostBytes), 256);
    const Bytes bytes{double(n)};
    const auto copy = [&](PlanBuilder& b, std::string_view op, int way) {
      constexpr Stream kStreams[] = {Stream::CopyIn, Stream::CopyOut, Stream::Compute};
      const Tier from = way == 0 ? Tier::Pinned : Tier::Device, to = way == 1 ? Tier::Pinned : Tier::Device;
      const auto place = [&](const char* end, Tier tier) {
        return persistent(b, fmt::format("{} {}", end, kNames[way]), Shape{n / 4}, DType::F32, tier);
      };
      const TensorId x = place("from", from), y = place("to", to);
      for (int k = 0; k < (op == "beside" && way == 2 ? kAsLong : 1); ++k)
        b.add(op, Copy{bytes, from, to}, {reads(x), writes(y)}, kStreams[way]);
    };
    const auto one = [&](int way, int beside) {
      if (way == 2 && beside < 0) return;
      PlanBuilder b{"copies"};
      if (beside >= 0) copy(b, "beside", beside);
      copy(b, "measured", way);
      add(fmt::format("copy {} B {}{}", n, kNames[way],
                      beside < 0 ? "" : fmt::format(" beside others {}", kNames[beside])),
          "copies", b, {{}, {}, bytes, {}});
    };
    for (int way = 0; way < 3; ++way)
      for (int beside = -1; beside < 3; ++beside)
        if (beside != way) one(way, beside);
  }

  /// A collective of 2, 4 or 8 ranks, which share a device where there are fewer; or of one rank of each process.
  void exchange(int i) {
    constexpr CollectiveKind kKinds[] = {CollectiveKind::AllReduce, CollectiveKind::AllGather,
                                         CollectiveKind::ReduceScatter, CollectiveKind::AllToAll};
    const CollectiveKind kind = kKinds[i % 4];
    const bool shared = processes_ > 1;
    const std::int64_t ranks = shared ? processes_ : std::int64_t{2} << i % 3;
    const std::int64_t n = multiple(size(i, points(8), 1 << 12, 1 << 24), 8 * ranks);
    PlanBuilder b{"exchange", Mesh{{{"dp", ranks}}}};
    const std::int8_t axis = 0;
    const Collective c{
        .kind = kind, .group = b.group_over({&axis, 1}), .bytes = size_of(DType::BF16, n), .dtype = DType::BF16};
    const Shape in{kind == CollectiveKind::AllGather ? n / ranks : n},
        out{kind == CollectiveKind::ReduceScatter ? n / ranks : n};
    measured(b, c, {reads(persistent(b, "x", in, DType::BF16)), writes(persistent(b, "y", out, DType::BF16))},
             Stream::Comm);
    const std::size_t before = benches_.size();
    add(fmt::format("{} {} B over {} ranks{}", name_of(kind), 2 * n, ranks, shared ? " of as many processes" : ""),
        "collectives", b, {{}, {}, c.bytes, {}});
    if (benches_.size() > before) benches_.back().shared = shared;
  }

  /// Kernels of 64 numbers, one after another: what it takes to ask for them and to start them.
  void fill_chain(PlanBuilder& b, int lanes) {
    constexpr Stream kStreams[] = {Stream::Compute, Stream::Comm};
    TensorId x[2];
    for (int l = 0; l < lanes; ++l) x[l] = persistent(b, l == 0 ? "x" : "y", Shape{64}, DType::F32);
    for (std::int64_t i = 0; i < kSmallChain; ++i)
      for (int l = 0; l < lanes; ++l) measured(b, Fill{.elements = 64}, {writes(x[l])}, kStreams[l]);
  }
  /// From the call to the end of the kernel, as the host sees it.
  void single_kernel() {
    PlanBuilder b{"kernel"};
    measured(b, Fill{.elements = 64}, {writes(persistent(b, "x", Shape{64}, DType::F32))});
    add("1 kernel, waited for", "launches", b, {}, true);
  }
  void chain(int lanes, bool graphs) {
    PlanBuilder b{"chain"};
    fill_chain(b, lanes);
    add(fmt::format("chain of {} kernels on each of {} streams{}", kSmallChain, lanes, graphs ? ", as a graph" : ""),
        "launches", b, {}, true);
    benches_.back().use.graphs = graphs;
  }

  /// The chain on one stream, while it is observed: what that costs.
  enum class Spans { Events, Records };
  void observed_chain(Spans spans) {
    PlanBuilder b{"observed chain"};
    fill_chain(b, 1);
    add(fmt::format("chain of {} kernels on each of 1 streams, with spans from {}", kSmallChain,
                    spans == Spans::Events ? "events" : "records"),
        "observation", b, {}, true);
    benches_.back().records = spans == Spans::Records;
    benches_.back().spans = true;
  }

  /// Tensors that are taken and given back one after another.
  void allocations(bool plain) {
    PlanBuilder b{"allocations"};
    for (std::int64_t i = 0; i < kAllocations; ++i) {
      const TensorId t = b.tensor(fmt::format("t{}", i), Shape{1 << 18}, {});
      measured(b, Alloc{size_of(DType::F32, 1 << 18)}, {writes(t)});
      b.add("free", Free{size_of(DType::F32, 1 << 18)}, {reads(t)});
    }
    add(fmt::format("{} tensors from {}", kAllocations, plain ? "the device" : "an arena"), "allocations", b, {}, true);
    benches_.back().use.plain = plain;
  }

  /// What a product takes while a copy to the device runs.
  void beside_a_copy(DType t) {
    constexpr std::int64_t kSide = 4096, kBytes = 1 << 28;
    const Gemm g{.m = kSide, .n = kSide, .k = kSide, .dtype = t};
    PlanBuilder b{"beside a copy"};
    const Shape square{kSide, kSide};
    const TensorId from = persistent(b, "from", Shape{kBytes / 4}, DType::F32, Tier::Pinned);
    b.add("copy", Copy{Bytes{double(kBytes)}, Tier::Pinned, Tier::Device},
          {reads(from), writes(persistent(b, "to", Shape{kBytes / 4}, DType::F32))}, Stream::CopyIn);
    measured(b, g,
             {reads(persistent(b, "a", square, t)), reads(persistent(b, "b", square, t)),
              writes(persistent(b, "c", square, t))});
    add(to_text(g) + " beside a copy to the device", "concurrency", b, amount(g));
  }

  /// What a product takes while another one runs on a second stream: large ones take turns, small ones share the
  /// device.
  void two_at_once(DType t, bool small) {
    const std::int64_t side = small ? 512 : 4096;
    const Gemm g{.m = side, .n = side, .k = side, .dtype = t};
    PlanBuilder b{"two at once"};
    for (const auto& [stream, of] : {std::pair{Stream::Compute, "1"}, {Stream::Comm, "2"}}) {
      const auto square = [&, of = of](const char* name) {
        return persistent(b, std::string{name} + of, Shape{side, side}, t);
      };
      measured(b, g, {reads(square("a")), reads(square("b")), writes(square("c"))}, stream);
    }
    add(to_text(g) + " beside another", "concurrency", b, amount(g));
  }

  double memory_;
  int capability_;
  bool quick_;
  Random& random_;
  int processes_;
  std::vector<GpuBench> benches_;
};

}  // namespace

std::vector<GpuBench> gpu_benches(const GpuInfo& gpu, bool quick, Random& random, int processes) {
  return Benches{gpu, quick, random, processes}.take();
}

}  // namespace orrery
