// SPDX-License-Identifier: Apache-2.0
// Attention on the cuda device against the host in double.
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

AttentionShape shape(std::int64_t q, std::int64_t kv, std::int64_t dim) {
  return {.batch = 2, .heads = 4, .kv_heads = 2, .q = q, .kv = Extent{kv}, .qk_dim = dim, .v_dim = dim, .scale = 0.4};
}

Bindings at_context(std::int64_t tokens) {
  Bindings b;
  b[Symbol::Context] = tokens;
  return b;
}

}  // namespace

TEST_CASE("attention and its gradients, causal and not, with shared keys, windows, positions, documents and bounds",
          "[cuda]") {
  AttentionShape s = shape(5, 37, 12);
  const int kind = GENERATE(range(0, 9));
  INFO("case " << kind);
  s.causal = kind != 1;
  if (kind == 3 || kind == 8) s = shape(33, 33, 40);
  if (kind == 2 || kind > 3) s.window = 9;
  s.chunked = kind > 3 && kind < 6;
  if (kind == 6 || kind == 7) s.cap = 0.3;
  if (kind == 8) s.documents = 7;
  s.positions = kind == 2 || kind == 4;
  compare_with_host([&](OpTrial& t) {
    AttentionShape a = s;
    a.dtype = t.dtype();
    const std::int64_t kv = a.kv.base;
    const Shape queries{2, a.q, 4, a.qk_dim}, keys{2, kv, 2, a.qk_dim};
    const TensorId q = t.input("q", queries), k = t.input("k", keys), v = t.input("v", keys),
                   d_o = t.input("do", queries);
    const TensorId o = t.output("o", queries), lse = t.output("lse", Shape{2, 4, a.q});
    const TensorId dq = t.input("dq", queries), dk = t.output("dk", keys), dv = t.output("dv", keys);
    t.result(dq);
    if (a.positions) {
      std::vector<std::int32_t> at_q, at_kv;
      for (int i = 0; i < a.q; ++i) at_q.push_back(3 + 7 * i);
      for (int j = 0; j < kv; ++j) at_kv.push_back(j);
      const TensorId pq = t.indices("pq", Shape{a.q}, at_q), pk = t.indices("pk", Shape{kv}, at_kv);
      t.add(AttentionForward{a, true}, reads(q), reads(k), reads(v), reads(pq), reads(pk), writes(o), writes(lse));
      t.add(AttentionBackward{a}, reads(q), reads(k), reads(v), reads(pq), reads(pk), reads(o), reads(lse), reads(d_o),
            updates(dq), writes(dk), writes(dv));
    } else if (a.documents > 0) {
      std::vector<std::int32_t> first;  // documents of 5 and of 8 tokens
      for (int b = 0; b < 2; ++b)
        for (int i = 0; i < a.q; ++i) first.push_back(i / (5 + 3 * b) * (5 + 3 * b));
      const TensorId f = t.indices("first", Shape{2, a.q}, first);
      t.add(AttentionForward{a, true}, reads(q), reads(k), reads(v), reads(f), writes(o), writes(lse));
      t.add(AttentionBackward{a}, reads(q), reads(k), reads(v), reads(f), reads(o), reads(lse), reads(d_o), updates(dq),
            writes(dk), writes(dv));
    } else {
      t.add(AttentionForward{a, true}, reads(q), reads(k), reads(v), writes(o), writes(lse));
      t.add(AttentionBackward{a}, reads(q), reads(k), reads(v), reads(o), reads(lse), reads(d_o), updates(dq),
            writes(dk), writes(dv));
    }
  });
}

