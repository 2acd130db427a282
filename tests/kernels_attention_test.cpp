// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/attention.hpp"

#include <algorithm>

#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

using Ids = std::vector<std::int32_t>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Operands of one attention in double; `bind` points the arguments of either precision at copies of them.
struct Problem {
  AttentionArgs<double> args;
  Values q, k, v, bias, group_mask, tree_mask;
  std::int64_t o_size = 0, lse_size = 0;
};

template <class T>
struct Bound {
  std::vector<T> q, k, v, bias, group_mask, tree_mask, o, lse;
  AttentionArgs<T> args;

  explicit Bound(const Problem& p)
      : q{as<T>(p.q)},
        k{as<T>(p.k)},
        v{as<T>(p.v)},
        bias{as<T>(p.bias)},
        group_mask{as<T>(p.group_mask)},
        tree_mask{as<T>(p.tree_mask)},
        o{poison<T>(p.o_size)},
        lse{poison<T>(p.lse_size)} {
    const auto& a = p.args;
    const auto pointer = [](const std::vector<T>& x) { return x.empty() ? nullptr : x.data(); };
    args = {.dims = a.dims,
            .scale = T(a.scale),
            .cap = T(a.cap),
            .q = q.data(),
            .q_strides = a.q_strides,
            .k = k.data(),
            .k_strides = a.k_strides,
            .v = v.data(),
            .v_strides = a.v_strides,
            .o = o.data(),
            .o_strides = a.o_strides,
            .lse = lse.data(),
            .mask = {.causal = a.mask.causal,
                     .window = a.mask.window,
                     .chunked = a.mask.chunked,
                     .query_offset = a.mask.query_offset,
                     .bias = pointer(bias),
                     .group_mask = pointer(group_mask),
                     .groups = a.mask.groups,
                     .tree_mask = pointer(tree_mask)},
            .layout = a.layout};
  }
};

/// Contiguous q, k, v with random values.
Problem problem(const AttentionDims& d, unsigned seed) {
  Problem p;
  p.q = random_values(d.batch * d.q_len * d.heads * d.qk_dim, seed);
  p.k = random_values(d.batch * d.kv_len * d.kv_heads * d.qk_dim, seed + 1);
  p.v = random_values(d.batch * d.kv_len * d.kv_heads * d.v_dim, seed + 2);
  p.o_size = d.batch * d.q_len * d.heads * d.v_dim;
  p.lse_size = d.batch * d.heads * d.q_len;
  p.args = {.dims = d,
            .scale = 1.3 / std::sqrt(static_cast<double>(d.qk_dim)),
            .q_strides = contiguous(d.q_len, d.heads, d.qk_dim),
            .k_strides = contiguous(d.kv_len, d.kv_heads, d.qk_dim),
            .v_strides = contiguous(d.kv_len, d.kv_heads, d.v_dim),
            .o_strides = contiguous(d.q_len, d.heads, d.v_dim)};
  return p;
}

std::int64_t offset(const TokenStrides& s, std::int64_t b, std::int64_t t, std::int64_t h) {
  return b * s.batch + t * s.token + h * s.head;
}

struct Result {
  Values o, lse;
};

