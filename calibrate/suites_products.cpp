// SPDX-License-Identifier: Apache-2.0
// Suites of what multiplies: products, attention, small dense algebra.
#include "calibrate/suites_products.hpp"

#include <fmt/format.h>

#include "calibrate/draw.hpp"
#include "calibrate/operands.hpp"
#include "calibrate/suites.hpp"
#include "runtime/executor.hpp"

namespace orrery {
namespace {

constexpr double kMostFlops = 1.2e9;             // of one measured op
constexpr std::int64_t kMostElements = 1 << 23;  // of a right operand: as much as large caches hold

/// Sizes of a product, drawn until it is short enough; one in eight may have the width of a vocabulary, and of one in
/// six, as of many networks, rows of the result are a multiple of 4 KB apart.
Gemm draw_sizes(Random& r, std::int64_t m_low, std::int64_t m_high) {
  for (;;) {
    Gemm g{.m = log_integer(r, m_low, m_high), .n = width(r, 32, 4096), .k = width(r, 32, 4096)};
    if (m_high > 64 && r.below(2) == 0) g.m = (g.m + 31) / 32 * 32;
    if (r.below(8) == 0) g.n = width(r, 4096, 32768);
    if (r.below(6) == 0) g.n = (g.n + 1023) / 1024 * 1024;
    if (g.n * g.k <= kMostElements && 2.0 * double(g.m) * double(g.n) * double(g.k) <= kMostFlops) return g;
  }
}

AttentionShape draw_attention(Random& r) {
  constexpr std::int64_t kDims[] = {16, 24, 32, 40, 64, 64, 80, 96, 128};
  for (;;) {
    AttentionShape s{.batch = log_integer(r, 1, 16), .q = width(r, 9, 1024), .causal = r.below(3) != 0, .scale = 0.125};
    s.kv = s.q;
    s.kv_heads = log_integer(r, 1, 12);
    s.heads = s.kv_heads * (r.below(3) == 0 ? 4 : 1);
    s.qk_dim = s.v_dim = one_of(r, kDims);
    if (s.heads <= 16 && 4 * s.pairs({}) * double(s.heads * s.qk_dim) <= kMostFlops / 4) return s;
  }
}

}  // namespace

Work draw_forward_nt(Random& r) {
  Gemm g = draw_sizes(r, 9, 4096);
  g.transpose_b = true;
  g.bias = r.below(3) == 0;
  return g;
}
Work draw_forward_nn(Random& r) {
  Gemm g = draw_sizes(r, 9, 4096);
  g.bias = r.below(2) == 0;
  return g;
}
/// A weight's gradient: the tokens are the inner dimension.
Work draw_gradient_tn(Random& r) {
  Gemm g = draw_sizes(r, 16, 4096);
  std::swap(g.m, g.k);
  if (g.m <= 8) g.m = 16;
  if (r.below(4) == 0 && g.n > g.m) std::swap(g.m, g.n);
  g.transpose_a = true;
  g.accumulate = r.below(3) == 0;
  return g;
}
Work draw_tt(Random& r) {
  Gemm g = draw_sizes(r, 16, 1024);
  g.transpose_a = g.transpose_b = true;
  return g;
}
Work draw_batched(Random& r) {
  Gemm g = draw_sizes(r, 16, 256);
  g.n = width(r, 16, 256);
  g.k = width(r, 16, 256);
  g.batch = log_integer(r, 2, 16);
  g.transpose_b = r.below(2) == 0;
  return g;
}
Work draw_few_nt(Random& r) {
  Gemm g = draw_sizes(r, 1, 8);
  g.transpose_b = true;
  return g;
}
Work draw_few_nn(Random& r) {
  Gemm g = draw_sizes(r, 1, 8);
  g.bias = r.below(2) == 0;
  return g;
}
Work draw_few_tn(Random& r) {
  Gemm g = draw_sizes(r, 1, 8);
  g.transpose_a = true;
  return g;
}
Work draw_grouped(Random& r) {
  const std::int64_t groups = log_integer(r, 2, 16);
  return GroupedGemm{.rows = groups * log_integer(r, 16, 128),
                     .n = width(r, 64, 512),
                     .k = width(r, 64, 512),
                     .groups = groups,
                     .mode = static_cast<GroupedMode>(r.below(3))};
}

Work draw_attention_forward(Random& r) { return AttentionForward{draw_attention(r)}; }
Work draw_attention_backward(Random& r) { return AttentionBackward{draw_attention(r)}; }
Work draw_attention_decode(Random& r) {
  AttentionShape s = draw_attention(r);
  s.q = r.below(4) == 0 ? log_integer(r, 1, 8) : 1;
  s.kv = width(r, 16, 2048);
  if (s.kv.base < s.q) s.kv = s.q;
  return AttentionForward{s, false};
}

namespace {

constexpr double kAsInStep = 5;  // weight in a fit of a product that is measured as it stands in a step

Bench bench_of(std::string name, double weight, const std::vector<Gemm>& products, Random& r) {
  PlanBuilder builder{std::move(name)};
  builder.begin_class("all", {});
  OperandMaker maker{builder, r};
  for (const Gemm& g : products) maker.add(g);
  return {builder.take(&host_workspaces()), maker.contents(), {}, weight};
}

/// Products over so many weights; `of(i, n, k)`: the i-th, whose weight has n columns and k rows.
template <class Of>
Bench products_over(Bytes bytes, double weight, Random& r, const Of& of) {
  constexpr std::int64_t kProducts = 20, kDepths[] = {128, 192, 256, 384, 512};
  std::vector<Gemm> products;
  for (std::int64_t i = 0; i < kProducts; ++i) {
    const std::int64_t k = one_of(r, kDepths);
    const double n = bytes.base() / 4 / double(kProducts) / double(k);
    products.push_back(of(i, std::max<std::int64_t>(16, static_cast<std::int64_t>(n / 32) * 32), k));
  }
  return bench_of(fmt::format("{:.4g} MB of weights", bytes.base() / 1e6), weight, products, r);
}

/// Of every two, one has B transposed.
Gemm forward_product(std::int64_t i, std::int64_t rows, std::int64_t n, std::int64_t k) {
  return {.m = rows, .n = n, .k = k, .transpose_b = i % 2 == 0};
}

}  // namespace

std::vector<Bench> cache_sweep(Random& r, Bytes most) {
  constexpr double kStep = 1.4;
  constexpr std::int64_t kHigh = 5;  // every so many has more rows than those that read B where it lies
  std::vector<double> megabytes{0.5, 1, 1.5, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 56, 80, 112, 160};
  while (kStep * megabytes.back() <= most.base() / 1e6) megabytes.push_back(kStep * megabytes.back());
  std::vector<Bench> benches;
  for (const double mb : megabytes)
    benches.push_back(products_over(Bytes{1e6 * mb}, kAsInStep, r, [&](std::int64_t i, std::int64_t n, std::int64_t k) {
      return forward_product(i, i % kHigh == 0 ? log_integer(r, 9, 48) : log_integer(r, 1, 8), n, k);
    }));
  return benches;
}

namespace {

/// Products over weights of networks' usual sizes, together so many bytes or a few more; `of(i, n, k)`: the i-th.
template <class Of>
Bench products_near(double bytes, Random& r, const Of& of) {
  constexpr std::int64_t kSides[] = {64, 96, 128, 128, 192, 256, 256, 384, 512}, kFewestProducts = 4;
  std::vector<Gemm> products;
  double used = 0;
  for (std::int64_t i = 0; used < bytes || i < kFewestProducts; ++i) {
    const std::int64_t n = one_of(r, kSides), k = one_of(r, kSides);
    products.push_back(of(i, n, k));
    used += 4 * double(n * k);
  }
  return bench_of(fmt::format("{:.4g} MB of near weights", bytes / 1e6), kAsInStep, products, r);
}

}  // namespace

std::vector<Bench> near_products(Random& r) {
  constexpr double kPacked[] = {0.2e6, 0.3e6, 0.4e6, 0.5e6, 0.6e6, 0.7e6, 0.8e6, 1e6, 1.2e6, 1.5e6};
  constexpr double kFew[] = {0.1e6, 0.2e6, 0.4e6, 0.8e6, 1.2e6, 1.6e6};
  constexpr std::int64_t kGradient = 3;  // every so many is one of a weight
  std::vector<Bench> benches;
  for (const double bytes : kPacked)
    benches.push_back(products_near(bytes, r, [&](std::int64_t i, std::int64_t n, std::int64_t k) {
      const std::int64_t rows = log_integer(r, 9, 128);
      return i % kGradient == 0 ? Gemm{.m = k, .n = n, .k = rows, .transpose_a = true} : forward_product(i, rows, n, k);
    }));
  for (const double bytes : kFew)
    benches.push_back(products_near(bytes, r, [&](std::int64_t i, std::int64_t n, std::int64_t k) {
      return forward_product(i, log_integer(r, 1, 8), n, k);
    }));
  return benches;
}

Bench reading_bench(Bytes bytes, Random& r) {
  return products_over(bytes, 0, r,
                       [](std::int64_t i, std::int64_t n, std::int64_t k) { return forward_product(i, 1, n, k); });
}

Work draw_cholesky(Random& r) { return Cholesky{log_integer(r, 8, 192)}; }
Work draw_cholesky_solve(Random& r) { return CholeskySolve{log_integer(r, 8, 192), log_integer(r, 1, 64)}; }
Work draw_covariance(Random& r) {
  Covariance c{.history = log_integer(r, 4, 64), .columns = width(r, 1024, 262144)};
  c.own = r.below(2) == 0;
  if (c.own) c.points = c.history;
  c.known = c.history;
  return c;
}
Work draw_dots(Random& r) {
  return DotInteractionForward{log_integer(r, 16, 1024), log_integer(r, 4, 32), width(r, 16, 128)};
}
Work draw_dots_backward(Random& r) {
  return DotInteractionBackward{log_integer(r, 16, 1024), log_integer(r, 4, 32), width(r, 16, 128)};
}

}  // namespace orrery
