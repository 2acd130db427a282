// SPDX-License-Identifier: Apache-2.0
// Matrix products, attention and norms through the host executor against the formulas of their kinds, in double.
#include <catch2/catch.hpp>
#include <numeric>

#include "tests/runtime_support.hpp"

using namespace orrery;

namespace {

constexpr double kTight = 1e-12;
using List = std::vector<double>;

/// C[m,n] = op(A)·op(B) with element functions.
template <class A, class B>
List product(std::int64_t m, std::int64_t n, std::int64_t k, A&& a, B&& b) {
  List c(static_cast<std::size_t>(m * n), 0.0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) c[std::size_t(i * n + j)] += a(i, l) * b(l, j);
  return c;
}

}  // namespace

TEST_CASE("a gemm multiplies, with either operand transposed", "[runtime]") {
  const bool ta = GENERATE(false, true), tb = GENERATE(false, true);
  HostTrial t;
  const TensorId a = t.input("a", ta ? Shape{7, 5} : Shape{5, 7}), b = t.input("b", tb ? Shape{9, 7} : Shape{7, 9});
  const TensorId c = t.output("c", Shape{5, 9});
  t.add(Gemm{.m = 5, .n = 9, .k = 7, .transpose_a = ta, .transpose_b = tb, .dtype = DType::F64}, reads(a), reads(b),
        writes(c));
  t.run();
  const auto &x = t.given(a), &y = t.given(b);
  const List want = product(
      5, 9, 7, [&](auto i, auto l) { return ta ? x[std::size_t(l * 5 + i)] : x[std::size_t(i * 7 + l)]; },
      [&](auto l, auto j) { return tb ? y[std::size_t(j * 7 + l)] : y[std::size_t(l * 9 + j)]; });
  CHECK(distance(t.result(c), want) < kTight);
}

TEST_CASE("a gemm over views uses their strides, and its bias and accumulation add up", "[runtime]") {
  // A is the columns 2 … 4 of [4, 8]; C the columns 1 … 3 of [4, 6] and holds ones: C = A·B + bias + 1.
  HostTrial t;
  const TensorId wide = t.input("wide", Shape{4, 8}), b = t.input("b", Shape{3, 3}), bias = t.input("bias", Shape{3});
  const TensorId out = t.input("out", Shape{4, 6}, List(24, 1.0));
  const TensorId a = t.builder().view(wide, "a", Layout{.shape = Shape{4, 3}, .strides = {8, 1}, .offset = 2});
  const TensorId c = t.builder().view(out, "c", Layout{.shape = Shape{4, 3}, .strides = {6, 1}, .offset = 1});
  t.add(Gemm{.m = 4, .n = 3, .k = 3, .bias = true, .accumulate = true, .dtype = DType::F64}, reads(a), reads(b),
        reads(bias), updates(c));
  t.run();
  List want = product(
      4, 3, 3, [&](auto i, auto l) { return t.given(wide)[std::size_t(i * 8 + 2 + l)]; },
      [&](auto l, auto j) { return t.given(b)[std::size_t(l * 3 + j)]; });
  for (std::size_t i = 0; i < want.size(); ++i) want[i] += t.given(bias)[i % 3] + 1;
  CHECK(distance(t.result(c), want) < kTight);
  CHECK(t.result(out)[0] == 1.0);
}

TEST_CASE("a batch of gemms takes its matrices from views of heads and shares an operand of one matrix", "[runtime]") {
  // x[tokens 3, heads 2, dim 4]: head h is a [3, 4] matrix of row stride 8; w is shared by the heads.
  HostTrial t;
  const TensorId x = t.input("x", Shape{3, 8}), w = t.input("w", Shape{4, 5}), y = t.output("y", Shape{2, 3, 5});
  const TensorId heads = t.builder().view(x, "heads", Layout{.shape = Shape{2, 3, 4}, .strides = {4, 8, 1}});
  t.add(Gemm{.m = 3, .n = 5, .k = 4, .batch = 2, .dtype = DType::F64}, reads(heads), reads(w), writes(y));
  t.run();
  List want;
  for (std::int64_t h = 0; h < 2; ++h)
    for (double v : product(
             3, 5, 4, [&](auto i, auto l) { return t.given(x)[std::size_t(i * 8 + h * 4 + l)]; },
             [&](auto l, auto j) { return t.given(w)[std::size_t(l * 5 + j)]; }))
      want.push_back(v);
  CHECK(distance(t.result(y), want) < kTight);
}