/// Row (b, i, h) by the definition; writes o and lse where the arguments say.
void naive_row(const AttentionArgs<double>& a, std::int64_t b, std::int64_t i, std::int64_t h, Result& out) {
  const auto& d = a.dims;
  const auto& l = a.layout;
  const auto& m = a.mask;
  const std::int64_t q_begin = l.cu_q ? l.cu_q[b] : 0, q_len = l.cu_q ? l.cu_q[b + 1] - q_begin : d.q_len;
  const std::int64_t kv_begin = l.cu_kv ? l.cu_kv[b] : 0;
  const std::int64_t kv_len = l.cu_kv ? l.cu_kv[b + 1] - kv_begin : l.kv_lens ? l.kv_lens[b] : d.kv_len;
  const std::int64_t p = i + m.query_offset.value_or(kv_len - q_len), kv = h * d.kv_heads / d.heads;
  const auto key = [&](const double* x, const TokenStrides& s, std::int64_t j) {
    if (l.block_table) return x + offset(s, l.block_table[b * l.max_blocks + j / l.page], j % l.page, kv);
    return x + offset(s, l.cu_kv ? 0 : b, kv_begin + j, kv);
  };
  const auto query = [&](const TokenStrides& s) { return offset(s, l.cu_q ? 0 : b, q_begin + i, h); };
  Values s(static_cast<std::size_t>(kv_len), -kInfinity);
  double max = -kInfinity, sum = 0;
  for (std::int64_t j = 0; j < kv_len; ++j) {
    if (m.causal && j > p) continue;
    if (m.window != kNoWindow && (m.chunked ? j / m.window < p / m.window : j <= p - m.window)) continue;
    double x = 0;
    for (std::int64_t c = 0; c < d.qk_dim; ++c) x += a.q[query(a.q_strides) + c] * key(a.k, a.k_strides, j)[c];
    x *= a.scale;
    if (a.cap > 0) x = a.cap * std::tanh(x / a.cap);
    if (m.bias) x += m.bias[(h * q_len + i) * kv_len + j];
    if (m.group_mask) x += m.group_mask[((b % m.groups) * q_len + i) * kv_len + j];
    if (m.tree_mask && j >= kv_len - q_len) x += m.tree_mask[i * q_len + j - (kv_len - q_len)];
    s[static_cast<std::size_t>(j)] = x;
    max = std::max(max, x);
  }
  for (const double x : s) sum += max == -kInfinity ? 0 : std::exp(x - max);
  const std::int64_t row = l.cu_q ? h * l.cu_q[d.batch] + q_begin + i : (b * d.heads + h) * d.q_len + i;
  out.lse[static_cast<std::size_t>(row)] = max + std::log(sum);
  for (std::int64_t c = 0; c < d.v_dim; ++c) {
    double o = 0;
    for (std::int64_t j = 0; j < kv_len && sum > 0; ++j)
      o += std::exp(s[static_cast<std::size_t>(j)] - max) / sum * key(a.v, a.v_strides, j)[c];
    out.o[static_cast<std::size_t>(query(a.o_strides) + c)] = o;
  }
}

Result naive(const Problem& p) {
  const Bound<double> x{p};
  Result out{x.o, x.lse};
  const auto& a = x.args;
  for (std::int64_t b = 0; b < a.dims.batch; ++b) {
    const std::int64_t q_len = a.layout.cu_q ? a.layout.cu_q[b + 1] - a.layout.cu_q[b] : a.dims.q_len;
    for (std::int64_t i = 0; i < q_len; ++i)
      for (std::int64_t h = 0; h < a.dims.heads; ++h) naive_row(a, b, i, h, out);
  }
  return out;
}

/// lse with −∞ replaced, so that it can be compared by a norm.
template <class T>
Values finite(const std::vector<T>& x) {
  Values y;
  for (const T v : x) y.push_back(v == -std::numeric_limits<T>::infinity() ? -1000.0 : double(v));
  return y;
}

template <class T>
void check_precision(const Problem& p, const Result& expected, double tolerance) {
  Bound<T> x{p};
  Workspace workspace{attention_workspace(p.args.dims, sizeof(T))};
  x.args.workspace = workspace.data();
  run([&] { attention(x.args); });
  CHECK(workspace.intact());
  CHECK(distance(x.o, expected.o) < tolerance);
  CHECK(distance(finite(x.lse), finite(expected.lse)) < tolerance);
}

void check(const Problem& p) {
  const Result expected = naive(p);
  check_precision<double>(p, expected, 1e-14);
  check_precision<float>(p, expected, 1e-6);
}

/// Queries of the decode path, of one tile, of several tiles.
const std::vector<std::int64_t> kQueries{1, 3, 8, 9, 70, 133};

}  // namespace

