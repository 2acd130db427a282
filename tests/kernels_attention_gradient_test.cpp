// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "kernels/host/attention.hpp"
#include "tests/kernels_testing.hpp"

using namespace orrery::kernels;
using namespace orrery::kernels::testing;

namespace {

using Ids = std::vector<std::int32_t>;

struct Options {
  AttentionDims dims;
  AttentionMask<double> mask = {};
  AttentionLayout layout = {};
  bool bias = false;
  double cap = 0;
  std::int64_t q_tokens = 0, kv_tokens = 0;  // over the whole batch, if packed
};

/// Values and gradients of one attention; the loss is Σ w·o with random w.
struct Problem {
  Options s;
  Values q, k, v, bias, w, dq, dk, dv, dbias;

  Problem(const Options& options, unsigned seed) : s{options} {
    const auto& d = s.dims;
    const std::int64_t qn = s.q_tokens ? s.q_tokens : d.batch * d.q_len;
    const std::int64_t kn = s.kv_tokens ? s.kv_tokens : d.batch * d.kv_len;
    q = random_values(qn * d.heads * d.qk_dim, seed);
    k = random_values(kn * d.kv_heads * d.qk_dim, seed + 1);
    v = random_values(kn * d.kv_heads * d.v_dim, seed + 2);
    w = random_values(qn * d.heads * d.v_dim, seed + 3);
    if (s.bias) bias = random_values(d.heads * d.q_len * d.kv_len, seed + 4);
  }
};

template <class T>
struct Bound {
  std::vector<T> q, k, v, bias, w, o, lse, dq, dk, dv, dbias;
  AttentionArgs<T> args;
  AttentionBackwardArgs<T> backward;

  explicit Bound(const Problem& p)
      : q{as<T>(p.q)},
        k{as<T>(p.k)},
        v{as<T>(p.v)},
        bias{as<T>(p.bias)},
        w{as<T>(p.w)},
        o{poison<T>(std::ssize(w))},
        lse{poison<T>(std::ssize(q) / p.s.dims.qk_dim)},
        dq{poison<T>(std::ssize(q))},
        dk{poison<T>(std::ssize(k))},
        dv{poison<T>(std::ssize(v))},
        dbias{poison<T>(std::ssize(bias))} {
    const auto& d = p.s.dims;
    const auto& m = p.s.mask;
    args = {.dims = d,
            .scale = T(0.4),
            .cap = T(p.s.cap),
            .q = q.data(),
            .q_strides = contiguous(d.q_len, d.heads, d.qk_dim),
            .k = k.data(),
            .k_strides = contiguous(d.kv_len, d.kv_heads, d.qk_dim),
            .v = v.data(),
            .v_strides = contiguous(d.kv_len, d.kv_heads, d.v_dim),
            .o = o.data(),
            .o_strides = contiguous(d.q_len, d.heads, d.v_dim),
            .lse = lse.data(),
            .mask = {.causal = m.causal,
                     .window = m.window,
                     .chunked = m.chunked,
                     .query_offset = m.query_offset,
                     .bias = p.s.bias ? bias.data() : nullptr},
            .layout = p.s.layout};
    backward = {.forward = args,
                .d_o = w.data(),
                .d_o_strides = args.o_strides,
                .dq = dq.data(),
                .dq_strides = args.q_strides,
                .dk = dk.data(),
                .dk_strides = args.k_strides,
                .dv = dv.data(),
                .dv_strides = args.v_strides,
                .dbias = p.s.bias ? dbias.data() : nullptr};
  }