TEST_CASE("a grouped gemm and its two gradients agree with one gemm per group, for both weight orders", "[runtime]") {
  const bool tb = GENERATE(false, true);
  HostTrial t;
  const TensorId x = t.input("x", Shape{6, 4}), dy = t.input("dy", Shape{6, 3}), w = t.input("w", Shape{2, 4, 3});
  const TensorId offsets = t.indices("offsets", Shape{3}, {0, 4, 6});
  const TensorId y = t.output("y", Shape{6, 3}), dx = t.output("dx", Shape{6, 4}), dw = t.output("dw", Shape{2, 4, 3});
  GroupedGemm g{.rows = 6, .n = 3, .k = 4, .groups = 2, .transpose_b = tb, .dtype = DType::F64};
  t.add(g, reads(x), reads(w), reads(offsets), writes(y));
  g.mode = GroupedMode::InputGradient;
  t.add(g, reads(dy), reads(w), reads(offsets), writes(dx));
  g.mode = GroupedMode::WeightGradient;
  t.add(g, reads(x), reads(dy), reads(offsets), writes(dw));
  t.run();
  const auto at = [&](std::size_t e, std::size_t k, std::size_t n) { return e * 12 + (tb ? n * 4 + k : k * 3 + n); };
  List want_y(18, 0.0), want_dx(24, 0.0), want_dw(24, 0.0);
  for (std::size_t r = 0; r < 6; ++r)
    for (std::size_t k = 0; k < 4; ++k)
      for (std::size_t n = 0; n < 3; ++n) {
        const std::size_t e = r < 4 ? 0 : 1;
        want_y[r * 3 + n] += t.given(x)[r * 4 + k] * t.given(w)[at(e, k, n)];
        want_dx[r * 4 + k] += t.given(dy)[r * 3 + n] * t.given(w)[at(e, k, n)];
        want_dw[at(e, k, n)] += t.given(x)[r * 4 + k] * t.given(dy)[r * 3 + n];
      }
  CHECK(distance(t.result(y), want_y) < kTight);
  CHECK(distance(t.result(dx), want_dx) < kTight);
  CHECK(distance(t.result(dw), want_dw) < kTight);
}

namespace {

/// softmax(scale·q·kᵀ)·v of one sequence, heads of q sharing the heads of k and v; keys up to kv − q + i are seen.
List attention(const List& q, const List& k, const List& v, std::size_t rows, std::size_t keys, std::size_t heads,
               std::size_t kv_heads, std::size_t dim, double scale) {
  List o(rows * heads * dim, 0.0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t h = 0; h < heads; ++h) {
      const std::size_t g = h * kv_heads / heads, seen = keys - rows + i + 1;
      List p(seen, 0.0);
      for (std::size_t j = 0; j < seen; ++j) {
        for (std::size_t d = 0; d < dim; ++d) p[j] += q[(i * heads + h) * dim + d] * k[(j * kv_heads + g) * dim + d];
        p[j] = std::exp(scale * p[j]);
      }
      const double sum = std::accumulate(p.begin(), p.end(), 0.0);
      for (std::size_t j = 0; j < seen; ++j)
        for (std::size_t d = 0; d < dim; ++d)
          o[(i * heads + h) * dim + d] += p[j] / sum * v[(j * kv_heads + g) * dim + d];
    }
  return o;
}

}  // namespace

TEST_CASE("causal attention over a cache sees the bound number of keys and appends rows where it is told",
          "[runtime]") {
  // Cache of capacity 6; 3 rows are there, 2 come: at = 3, kv = 5.
  HostTrial t;
  const TensorId q = t.input("q", Shape{1, 2, 4, 3}), k = t.input("k", Shape{1, 6, 2, 3}),
                 v = t.input("v", Shape{1, 6, 2, 3});
  const TensorId new_k = t.input("new_k", Shape{1, 2, 2, 3}), o = t.output("o", Shape{2, 12});
  const TensorId o4 = t.builder().view(o, "o4", Layout::contiguous(Shape{1, 2, 4, 3}));
  t.add(
      AppendCache{
          .batch = 1, .rows = 2, .cols = 6, .capacity = 6, .at = Extent{0, Symbol::Context}, .dtype = DType::F64},
      reads(new_k), updates(k));
  AttentionForward a;
  a.shape = {.batch = 1,
             .heads = 4,
             .kv_heads = 2,
             .q = 2,
             .kv = Extent{2, Symbol::Context},
             .qk_dim = 3,
             .v_dim = 3,
             .scale = 0.5,
             .dtype = DType::F64};
  a.keep_lse = false;
  t.add(a, reads(q), reads(k), reads(v), writes(o4));
  Bindings bindings;
  bindings[Symbol::Context] = 3;
  t.run(bindings);
  List keys = t.given(k);
  std::copy(t.given(new_k).begin(), t.given(new_k).end(), keys.begin() + 18);
  CHECK(distance(t.result(k), keys) == 0);
  CHECK(distance(t.result(o), attention(t.given(q), keys, t.given(v), 2, 5, 4, 2, 3, 0.5)) < kTight);
}

