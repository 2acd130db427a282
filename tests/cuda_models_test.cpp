// SPDX-License-Identifier: Apache-2.0
// Ops of speculation, vision, recommendation and serving on the cuda device against the host in double.
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("rows of token trees see their ancestors", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId parents = t.indices("parents", Shape{2, 5}, {-1, 0, 0, 1, 3, -1, 0, 1, 1, -1});
    t.add(TreeMask{2, 3, 5, t.dtype()}, reads(parents), writes(t.output("mask", Shape{2, 3, 5})));
  });
}

TEST_CASE("attention behind contexts of unequal length, with and without a token tree", "[cuda]") {
  const std::int64_t tree = GENERATE(0, 4);
  compare_with_host([&](OpTrial& t) {
    AttentionShape a{.batch = 3,
                     .heads = 4,
                     .kv_heads = 2,
                     .q = 3,
                     .kv = Extent{4},
                     .qk_dim = 12,
                     .v_dim = 12,
                     .scale = 0.3,
                     .contexts = true,
                     .tree = tree,
                     .dtype = t.dtype()};
    a.causal = tree == 0;
    const TensorId q = t.input("q", Shape{3, 3, 4, 12}), k = t.input("k", Shape{3, 40, 2, 12});
    const TensorId v = t.input("v", Shape{3, 40, 2, 12}), lengths = t.indices("contexts", Shape{3}, {7, 36, 0});
    const TensorId o = t.output("o", Shape{3, 3, 4, 12});
    if (tree > 0)
      t.add(AttentionForward{a, false}, reads(q), reads(k), reads(v), reads(lengths),
            reads(t.input("mask", Shape{3, 3, 4}, -3, 0)), writes(o));
    else
      t.add(AttentionForward{a, false}, reads(q), reads(k), reads(v), reads(lengths), writes(o));
  });
}

TEST_CASE("a context that a cache has no room for is an error of its op", "[cuda]") {
  OpTrial t{DType::F32, DType::F32};
  const AttentionShape a{.batch = 1, .q = 1, .kv = Extent{1}, .qk_dim = 4, .v_dim = 4, .contexts = true};
  const TensorId q = t.input("q", Shape{1, 1, 1, 4}), k = t.input("k", Shape{1, 8, 1, 4});
  const TensorId v = t.input("v", Shape{1, 8, 1, 4}), lengths = t.indices("contexts", Shape{1}, {8});
  t.add(AttentionForward{a, false}, reads(q), reads(k), reads(v), reads(lengths),
        writes(t.output("o", Shape{1, 1, 1, 4})));
  const auto device = make_gpu_executor(gpu_under_test());
  CHECK_THROWS_WITH(t.run(*device, gpu_workspaces(), {}), "op 0 'op': an index of 8 where 8 is the end");
}

TEST_CASE("gradients of biases are summed over the batch", "[cuda]") {
  const bool adds = GENERATE(false, true);
  compare_with_host([&](OpTrial& t) {
    const AttentionShape a{.batch = 2,
                           .heads = 2,
                           .kv_heads = 2,
                           .q = 5,
                           .kv = Extent{35},
                           .qk_dim = 8,
                           .v_dim = 8,
                           .causal = false,
                           .scale = 0.4,
                           .bias = true,
                           .dtype = t.dtype()};
    const Shape queries{2, 5, 2, 8}, keys{2, 35, 2, 8}, scores{2, 5, 35};
    const TensorId q = t.input("q", queries), k = t.input("k", keys), v = t.input("v", keys);
    const TensorId bias = t.input("bias", scores), d_o = t.input("do", queries), o = t.output("o", queries);
    const TensorId lse = t.output("lse", Shape{2, 2, 5}), dq = t.output("dq", queries), dk = t.output("dk", keys);
    const TensorId dv = t.output("dv", keys), dbias = adds ? t.input("dbias", scores) : t.output("dbias", scores);
    if (adds) t.result(dbias);
    t.add(AttentionForward{a, true}, reads(q), reads(k), reads(v), reads(bias), writes(o), writes(lse));
    t.add(AttentionBackward{a}, reads(q), reads(k), reads(v), reads(bias), reads(o), reads(lse), reads(d_o), writes(dq),
          writes(dk), writes(dv), adds ? updates(dbias) : writes(dbias));
  });
}

