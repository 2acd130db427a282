// SPDX-License-Identifier: Apache-2.0
// A prediction against what the PyTorch profiler records of it: kernels run later than the code that launched them, the
// backward pass is launched by a thread without marks. Which kernel is which op is known from the names.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "gui/core/alignment.hpp"
#include "sim/base/random.hpp"
#include "sim/timeline/foreign_readers.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

constexpr int kLayers = 12, kSteps = 2;

/// A kernel as the profiler sees it, in the order of launches.
struct Kernel {
  std::size_t truth = 0;  // of the ops of the prediction in order, counted from 1; 0: none of them
  std::string kernel;     // a name of the class
  int step = 0, layer = -1;
  bool is_backward = false;
};
using Kernels = std::vector<Kernel>;

struct Part {
  const char* name;
  Work work;
  const char* kernel;
};

std::vector<Part> parts() {
  const Work norm = NormForward{.rows = 8, .dim = 8}, add = Add{.rows = 8, .cols = 8};
  return {{"norm", norm, "void vectorized_layer_norm_kernel<float>"},
          {"qkv", gemm(), "sm90_xmma_gemm_bf16bf16"},
          {"out", gemm(), "sm90_xmma_gemm_bf16bf16"},
          {"sum", all_reduce(), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"},
          {"add", add, "vectorized_elementwise_kernel<4, add>"},
          {"up", gemm(), "nvjet_hsh_128x128"},
          {"act", add, "vectorized_elementwise_kernel<4, gelu>"},
          {"down", gemm(), "nvjet_hsh_128x128"},
          {"sum2", all_reduce(), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}};
}

/// Two ranks, two steps; forward through all layers, then back.
struct Prediction {
  Trace trace;
  Kernels kernels;  // of rank 1
};

Prediction prediction() {
  Prediction out;
  SmallPlan p{2};
  for (const bool is_backward : {false, true})
    for (int i = 0; i < kLayers; ++i)
      for (const Part& part : parts()) {
        const int layer = is_backward ? kLayers - 1 - i : i;
        const std::string name = fmt::format("layers.{}.{}{}", layer, part.name, is_backward ? ".d" : "");
        const bool is_sum = std::holds_alternative<Collective>(part.work);
        p.add(name, part.work, is_sum ? Stream::Comm : Stream::Compute);
        p.plan.ops.back().layer = static_cast<std::int16_t>(layer);
        p.plan.ops.back().phase = is_backward ? Phase::Backward : Phase::Forward;
        out.kernels.push_back({out.kernels.size() + 1, part.kernel, 0, layer, is_backward});
      }
  const std::size_t ops = out.kernels.size();
  std::int64_t now = 0;
  for (std::uint32_t step = 0; step < kSteps; ++step)
    for (std::size_t i = 0; i < ops; ++i, now += 10)
      for (const std::size_t rank : {0u, 1u}) ran(out.trace.timeline, OpId{i}, rank, now, now + 9, step);
  out.trace.plans = describe(p.plan);
  for (std::size_t i = 0; i < ops; ++i) {
    Kernel again = out.kernels[i];
    again.truth += ops;
    again.step = 1;
    out.kernels.push_back(again);
  }
  return out;
}

/// Writes what the profiler would: steps and layers marked on one thread, gradients launched by another one, each
/// kernel half a layer behind its launch, streams for kernels and for collectives.
class Profiler {
 public:
  explicit Profiler(const Kernels& kernels) {
    for (std::size_t i = 0; i < kernels.size(); ++i) add(kernels, i);
    close_layer();
    close_step();
  }
  /// Without what began before a moment: capture starts late.
  std::string text(double from_us = 0) const {
    std::string events;
    for (const auto& [at, line] : lines_)
      if (at >= from_us) events += (events.empty() ? "\n" : ",\n") + line;
    return R"({"schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2}, "traceEvents": [)" +
           events + "\n]}";
  }
  double end() const { return now_; }

 private:
  static constexpr double kLaunch = 10, kBehind = 47;  // microseconds

  void add(const Kernels& kernels, std::size_t i) {
    const Kernel& k = kernels[i];
    if (k.step != step_) close_layer(), close_step();
    if (k.layer != layer_ || k.is_backward != is_backward_) close_layer();
    step_ = k.step;
    layer_ = k.layer;
    is_backward_ = k.is_backward;
    const std::string id = std::to_string(i + 1);
    const int thread = k.is_backward ? 8 : 7;
    const std::string op = k.is_backward ? "AddmmBackward0" : "aten::addmm";
    range(now_, kLaunch - 1, "cpu_op", op, thread);
    // The op of the forward pass and its gradient are joined by an arrow of the same number.
    if (!k.is_backward)
      forward_of_[{k.step, k.layer}] = now_;
    else if (const auto it = forward_of_.find({k.step, k.layer}); it != forward_of_.end())
      flow("fwdbwd", "g" + id, it->second + 0.5, 7, now_ + 0.5, thread);
    range(now_ + 2, 3, "cuda_runtime", "cudaLaunchKernel", thread);
    const bool is_sum = k.kernel.starts_with("nccl");
    const double start = now_ + kBehind;
    flow("ac2g", id, now_ + 2, thread, start, is_sum ? 20 : 7, 0);
    std::string arguments =
        fmt::format(R"("stream": {}, "correlation": {}, "truth": {})", is_sum ? 20 : 7, id, k.truth);
    if (is_sum)
      arguments += fmt::format(
          R"(, "Collective name": "allreduce", "Process Group Name": "1", "Process Group Ranks": "[0, 1]", "Seq": {})",
          500 + i);
    line(start, fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "{}", "pid": 0, "tid": {}, "ts": {:.3f}, )"
                            R"("dur": 8, "args": {{{}}}}})",
                            k.kernel, is_sum ? 20 : 7, start, arguments));
    now_ += kLaunch;
  }
  void close_layer() {
    if (layer_ >= 0 && !is_backward_)
      range(layer_from_, now_ - layer_from_ - 0.5, "user_annotation", fmt::format("layer {}", layer_), 7);
    layer_from_ = now_;
  }
  void close_step() {
    if (step_ >= 0)
      range(step_from_, now_ - step_from_ - 0.2, "user_annotation", fmt::format("ProfilerStep#{}", 40 + step_), 7);
    step_from_ = now_;
  }
  void range(double at, double length, const char* category, const std::string& name, int thread) {
    line(at,
         fmt::format(R"({{"ph": "X", "cat": "{}", "name": "{}", "pid": 99, "tid": {}, "ts": {:.3f}, "dur": {:.3f}}})",
                     category, name, thread, at, length));
  }
  void flow(const char* name, const std::string& id, double from, int from_thread, double to, int to_thread,
            int to_process = 99) {
    line(from,
         fmt::format(R"({{"ph": "s", "id": "{0}", "cat": "{1}", "name": "{1}", "pid": 99, "tid": {2}, "ts": {3:.3f}}})",
                     id, name, from_thread, from));
    line(
        to,
        fmt::format(
            R"({{"ph": "f", "bp": "e", "id": "{0}", "cat": "{1}", "name": "{1}", "pid": {2}, "tid": {3}, "ts": {4:.3f}}})",
            id, name, to_process, to_thread, to));
  }
  void line(double at, std::string text) { lines_.emplace_back(at, std::move(text)); }

  std::vector<std::pair<double, std::string>> lines_;
  std::map<std::pair<int, int>, double> forward_of_;
  double now_ = 0, layer_from_ = 0, step_from_ = 0;
  int step_ = -1, layer_ = -1;
  bool is_backward_ = false;
};