  void run_both() {
    Workspace forward_space{attention_workspace(args.dims, sizeof(T))};
    Workspace backward_space{attention_backward_workspace(args.dims, sizeof(T))};
    args.workspace = forward_space.data();
    backward.workspace = backward_space.data();
    run([&] {
      attention(args);
      attention_backward(backward);
    });
    CHECK(forward_space.intact());
    CHECK(backward_space.intact());
  }
};

/// Σ w·o for changed inputs.
double loss(const Problem& p) {
  Bound<double> x{p};
  Workspace workspace{attention_workspace(p.s.dims, sizeof(double))};
  x.args.workspace = workspace.data();
  attention(x.args);
  return dot(x.o, p.w);
}

/// Compares a sample of the entries of a gradient with differences of the loss in `x`.
void check_sample(const Problem& p, Values& x, const Values& gradient) {
  Values expected, got;
  const std::size_t step = std::max<std::size_t>(1, x.size() / 60);
  for (std::size_t i = 0; i < x.size(); i += step) {
    const double kept = x[i], h = 1e-5;
    x[i] = kept + h;
    const double above = loss(p);
    x[i] = kept - h;
    expected.push_back((above - loss(p)) / (2 * h));
    x[i] = kept;
    got.push_back(gradient[i]);
  }
  CHECK(distance(got, expected) < 1e-7);
}

void check(const Options& options, unsigned seed) {
  INFO("seed " << seed << " q " << options.dims.q_len << " kv " << options.dims.kv_len);
  Problem p{options, seed};
  Bound<double> x{p};
  x.run_both();
  check_sample(p, p.q, x.dq);
  check_sample(p, p.k, x.dk);
  check_sample(p, p.v, x.dv);
  if (options.bias) check_sample(p, p.bias, x.dbias);
  Bound<float> y{p};
  y.run_both();
  CHECK(distance(y.dq, x.dq) < 1e-5);
  CHECK(distance(y.dk, x.dk) < 1e-5);
  CHECK(distance(y.dv, x.dv) < 1e-5);
  CHECK(distance(y.dbias, x.dbias) < 1e-5);
}

}  // namespace

TEST_CASE("gradients of attention equal differences for odd sizes, groups of heads and differing head sizes",
          "[kernels]") {
  check({.dims = {.batch = 2, .q_len = 5, .kv_len = 7, .heads = 4, .kv_heads = 2, .qk_dim = 9, .v_dim = 6}}, 1);
  check({.dims = {.batch = 1, .q_len = 67, .kv_len = 131, .heads = 2, .kv_heads = 1, .qk_dim = 12, .v_dim = 35}}, 2);
}

TEST_CASE("gradients of causal, windowed and shifted attention equal differences", "[kernels]") {
  const AttentionDims d{.batch = 1, .q_len = 70, .kv_len = 140, .heads = 2, .kv_heads = 2, .qk_dim = 8, .v_dim = 8};
  check({.dims = d, .mask = {.causal = true}}, 3);
  check({.dims = d, .mask = {.causal = true, .window = 33}}, 4);
  check({.dims = d, .mask = {.causal = true, .window = 33, .chunked = true}}, 6);
  check({.dims = d, .mask = {.causal = true, .query_offset = -20}}, 5);
}

TEST_CASE("gradients through bounded scores equal differences", "[kernels]") {
  const AttentionDims d{.batch = 1, .q_len = 70, .kv_len = 140, .heads = 4, .kv_heads = 2, .qk_dim = 8, .v_dim = 8};
  check({.dims = d, .mask = {.causal = true}, .cap = 0.3}, 8);
  check({.dims = d, .mask = {.causal = true, .window = 33}, .cap = 1}, 9);
}

TEST_CASE("the gradient of an attention bias equals differences and sums over the batch", "[kernels]") {
  check(
      {.dims = {.batch = 3, .q_len = 6, .kv_len = 9, .heads = 2, .kv_heads = 2, .qk_dim = 4, .v_dim = 4}, .bias = true},
      6);
}

TEST_CASE("gradients of packed sequences equal differences", "[kernels]") {
  const Ids cu_q{0, 9, 9, 20}, cu_kv{0, 12, 15, 26};
  check({.dims = {.batch = 3, .q_len = 11, .kv_len = 12, .heads = 2, .kv_heads = 2, .qk_dim = 6, .v_dim = 6},
         .mask = {.causal = true},
         .layout = {.cu_q = cu_q.data(), .cu_kv = cu_kv.data()},
         .q_tokens = 20,
         .kv_tokens = 26},
        7);
}

TEST_CASE("attention gradients accumulate when asked to", "[kernels]") {
  Problem p{{.dims = {.batch = 1, .q_len = 10, .kv_len = 20, .heads = 2, .kv_heads = 1, .qk_dim = 8, .v_dim = 8}}, 8};
  Bound<double> once{p}, twice{p};
  once.run_both();
  twice.run_both();
  twice.backward.write_dq = twice.backward.write_dk = twice.backward.write_dv = Write::Accumulate;
  twice.run_both();
  for (auto* x : {&once.dq, &once.dk, &once.dv})
    for (double& g : *x) g *= 2;
  CHECK(distance(twice.dq, once.dq) < 1e-15);
  CHECK(distance(twice.dk, once.dk) < 1e-15);
  CHECK(distance(twice.dv, once.dv) < 1e-15);
}