TEST_CASE("paged attention over new rows of several sequences", "[cuda]") {
  const std::int64_t window = GENERATE(0, 5, 2);
  compare_with_host([&](OpTrial& t) {
    const PagedAttention a{.rows = 9,
                           .sequences = 4,
                           .heads = 4,
                           .kv_heads = 2,
                           .qk_dim = 12,
                           .v_dim = 12,
                           .page = 4,
                           .max_pages = 3,
                           .window = window,
                           .chunked = window == 2,
                           .scale = 0.3,
                           .cap = window == 5 ? 0.2 : 0,
                           .dtype = t.dtype(),
                           .stored = t.dtype()};
    const TensorId q = t.input("q", Shape{9, 4, 12}), k = t.input("k", Shape{40, 2, 12});
    const TensorId v = t.input("v", Shape{40, 2, 12});
    const TensorId table = t.indices("table", Shape{4, 3}, {7, 2, 0, 5, 0, 0, 9, 1, 4, 3, 0, 0});
    // A prompt of 4 rows, a decoding one, one without rows, and one of 2; two rows belong to nobody.
    const TensorId starts = t.indices("starts", Shape{5}, {0, 4, 5, 5, 7});
    const TensorId lengths = t.indices("lengths", Shape{4}, {7, 3, 0, 2});
    t.add(a, reads(q), reads(k), reads(v), reads(table), reads(starts), reads(lengths),
          writes(t.output("o", Shape{9, 4, 12})));
  });
}

TEST_CASE("rows go to slots of a table, and behind the contexts of caches", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{5, 7}), table = t.input("table", Shape{6, 7});
    const TensorId rows = t.input("rows", Shape{2, 3, 4}), cache = t.input("cache", Shape{2, 9, 4});
    t.result(table);
    t.result(cache);
    t.add(ScatterRows{5, 7, 6, t.dtype()}, reads(x), reads(t.indices("index", Shape{5}, {3, -1, 0, 3, 5})),
          updates(table));
    t.add(
        AppendCache{
            .batch = 2, .rows = 3, .cols = 4, .capacity = 9, .at = Extent{1}, .contexts = true, .dtype = t.dtype()},
        reads(rows), reads(t.indices("contexts", Shape{2}, {5, 0})), updates(cache));
  });
}

TEST_CASE("of many rows that go to one slot the last one stays, over blocks and digits of the sort", "[cuda]") {
  // 2500 rows are two blocks of 2048, 700 slots two digits; every eighth row goes nowhere, 300 rows go to one slot.
  // Rows of x and of the table lie apart.
  std::vector<std::int32_t> slots;
  for (int r = 0; r < 2500; ++r) slots.push_back(r % 8 == 3 ? -1 : r < 300 ? 11 : r * 131 % 700);
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{2500, 9}), table = t.input("table", Shape{700, 8});
    const auto part = [&](TensorId whole, std::int64_t rows, std::int64_t stride) {
      return t.builder().view(whole, "part", Layout{.shape = Shape{rows, 5}, .strides = {stride, 1}, .offset = 2});
    };
    t.result(table);
    t.add(ScatterRows{2500, 5, 700, t.dtype()}, reads(part(x, 2500, 9)), reads(t.indices("slots", Shape{2500}, slots)),
          updates(part(table, 700, 8)));
  });
}

TEST_CASE("a slot that a table does not have is an error, of few rows and of many", "[cuda]") {
  const std::int64_t rows = GENERATE(3, 600);
  OpTrial t{DType::F32, DType::F32};
  std::vector<std::int32_t> slots(static_cast<std::size_t>(rows), 1);
  slots[1] = 6;
  t.add(ScatterRows{rows, 2, 6, t.dtype()}, reads(t.input("x", Shape{rows, 2})),
        reads(t.indices("slots", Shape{rows}, slots)), updates(t.input("table", Shape{6, 2})));
  const auto device = make_gpu_executor(gpu_under_test());
  CHECK_THROWS_WITH(t.run(*device, gpu_workspaces(), {}), "op 0 'op': an index of 6 where 6 is the end");
}

TEST_CASE("rotary positions that an operand gives", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId c = t.input("cos", Shape{16, 4}), s = t.input("sin", Shape{16, 4}), x = t.input("x", Shape{3, 2, 8});
    t.result(x);
    t.add(RotaryEmbedding{.rows = 3, .heads = 2, .head_dim = 8, .rot_dim = 8, .positions = true, .dtype = t.dtype()},
          reads(c), reads(s), reads(t.indices("positions", Shape{3}, {15, 0, 6})), updates(x));
  });
}

TEST_CASE("candidates are the most likely tokens, or drawn without replacement", "[cuda]") {
  const bool drawn = GENERATE(false, true);
  compare_with_host([&](OpTrial& t) {
    const DraftCandidates d{.rows = 3,
                            .vocab = 301,
                            .k = 4,
                            .temperature = 0.7,
                            .drawn = drawn,
                            .seed = 3,
                            .step = Extent{2},
                            .dtype = t.dtype()};
    const TensorId logits = t.input("logits", Shape{3, 301}, -4, 4);
    const TensorId tokens = t.typed_output("tokens", Shape{3, 4}, DType::I32), p = t.output("p", Shape{3, 4});
    if (drawn)
      t.add(d, reads(logits), writes(tokens), writes(p), writes(t.output("distribution", Shape{3, 301})));
    else
      t.add(d, reads(logits), writes(tokens), writes(p));
  });
}