struct Score {
  std::array<std::uint64_t, kNumMatchTiers> right{}, wrong{};
  std::uint64_t pairable = 0, fused = 0;

  std::uint64_t sure_right() const { return right[1] + right[2]; }
  std::uint64_t sure_wrong() const { return wrong[0] + wrong[1] + wrong[2]; }
};

Score scored(const std::string& json) {
  Prediction p = prediction();
  const Document main{std::move(p.trace), "p"}, other{read_chrome_events(json, "x.json"), "x.json"};
  const ForeignTrace& trace = *other.foreign();
  const auto truth = [&](EventIndex e) {
    const std::string text{trace.argument(trace.events[e], "truth")};
    return text.empty() ? 0 : std::stoul(text);
  };
  const Matching m = match(main, other);
  Score out;
  out.fused = m.fusions.size();
  for (EventIndex e = 0; e < trace.events.size(); ++e) out.pairable += truth(e) > 0 ? 1 : 0;
  for (EventIndex e = 0; e < main.events().size(); ++e) {
    if (m.partner_of_main[e] == kNoEvent) continue;
    // Spans of the two ranks take turns.
    const bool is_right = e % 2 == 1 && truth(m.partner_of_main[e]) == e / 2 + 1;
    (is_right ? out.right : out.wrong)[m.tier_of_main[e]] += 1;
  }
  return out;
}

void tell(const char* what, const Score& s) {
  WARN(fmt::format(
      "{}: {} of {} sure and right ({} collectives), {} sure and wrong; unsure {} right, {} wrong; {} fused", what,
      s.sure_right(), s.pairable, s.right[1], s.sure_wrong(), s.right[3], s.wrong[3], s.fused));
}

}  // namespace

TEST_CASE("a prediction matches what the PyTorch profiler recorded of it", "[gui]") {
  const Score s = scored(Profiler{prediction().kernels}.text());
  tell("whole", s);
  CHECK(s.pairable == 2 * 2 * kLayers * parts().size());
  CHECK(s.sure_right() == s.pairable);
  CHECK(s.right[static_cast<std::size_t>(MatchTier::Collective)] == 2 * 2 * kLayers * 2);
  CHECK(s.sure_wrong() == 0);
}

