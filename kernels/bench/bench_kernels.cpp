// SPDX-License-Identifier: Apache-2.0
// Throughput of the host kernels on one core: GFLOP/s where arithmetic limits, GB/s (10^9 bytes of operands) where
// memory does. BETWEEN_MB=96 leaves operands in memory, as ops of a long step find them.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/host/activation.hpp"
#include "kernels/host/attention.hpp"
#include "kernels/host/cross_entropy.hpp"
#include "kernels/host/gemm.hpp"
#include "kernels/host/normalization.hpp"
#include "kernels/host/optimizer.hpp"

using namespace orrery::kernels;

namespace {

template <class T>
std::vector<T> values(std::int64_t n) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(std::sin(0.7 * static_cast<double>(i)));
  return x;
}

struct Workspace {
  explicit Workspace(std::size_t bytes) : memory{std::aligned_alloc(64, (bytes + 127) / 64 * 64), std::free} {}
  std::unique_ptr<void, decltype(&std::free)> memory;
};

/// So many MB are written between two executions (environment variable BETWEEN_MB), which leaves operands in memory.
void between(benchmark::State& state) {
  static const char* const mb = std::getenv("BETWEEN_MB");
  static std::vector<float> others(mb ? std::strtoul(mb, nullptr, 10) * 250'000 : 0);
  if (others.empty()) return;
  state.PauseTiming();
  for (float& x : others) x += 1;
  benchmark::DoNotOptimize(others.data());
  state.ResumeTiming();
}

void count(benchmark::State& state, double flops, double bytes) {
  using benchmark::Counter;
  const auto rate = [](double x) { return Counter(x, Counter::kIsIterationInvariantRate, Counter::kIs1000); };
  if (flops > 0) state.counters["FLOP/s"] = rate(flops);
  state.counters["B/s"] = rate(bytes);
}

/// Arguments m, n, k, transposes (bit 0: A, bit 1: B).
template <class T>
void gemm_of(benchmark::State& state) {
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const bool ta = state.range(3) & 1, tb = state.range(3) & 2;
  const auto a = values<T>(m * k), b = values<T>(k * n);
  std::vector<T> c(static_cast<std::size_t>(m * n));
  const Workspace workspace{gemm_workspace({m, n, k}, sizeof(T))};
  for (auto _ : state) {
    between(state);
    gemm<T>({.dims = {m, n, k},
             .transpose_a = Transpose{ta},
             .transpose_b = Transpose{tb},
             .a = a.data(),
             .lda = ta ? m : k,
             .b = b.data(),
             .ldb = tb ? k : n,
             .c = c.data(),
             .ldc = n,
             .workspace = workspace.memory.get()});
  }
  const double x = static_cast<double>(m), y = static_cast<double>(n), z = static_cast<double>(k);
  count(state, 2 * x * y * z, sizeof(T) * (x * z + z * y + x * y));
}

void gemm_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"m", "n", "k", "t"});
  for (const int t : {0, 1, 2, 3}) b->Args({512, 512, 512, t});
  for (const int size : {32, 64, 128, 256, 1024, 2048}) b->Args({size, size, size, 0});
  b->Args({128, 3072, 768, 0})->Args({128, 768, 3072, 2})->Args({768, 3072, 128, 1})->Args({16, 4096, 1024, 0});
  for (const int m : {1, 2, 4, 8})
    for (const int t : {0, 2}) b->Args({m, 4096, 8192, t});
}
BENCHMARK_TEMPLATE(gemm_of, float)->Apply(gemm_shapes);
BENCHMARK_TEMPLATE(gemm_of, double)->ArgNames({"m", "n", "k", "t"})->Args({512, 512, 512, 0})->Args({512, 512, 512, 2});

enum class Pass { Forward, Backward };

/// Arguments q_len, kv_len, heads, kv_heads, dim; causal. FLOPs count the visible half.
template <class T, Pass P>
void attention_of(benchmark::State& state) {
  const AttentionDims d{.batch = 1,
                        .q_len = state.range(0),
                        .kv_len = state.range(1),
                        .heads = state.range(2),
                        .kv_heads = state.range(3),
                        .qk_dim = state.range(4),
                        .v_dim = state.range(4)};
  const auto q = values<T>(d.q_len * d.heads * d.qk_dim), k = values<T>(d.kv_len * d.kv_heads * d.qk_dim);
  std::vector<T> o(q.size()), lse(static_cast<std::size_t>(d.heads * d.q_len)), dq(q.size()), dk(k.size()),
      dv(k.size());
  const Workspace forward_space{attention_workspace(d, sizeof(T))};
  const Workspace backward_space{attention_backward_workspace(d, sizeof(T))};
  const TokenStrides qs = contiguous(d.q_len, d.heads, d.qk_dim), ks = contiguous(d.kv_len, d.kv_heads, d.qk_dim);
  const AttentionArgs<T> args{.dims = d,
                              .scale = T(0.1),
                              .q = q.data(),
                              .q_strides = qs,
                              .k = k.data(),
                              .k_strides = ks,
                              .v = k.data(),
                              .v_strides = ks,
                              .o = o.data(),
                              .o_strides = qs,
                              .lse = lse.data(),
                              .mask = {.causal = true},
                              .workspace = forward_space.memory.get()};
  attention(args);
  for (auto _ : state) {
    between(state);
    if constexpr (P == Pass::Forward)
      attention(args);
    else
      attention_backward<T>({.forward = args,
                             .d_o = q.data(),
                             .d_o_strides = qs,
                             .dq = dq.data(),
                             .dq_strides = qs,
                             .dk = dk.data(),
                             .dk_strides = ks,
                             .dv = dv.data(),
                             .dv_strides = ks,
                             .workspace = backward_space.memory.get()});
  }
  const double s = static_cast<double>(d.q_len), visible = s * (static_cast<double>(d.kv_len) - (s - 1) / 2);
  const double products = P == Pass::Forward ? 2 : 5;
  count(state, products * 2 * visible * static_cast<double>(d.qk_dim * d.heads),
        sizeof(T) * static_cast<double>(q.size() * 2 + k.size() * 2));
}
BENCHMARK_TEMPLATE(attention_of, float, Pass::Forward)
    ->ArgNames({"q", "kv", "h", "hkv", "d"})
    ->Args({64, 64, 128, 128, 64})
    ->Args({512, 512, 8, 8, 64})
    ->Args({2048, 2048, 2, 2, 128})
    ->Args({1, 8192, 16, 16, 128})
    ->Args({1, 8192, 32, 4, 128})
    ->Args({8, 8192, 8, 8, 128});