TEST_CASE("trees of drafted tokens are walked as on the host, by each rule", "[cuda]") {
  const auto rule = GENERATE(AcceptanceRule::Greedy, AcceptanceRule::Rejection, AcceptanceRule::Typical);
  const bool drafts = rule == AcceptanceRule::Rejection && GENERATE(false, true);
  const std::int64_t seed = GENERATE(range(1, 6));
  compare_with_host(
      [&](OpTrial& t) {
        constexpr std::int64_t kVocab = 6, kNodes = 7;
        const AcceptTree a{.batch = 2,
                           .nodes = kNodes,
                           .depth = 3,
                           .vocab = kVocab,
                           .rule = rule,
                           .temperature = 1.3,
                           .epsilon = 0.2,
                           .delta = 0.6,
                           .drafts = drafts,
                           .seed = seed,
                           .dtype = t.dtype()};
        const TensorId logits = t.input("logits", Shape{2, kNodes, kVocab}, -1, 1);
        const TensorId tokens = t.indices("tokens", Shape{2, kNodes}, {0, 1, 4, 3, 2, 5, 0, 0, 5, 3, 1, 4, 2, 1});
        const TensorId parents = t.indices("parents", Shape{2, kNodes}, {-1, 0, 0, 1, 1, 3, -5, -1, 0, 0, 0, 1, 2, 4});
        const TensorId path = t.typed_output("path", Shape{2, 4}, DType::I32);
        const TensorId next = t.typed_output("next", Shape{2}, DType::I32);
        const auto rows = [&] {
          return t.indices("rows", Shape{2, kNodes}, {-1, 0, 0, 1, 1, -1, 0, -1, 0, 0, 0, 1, -1, 0});
        };
        const auto distributions = [&] {
          return t.numbers("drafts", Shape{2, kVocab}, std::vector<double>(2 * kVocab, 1.0 / kVocab), t.dtype());
        };
        if (drafts)
          t.add(a, reads(logits), reads(tokens), reads(parents), reads(distributions()), reads(rows()), writes(path),
                writes(next));
        else
          t.add(a, reads(logits), reads(tokens), reads(parents), writes(path), writes(next));
      },
      {}, {DType::F32});
}

TEST_CASE("accepted rows of caches move to where their tokens stand", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId cache = t.input("cache", Shape{2, 2, 12, 5});
    t.result(cache);
    t.add(CompactCache{2, 2, 3, 5, 12, t.dtype()}, reads(t.indices("lengths", Shape{2}, {4, 0})),
          reads(t.indices("path", Shape{2, 4}, {0, 2, 5, -1, 0, 1, 3, 6})), updates(cache));
  });
}

TEST_CASE("patches, prefixes and means", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId image = t.input("image", Shape{2, 3, 6, 6}), x = t.input("x", Shape{2, 4, 5});
    const TensorId prefix = t.input("prefix", Shape{5}), dy = t.input("dy", Shape{2, 5, 5}),
                   d = t.input("d", Shape{2, 5});
    const TensorId sum = t.input("sum", Shape{5});
    t.result(sum);
    t.add(Patchify{2, 3, 6, 2, t.dtype()}, reads(image), writes(t.output("rows", Shape{18, 12})));
    t.add(ConcatPrefix{2, 4, 5, t.dtype()}, reads(x), reads(prefix), writes(t.output("longer", Shape{2, 5, 5})));
    t.add(ConcatPrefixBackward{2, 4, 5, false, t.dtype()}, reads(dy), writes(t.output("dx", Shape{2, 4, 5})),
          writes(t.output("dprefix", Shape{5})));
    t.add(ConcatPrefixBackward{2, 4, 5, true, t.dtype()}, reads(dy), writes(t.output("again", Shape{2, 4, 5})),
          updates(sum));
    t.add(MeanPool{2, 4, 5, t.dtype()}, reads(x), writes(t.output("mean", Shape{2, 5})));
    t.add(MeanPoolBackward{2, 4, 5, t.dtype()}, reads(d), writes(t.output("dmean", Shape{2, 4, 5})));
  });
}