TEST_CASE("attention equals the naive softmax for lengths around its tiles and differing head sizes", "[kernels]") {
  for (const std::int64_t q : kQueries)
    for (const std::int64_t kv : {1, 33, 128, 300}) {
      INFO("seed 1, q " << q << ", kv " << kv);
      check(problem({.batch = 2, .q_len = q, .kv_len = kv, .heads = 2, .kv_heads = 2, .qk_dim = 24, .v_dim = 17}, 1));
    }
}

TEST_CASE("causal and sliding-window attention hide the same keys as the naive one", "[kernels]") {
  for (const std::int64_t q : kQueries)
    for (const std::int64_t window : {kNoWindow, std::int64_t{1}, std::int64_t{40}, std::int64_t{150}})
      for (const bool causal : {false, true}) {
        INFO("seed 2, q " << q << ", window " << window << ", causal " << causal);
        auto p =
            problem({.batch = 1, .q_len = q, .kv_len = 290, .heads = 2, .kv_heads = 1, .qk_dim = 16, .v_dim = 16}, 2);
        p.args.mask = {.causal = causal, .window = window};
        check(p);
        if (window == kNoWindow || !causal) continue;
        p.args.mask.chunked = true;
        check(p);
      }
}

TEST_CASE("scores are bounded before masks are added, whatever the number of queries", "[kernels]") {
  for (const std::int64_t q : kQueries)
    for (const double cap : {0.1, 2.0, 50.0}) {
      INFO("seed 7, q " << q << ", cap " << cap);
      auto p =
          problem({.batch = 2, .q_len = q, .kv_len = 300, .heads = 4, .kv_heads = 2, .qk_dim = 16, .v_dim = 16}, 7);
      p.bias = random_values(4 * q * 300, 70);
      p.args.mask = {.causal = true, .window = 150};
      p.args.cap = cap;
      check(p);
    }
}

TEST_CASE("query heads of a group share their key head", "[kernels]") {
  for (const std::int64_t q : kQueries) {
    INFO("seed 3, q " << q);
    auto p = problem({.batch = 2, .q_len = q, .kv_len = 140, .heads = 6, .kv_heads = 2, .qk_dim = 20, .v_dim = 33}, 3);
    p.args.mask.causal = true;
    check(p);
  }
}

TEST_CASE("a query offset moves the causal diagonal, and a query that sees no key gives zero and minus infinity",
          "[kernels]") {
  for (const std::int64_t q : kQueries)
    for (const std::int64_t shift : {-500, -40, 0, 300}) {
      INFO("seed 4, q " << q << ", offset " << shift);
      auto p = problem({.batch = 1, .q_len = q, .kv_len = 150, .heads = 1, .kv_heads = 1, .qk_dim = 8, .v_dim = 8}, 4);
      p.args.mask = {.causal = true, .query_offset = shift};
      check(p);
    }
}

TEST_CASE("bias and window-group masks are added to the scores", "[kernels]") {
  for (const std::int64_t q : kQueries) {
    INFO("seed 5, q " << q);
    auto p = problem({.batch = 4, .q_len = q, .kv_len = q, .heads = 3, .kv_heads = 3, .qk_dim = 8, .v_dim = 8}, 5);
    p.bias = random_values(3 * q * q, 50);
    p.group_mask = random_values(2 * q * q, 51);
    for (double& x : p.group_mask) x = x > 0.5 ? -100 : 0;
    p.args.mask.groups = 2;
    check(p);
  }
}

TEST_CASE("a tree mask decides among the last keys only", "[kernels]") {
  for (const std::int64_t q : kQueries) {
    INFO("seed 6, q " << q);
    const Ids lens{160, static_cast<std::int32_t>(q + 1)};
    auto p = problem({.batch = 2, .q_len = q, .kv_len = 160, .heads = 2, .kv_heads = 1, .qk_dim = 8, .v_dim = 8}, 6);
    p.tree_mask = random_values(q * q, 60);
    for (double& x : p.tree_mask) x = x > 0 ? -kInfinity : 0;
    p.args.layout.kv_lens = lens.data();
    check(p);
  }
}