BENCHMARK_TEMPLATE(attention_of, float, Pass::Backward)
    ->ArgNames({"q", "kv", "h", "hkv", "d"})
    ->Args({64, 64, 128, 128, 64})
    ->Args({512, 512, 8, 8, 64})
    ->Args({2048, 2048, 2, 2, 128});

/// Rows × columns of the row kernels; 4096 × 1024 floats are 16 MiB an operand.
constexpr std::int64_t kRows = 4096, kCols = 1024;

void layer_norm_forward(benchmark::State& state) {
  const auto x = values<float>(kRows * kCols), gamma = values<float>(kCols);
  std::vector<float> y(x.size()), mean(kRows), rstd(kRows);
  for (auto _ : state) {
    between(state);
    layer_norm<float>({.rows = kRows,
                       .cols = kCols,
                       .x = x.data(),
                       .gamma = gamma.data(),
                       .beta = gamma.data(),
                       .y = y.data(),
                       .mean = mean.data(),
                       .rstd = rstd.data()});
  }
  count(state, 0, 2.0 * sizeof(float) * kRows * kCols);
}
BENCHMARK(layer_norm_forward);

void layer_norm_gradient(benchmark::State& state) {
  const auto x = values<float>(kRows * kCols), gamma = values<float>(kCols), mean = values<float>(kRows);
  std::vector<float> dx(x.size()), dgamma(kCols), dbeta(kCols);
  for (auto _ : state) {
    between(state);
    layer_norm_backward<float>({.rows = kRows,
                                .cols = kCols,
                                .x = x.data(),
                                .gamma = gamma.data(),
                                .mean = mean.data(),
                                .rstd = mean.data(),
                                .dy = x.data(),
                                .dx = dx.data(),
                                .dgamma = dgamma.data(),
                                .dbeta = dbeta.data()});
  }
  count(state, 0, 3.0 * sizeof(float) * kRows * kCols);
}
BENCHMARK(layer_norm_gradient);

/// Argument: 0 relu, 1 tanh-gelu, 2 erf-gelu, 3 silu.
void activation_forward(benchmark::State& state) {
  const auto x = values<float>(kRows * kCols);
  std::vector<float> y(x.size());
  for (auto _ : state) {
    between(state);
    activation<float>(
        {.kind = static_cast<Activation>(state.range(0)), .rows = kRows, .cols = kCols, .x = x.data(), .y = y.data()});
  }
  count(state, 0, 2.0 * sizeof(float) * kRows * kCols);
}
BENCHMARK(activation_forward)->DenseRange(0, 3);

void activation_gradient(benchmark::State& state) {
  const auto x = values<float>(kRows * kCols);
  std::vector<float> dx(x.size());
  for (auto _ : state) {
    between(state);
    activation_backward<float>({.kind = static_cast<Activation>(state.range(0)),
                                .rows = kRows,
                                .cols = kCols,
                                .x = x.data(),
                                .dy = x.data(),
                                .dx = dx.data()});
  }
  count(state, 0, 3.0 * sizeof(float) * kRows * kCols);
}
BENCHMARK(activation_gradient)->DenseRange(0, 3);

void adamw_step(benchmark::State& state) {
  const auto g = values<float>(kRows * kCols);
  std::vector<float> w(g.size()), m(g.size()), v(g.size());
  for (auto _ : state) {
    between(state);
    adamw<float>({.n = kRows * kCols,
                  .rate = 1e-3,
                  .weight_decay = 0.1,
                  .step = 10,
                  .weights = w.data(),
                  .gradient = g.data(),
                  .m = m.data(),
                  .v = v.data()});
  }
  count(state, 0, 7.0 * sizeof(float) * kRows * kCols);
}
BENCHMARK(adamw_step);

void cross_entropy_both(benchmark::State& state) {
  constexpr std::int64_t kTokens = 128, kVocab = 32000;
  const auto x = values<float>(kTokens * kVocab);
  std::vector<float> loss(kTokens), lse(kTokens), dx(x.size());
  const std::vector<std::int32_t> targets(kTokens, 7);
  for (auto _ : state) {
    between(state);
    cross_entropy<float>({.rows = kTokens,
                          .vocab = kVocab,
                          .logits = x.data(),
                          .targets = targets.data(),
                          .loss = loss.data(),
                          .lse = lse.data()});
    cross_entropy_backward<float>({.rows = kTokens,
                                   .vocab = kVocab,
                                   .logits = x.data(),
                                   .targets = targets.data(),
                                   .lse = lse.data(),
                                   .scale = 1.0f / kTokens,
                                   .dlogits = dx.data()});
  }
  count(state, 0, 3.0 * sizeof(float) * kTokens * kVocab);
}
BENCHMARK(cross_entropy_both);

}  // namespace

BENCHMARK_MAIN();