TEST_CASE("biases by relative position and their gradients", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    std::vector<std::int32_t> buckets;
    for (int i = 0; i < 6 * 25; ++i) buckets.push_back(i * 7 % 9);
    const TensorId table = t.input("table", Shape{9, 3}), index = t.indices("index", Shape{6, 25}, buckets);
    const TensorId dbias = t.input("dbias", Shape{3, 6, 25}), dtable = t.input("dtable", Shape{9, 3});
    t.result(dtable);
    t.add(RelativeBiasForward{.heads = 3, .q = 6, .buckets = 9, .kv = Extent{25}, .dtype = t.dtype()}, reads(table),
          reads(index), writes(t.output("bias", Shape{3, 6, 25})));
    t.add(RelativeBiasBackward{.heads = 3, .q = 6, .kv = 25, .buckets = 9, .dtype = t.dtype()}, reads(index),
          reads(dbias), updates(dtable));
  });
}

TEST_CASE("bags of rows, products of features and the loss of a click", "[cuda]") {
  const bool mean = GENERATE(false, true);
  compare_with_host([&](OpTrial& t) {
    const TensorId table = t.input("table", Shape{6, 5}),
                   index = t.indices("index", Shape{8}, {3, 0, 3, 5, 1, 3, 3, 0});
    const TensorId offsets = t.indices("offsets", Shape{5}, {0, 3, 3, 7, 8}), dout = t.input("dout", Shape{4, 5});
    const TensorId dtable = t.input("dtable", Shape{6, 5}), x = t.input("x", Shape{3, 4, 7});
    const TensorId dpairs = t.input("dpairs", Shape{3, 13}), logits = t.input("logits", Shape{6}, -3, 3);
    const TensorId clicks = t.indices("clicks", Shape{6}, {1, 0, 0, 1, 1, 0}), loss = t.input("loss", Shape{1});
    t.result(dtable);
    t.result(loss);
    t.add(EmbeddingBagForward{4, 8, 5, 6, mean, t.dtype()}, reads(table), reads(index), reads(offsets),
          writes(t.output("out", Shape{4, 5})));
    t.add(EmbeddingBagBackward{4, 8, 5, 6, mean, t.dtype()}, reads(dout), reads(index), reads(offsets),
          updates(dtable));
    t.add(DotInteractionForward{3, 4, 7, t.dtype()}, reads(x), writes(t.output("pairs", Shape{3, 13})));
    t.add(DotInteractionBackward{3, 4, 7, t.dtype()}, reads(x), reads(dpairs), writes(t.output("dx", Shape{3, 4, 7})));
    t.add(BinaryCrossEntropyForward{6, 0.25, t.dtype()}, reads(logits), reads(clicks), updates(loss));
    t.add(BinaryCrossEntropyBackward{6, 0.25, t.dtype()}, reads(logits), reads(clicks),
          writes(t.output("dlogits", Shape{6})));
  });
}

TEST_CASE("covariances of points with a history are those of the host, over all or some columns", "[cuda]") {
  for (const CovarianceKind kind :
       {CovarianceKind::Matern52, CovarianceKind::Matern32, CovarianceKind::SquaredExponential})
    compare_with_host(
        [&](OpTrial& t) {
          const TensorId a = t.input("a", Shape{2, 300}), h = t.input("h", Shape{5, 300});
          const TensorId some = t.indices("some", Shape{4}, {299, 0, 7, 150});
          Covariance c{.kind = kind, .points = 2, .history = 5, .columns = 300, .length = 9, .known = 3};
          c.dtype = t.dtype();
          t.add(c, reads(a), reads(h), writes(t.output("k", Shape{2, 5})));
          c.used = 4, c.known = 8;
          t.add(c, reads(a), reads(h), reads(some), writes(t.output("k of some", Shape{2, 5})));
          c.points = 5, c.used = 0, c.known = 4, c.own = true, c.noise = 0.25;
          t.add(c, reads(h), writes(t.output("own", Shape{5, 5})));
        },
        {}, {DType::F32});
}

TEST_CASE("small positive matrices are factored, and refused when they are not", "[cuda]") {
  const auto describe = [](OpTrial& t, double corner) {
    const TensorId a = t.numbers("a", Shape{3, 3}, {4, 2, 1, 2, 5, 3, 1, 3, corner}, t.dtype());
    const TensorId l = t.output("l", Shape{3, 3});
    t.add(Cholesky{3, t.dtype()}, reads(a), writes(l));
    t.add(CholeskySolve{3, 5, t.dtype()}, reads(l), reads(t.input("b", Shape{3, 5})),
          writes(t.output("x", Shape{3, 5})));
  };
  compare_with_host([&](OpTrial& t) { describe(t, 6); }, {}, {DType::F32});
  OpTrial singular{DType::F32, DType::F32};
  describe(singular, -6);
  const auto device = make_gpu_executor(gpu_under_test());
  CHECK_THROWS_WITH(singular.run(*device, gpu_workspaces(), {}),
                    "op 0 'op': a matrix of 3 rows is not positive definite at row 2");
}