TEST_CASE("the gradients of attention agree with differences of its output", "[runtime]") {
  // d(Σ do·o)/dx by central differences with step 1e-5: the error is about 1e-10 of third derivatives of order one.
  const std::uint64_t seed = 7;
  CAPTURE(seed);
  HostTrial t{seed};
  const Shape shape{1, 3, 2, 4};
  const TensorId qkv[] = {t.input("q", shape), t.input("k", shape), t.input("v", shape)};
  const TensorId d_o = t.input("do", shape), o = t.output("o", shape), lse = t.output("lse", Shape{1, 2, 3});
  const TensorId grads[] = {t.output("dq", shape), t.output("dk", shape), t.output("dv", shape)};
  const AttentionShape s{.batch = 1,
                         .heads = 2,
                         .kv_heads = 2,
                         .q = 3,
                         .kv = 3,
                         .qk_dim = 4,
                         .v_dim = 4,
                         .scale = 0.5,
                         .dtype = DType::F64};
  t.add(AttentionForward{.shape = s}, reads(qkv[0]), reads(qkv[1]), reads(qkv[2]), writes(o), writes(lse));
  t.add(AttentionBackward{.shape = s}, reads(qkv[0]), reads(qkv[1]), reads(qkv[2]), reads(o), reads(lse), reads(d_o),
        writes(grads[0]), writes(grads[1]), writes(grads[2]));
  t.run();
  for (int which = 0; which < 3; ++which) {
    List want;
    for (std::size_t i = 0; i < 24; ++i) {
      const auto value = [&](double step) {
        List x[] = {t.given(qkv[0]), t.given(qkv[1]), t.given(qkv[2])};
        x[which][i] += step;
        const List y = attention(x[0], x[1], x[2], 3, 3, 2, 2, 4, 0.5);
        return std::inner_product(y.begin(), y.end(), t.given(d_o).begin(), 0.0);
      };
      want.push_back((value(1e-5) - value(-1e-5)) / 2e-5);
    }
    CHECK(distance(t.result(grads[which]), want) < 1e-8);
  }
}

TEST_CASE("layer norm and rms norm follow their formulas and their gradients the differences", "[runtime]") {
  const NormKind kind = GENERATE(NormKind::Layer, NormKind::Rms, NormKind::RmsOnePlus);
  HostTrial t;
  const TensorId x = t.input("x", Shape{3, 5}), w = t.input("w", Shape{5}), b = t.input("b", Shape{5}),
                 dy = t.input("dy", Shape{3, 5});
  const TensorId y = t.output("y", Shape{3, 5}), mean = t.output("mean", Shape{3}), rstd = t.output("rstd", Shape{3});
  const TensorId dx = t.output("dx", Shape{3, 5}), dw = t.output("dw", Shape{5}), db = t.output("db", Shape{5});
  const NormForward f{kind, 3, 5, 1e-5, DType::F64};
  const NormBackward r{kind, 3, 5, 1e-5, false, DType::F64};
  if (kind == NormKind::Layer) {
    t.add(f, reads(x), reads(w), reads(b), writes(y), writes(mean), writes(rstd));
    t.add(r, reads(x), reads(w), reads(mean), reads(rstd), reads(dy), writes(dx), writes(dw), writes(db));
  } else {
    t.add(f, reads(x), reads(w), writes(y), writes(rstd));
    t.add(r, reads(x), reads(w), reads(rstd), reads(dy), writes(dx), writes(dw));
    t.add(Add{3, 5, DType::F64}, reads(x), reads(x), writes(t.output("unused", Shape{3, 5})));
    t.add(Add{1, 5, DType::F64}, reads(b), reads(b), writes(t.output("unused_b", Shape{5})));
  }
  t.run();
  const bool layer = kind == NormKind::Layer;
  const auto norm = [&](const List& v) {
    List out;
    for (std::size_t row = 0; row < 3; ++row) {
      double m = 0, var = 0;
      for (std::size_t i = 0; i < 5; ++i) m += layer ? v[row * 5 + i] / 5 : 0;
      for (std::size_t i = 0; i < 5; ++i) var += (v[row * 5 + i] - m) * (v[row * 5 + i] - m) / 5;
      for (std::size_t i = 0; i < 5; ++i)
        out.push_back((v[row * 5 + i] - m) / std::sqrt(var + 1e-5) *
                          (t.given(w)[i] + (kind == NormKind::RmsOnePlus ? 1 : 0)) +
                      (layer ? t.given(b)[i] : 0));
    }
    return out;
  };
  CHECK(distance(t.result(y), norm(t.given(x))) < kTight);
  List want;
  for (std::size_t i = 0; i < 15; ++i) {
    List up = t.given(x), down = t.given(x);
    up[i] += 1e-5;
    down[i] -= 1e-5;
    const List a = norm(up), c = norm(down);
    double slope = 0;
    for (std::size_t j = 0; j < 15; ++j) slope += (a[j] - c[j]) / 2e-5 * t.given(dy)[j];
    want.push_back(slope);
  }
  CHECK(distance(t.result(dx), want) < 1e-7);
}

#if defined(__SSE2__)
TEST_CASE("numbers too small to be normal count as zero inside of a plan, and nowhere else", "[runtime]") {
  const double small = 1e-310;
  HostTrial t;
  const TensorId a = t.input("a", Shape{2, 2}, {small, 1, 2, small}), b = t.input("b", Shape{2, 1}, {1e20, 3});
  const TensorId c = t.output("c", Shape{2, 1});
  t.add(Gemm{.m = 2, .n = 1, .k = 2, .dtype = DType::F64}, reads(a), reads(b), writes(c));
  t.run();
  CHECK(t.result(c) == List{3, 2e20});
  const volatile double here = small;
  CHECK(here * 1e20 > 0);
}
#endif