TEST_CASE("tiles of many queries go to the tensor cores, and so do their gradients", "[cuda]") {
  const std::int64_t dim = GENERATE(40, 64, 80, 96, 128);
  const bool causal = GENERATE(true, false);
  // One tile and several; more tiles than the ring has slots; queries that see no key, sequences side by side.
  const auto [batch, q, kv] =
      GENERATE(std::tuple{1, 70, 70}, std::tuple{1, 17, 261}, std::tuple{1, 133, 70}, std::tuple{2, 150, 40});
  if (dim % 64 != 0 && q != 133) return;  // what differs is what lies behind a head
  const bool adds = q == 70;
  compare_with_host(
      [&, batch = batch, q = q, kv = kv](OpTrial& t) {
        AttentionShape a{.batch = batch,
                         .heads = 2,
                         .kv_heads = 1,
                         .q = q,
                         .kv = Extent{kv},
                         .qk_dim = dim,
                         .v_dim = dim,
                         .causal = causal,
                         .scale = 0.2,
                         .dtype = t.dtype()};
        const TensorId x = t.input("q", Shape{batch, q, 2, dim}), k = t.input("k", Shape{batch, kv, 1, dim});
        const TensorId v = t.input("v", Shape{batch, kv, 1, dim});
        const TensorId d_o = t.input("do", Shape{batch, q, 2, dim}), o = t.output("o", Shape{batch, q, 2, dim});
        const TensorId lse = t.output("lse", Shape{batch, 2, q});
        const auto slope = [&](const char* name, const Shape& shape) {
          if (!adds) return writes(t.output(name, shape));
          const TensorId d = t.input(name, shape);
          t.result(d);
          return updates(d);
        };
        t.add(AttentionForward{a, true}, reads(x), reads(k), reads(v), writes(o), writes(lse));
        t.add(AttentionBackward{a}, reads(x), reads(k), reads(v), reads(o), reads(lse), reads(d_o),
              slope("dq", Shape{batch, q, 2, dim}), slope("dk", Shape{batch, kv, 1, dim}),
              slope("dv", Shape{batch, kv, 1, dim}));
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("one query over a cache shares the keys out, and joins what comes of them", "[cuda]") {
  compare_with_host(
      [&](OpTrial& t) {
        AttentionShape a = shape(1, 1, 16);
        a.kv = Extent{1, Symbol::Context};
        a.dtype = t.dtype();
        const TensorId q = t.input("q", Shape{2, 1, 4, 16}), k = t.input("k", Shape{2, 400, 2, 16});
        const TensorId v = t.input("v", Shape{2, 400, 2, 16});
        t.add(AttentionForward{a, false}, reads(q), reads(k), reads(v), writes(t.output("o", Shape{2, 1, 4, 16})));
      },
      at_context(299));
}

TEST_CASE("few queries of heads of all sizes share the keys that they have in common", "[cuda]") {
  struct Sizes {
    std::int64_t heads, kv_heads, q, kv, dim, v_dim, window;
  };
  // One, two, four and eight rows together; lanes of a key from 4 to 32, not all of them used; keys in shares.
  const Sizes z =
      GENERATE(Sizes{2, 2, 1, 300, 64, 64, 0}, Sizes{4, 2, 1, 290, 128, 128, 0}, Sizes{8, 2, 1, 270, 96, 96, 0},
               Sizes{8, 1, 1, 40, 128, 64, 9}, Sizes{2, 1, 5, 261, 32, 48, 0}, Sizes{2, 1, 9, 20, 64, 64, 4});
  compare_with_host([&](OpTrial& t) {
    AttentionShape a{.batch = 2,
                     .heads = z.heads,
                     .kv_heads = z.kv_heads,
                     .q = z.q,
                     .kv = Extent{z.kv},
                     .qk_dim = z.dim,
                     .v_dim = z.v_dim,
                     .window = z.window,
                     .scale = 0.15,
                     .dtype = t.dtype()};
    const TensorId q = t.input("q", Shape{2, z.q, z.heads, z.dim}), k = t.input("k", Shape{2, z.kv, z.kv_heads, z.dim}),
                   v = t.input("v", Shape{2, z.kv, z.kv_heads, z.v_dim});
    t.add(AttentionForward{a, true}, reads(q), reads(k), reads(v),
          writes(t.output("o", Shape{2, z.q, z.heads, z.v_dim})), writes(t.output("lse", Shape{2, z.heads, z.q})));
  });
}

TEST_CASE("biases and masks of groups are added to scores", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    AttentionShape a = shape(6, 7, 8);
    a.causal = false;
    a.bias = true;
    a.mask_groups = 2;
    a.dtype = t.dtype();
    const TensorId q = t.input("q", Shape{2, 6, 4, 8}), k = t.input("k", Shape{2, 7, 2, 8}),
                   v = t.input("v", Shape{2, 7, 2, 8});
    const TensorId bias = t.input("bias", Shape{4, 6, 7}, -2, 2), mask = t.input("mask", Shape{2, 6, 7}, -2, 2);
    t.add(AttentionForward{a, false}, reads(q), reads(k), reads(v), reads(bias), reads(mask),
          writes(t.output("o", Shape{2, 6, 4, 8})));
  });
}

TEST_CASE("attention over disjoint keys is merged", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const Shape out{2, 3, 2, 5}, sums{2, 2, 3};
    const TensorId fresh = t.input("fresh", out), fresh_lse = t.input("fresh lse", sums), o = t.input("o", out);
    const TensorId lse = t.input("lse", sums);
    t.result(o);
    t.result(lse);
    t.add(MergeAttention{.rows = 6, .heads = 2, .dim = 5, .dtype = t.dtype()}, reads(fresh), reads(fresh_lse),
          updates(o), updates(lse));
  });
}