TEST_CASE("views into a fused tensor and a cache longer than its content are read by their strides", "[kernels]") {
  for (const std::int64_t q : {5, 70}) {
    INFO("seed 7, q " << q);
    const std::int64_t heads = 4, kv_heads = 2, dim = 16, width = (heads + 2 * kv_heads) * dim, capacity = 200;
    auto p = problem(
        {.batch = 2, .q_len = q, .kv_len = q + 60, .heads = heads, .kv_heads = kv_heads, .qk_dim = dim, .v_dim = dim},
        7);
    p.q = random_values(2 * q * width, 70);
    p.args.q_strides = {.batch = q * width, .token = width, .head = dim};
    p.k = random_values(2 * capacity * kv_heads * dim, 71);
    p.v = random_values(2 * capacity * kv_heads * dim, 72);
    p.args.k_strides = p.args.v_strides = contiguous(capacity, kv_heads, dim);
    p.args.mask.causal = true;
    check(p);
  }
}

TEST_CASE("packed sequences of different lengths attend only to themselves", "[kernels]") {
  INFO("seed 8");
  const Ids cu_q{0, 70, 71, 71, 84}, cu_kv{0, 90, 120, 123, 140};
  auto p = problem({.batch = 4, .q_len = 70, .kv_len = 90, .heads = 2, .kv_heads = 2, .qk_dim = 12, .v_dim = 12}, 8);
  p.args.layout = {.cu_q = cu_q.data(), .cu_kv = cu_kv.data()};
  p.args.mask.causal = true;
  p.o_size = 84 * 2 * 12;
  p.lse_size = 2 * 84;
  check(p);
}

TEST_CASE("a paged cache is read through its block table", "[kernels]") {
  const std::int64_t page = 16, pages = 40, blocks = 13;
  for (const std::int64_t q : {1, 4, 20}) {
    INFO("seed 9, q " << q);
    Ids table(static_cast<std::size_t>(2 * blocks));
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::int32_t>(i * 17 % 40);
    const Ids lens{200, 37};
    auto p = problem({.batch = 2, .q_len = q, .kv_len = 208, .heads = 4, .kv_heads = 2, .qk_dim = 16, .v_dim = 8}, 9);
    p.k = random_values(pages * page * 2 * 16, 90);
    p.v = random_values(pages * page * 2 * 8, 91);
    p.args.k_strides = contiguous(page, 2, 16);
    p.args.v_strides = contiguous(page, 2, 8);
    p.args.layout = {.kv_lens = lens.data(), .block_table = table.data(), .max_blocks = blocks, .page = page};
    p.args.mask.causal = true;
    check(p);
  }
}

TEST_CASE("attention over two halves of the keys merges to attention over all", "[kernels]") {
  INFO("seed 10");
  const std::int64_t kv = 150, first = 60;
  auto p = problem({.batch = 1, .q_len = 70, .kv_len = kv, .heads = 2, .kv_heads = 2, .qk_dim = 8, .v_dim = 8}, 10);
  p.args.mask = {.causal = true, .query_offset = 40};
  const Result whole = naive(p);
  Bound<double> x{p};
  Values o = poison(p.o_size), lse(static_cast<std::size_t>(p.lse_size), -kInfinity);
  Workspace workspace{attention_workspace(p.args.dims, sizeof(double))};
  x.args.workspace = workspace.data();
  for (const std::int64_t begin : {std::int64_t{0}, first}) {
    auto part = x.args;
    part.dims.kv_len = begin == 0 ? first : kv - first;
    part.k += begin * part.k_strides.token;
    part.v += begin * part.v_strides.token;
    part.mask.query_offset = 40 - begin;
    run([&] {
      attention(part);
      attention_merge<double>(
          {.dims = part.dims, .part_o = x.o.data(), .part_lse = x.lse.data(), .o = o.data(), .lse = lse.data()});
    });
  }
  CHECK(distance(o, whole.o) < 1e-14);
  CHECK(distance(lse, whole.lse) < 1e-14);
}