TEST_CASE("a recording that starts late has no wrong pair that looks sure", "[gui]") {
  const Profiler profiler{prediction().kernels};
  for (const double share : {0.05, 0.2, 0.31, 0.45}) {
    const Score s = scored(profiler.text(share * profiler.end()));
    tell("late", s);
    CHECK(s.sure_wrong() == 0);
    // Gradients of ops that were launched before it began belong to no layer that it knows.
    CHECK(double(s.sure_right()) >= 0.7 * double(s.pairable));
  }
}

TEST_CASE("a recording without a layer or in another order has no wrong pair that looks sure", "[gui]") {
  const Kernels all = prediction().kernels;
  Kernels dropped = all, swapped = all;
  std::erase_if(dropped, [](const Kernel& k) { return k.step == 1 && k.layer == 5; });
  Random random{5};
  for (std::size_t i = 0; i + 1 < swapped.size(); ++i)
    if (random.bernoulli(0.05) && swapped[i].kernel != swapped[i + 1].kernel &&
        swapped[i].layer == swapped[i + 1].layer && swapped[i].is_backward == swapped[i + 1].is_backward)
      std::swap(swapped[i], swapped[i + 1]), ++i;
  for (const auto& [name, kernels, least] : {std::tuple{"dropped", dropped, 1.0}, {"swapped", swapped, 0.7}}) {
    const Score s = scored(Profiler{kernels}.text());
    tell(name, s);
    CHECK(s.sure_wrong() == 0);
    CHECK(double(s.sure_right()) >= least * double(s.pairable));
    CHECK(double(s.sure_right() + s.right[3]) >= 0.95 * double(s.pairable));
  }
}

namespace {

/// A kernel in place of `ops` ops from the place `first` of a layer on.
struct Fused {
  std::size_t first, ops;
  const char* kernel;
};

Kernels with(const Fused& fused) {
  const Kernels all = prediction().kernels;
  Kernels out;
  for (std::size_t i = 0; i < all.size(); ++i) {
    out.push_back(all[i]);
    if (i % parts().size() != fused.first) continue;
    out.back() = {0, fused.kernel, all[i].step, all[i].layer, all[i].is_backward};
    i += fused.ops - 1;
  }
  return out;
}

}  // namespace

TEST_CASE("a kernel that does several ops is no sure partner of one of them, whatever it is called", "[gui]") {
  for (const auto& [name, fused, least] :
       {std::tuple{"by the compiler", Fused{5, 2, "triton_poi_fused_addmm_gelu_3"}, 0.95},
        {"a product with its activation", Fused{5, 2, "nvjet_hsh_128x128"}, 0.5},
        {"a product with its activation, which says so", Fused{5, 2, "cutlass_gemm_bf16_128x128_gelu"}, 0.95},
        {"a product with the addition behind it", Fused{4, 2, "nvjet_hsh_128x128_bias"}, 0.5},
        {"a norm with the product behind it", Fused{0, 2, "fused_layer_norm_linear"}, 0.3}}) {
    const Score s = scored(Profiler{with(fused)}.text());
    tell(name, s);
    INFO(name);
    CHECK(s.sure_wrong() == 0);
    CHECK(double(s.sure_right()) >= least * double(s.pairable));
    CHECK(double(s.sure_right() + s.right[3]) >= 0.75 * double(s.pairable));
  }
}

TEST_CASE("fused kernels beside casts that the plan does not have make no wrong pair sure", "[gui]") {
  // The activation is in the product before it, and each layer ends with a kernel of the class of an activation.
  Kernels kernels;
  for (const Kernel& k : with({5, 2, "nvjet_hsh_128x128"})) {
    kernels.push_back(k);
    if (k.truth % parts().size() == 0 && k.truth > 0)
      kernels.push_back({0, "vectorized_elementwise_kernel<4, cast>", k.step, k.layer, k.is_backward});
  }
  const Score s = scored(Profiler{kernels}.text());
  tell("with casts", s);
  CHECK(s.sure_wrong() == 0);
}

TEST_CASE("a recorded trace can be the main one, and its steps are laid on those of the prediction", "[gui]") {
  Prediction p = prediction();
  const Document main{read_chrome_events(Profiler{p.kernels}.text(), "x.json"), "x.json"};
  const auto c = compare_documents(main, Document{std::move(p.trace), "p"}, {});
  CHECK(c->matching.num_pairs() == p.kernels.size());
  CHECK(c->matching.unmatched_main == 0);
  CHECK(c->matching.unmatched_main_time.base() == 0);
  CHECK(c->matching.unmatched_other == 0);  // rank 0 was not recorded and takes no part
  const auto partner_start = [&](std::size_t truth) {
    return c->document.start(static_cast<EventIndex>(2 * truth + 1));
  };
  const EventIndex first = c->matching.partner_of_other[1], second = c->matching.partner_of_other[p.kernels.size() + 1];
  CHECK(partner_start(0) == main.start(first));
  CHECK(partner_start(p.kernels.size() / 2) == main.start(second));
}
