// SPDX-License-Identifier: Apache-2.0
// The op kinds of sharded networks through the host executor: the pieces, put together, equal the op they are pieces
// of.
#include <catch2/catch.hpp>
#include <optional>
#include <string>

#include "tests/runtime_support.hpp"

using namespace orrery;

namespace {

constexpr double kTight = 1e-12;
constexpr DType kType = DType::F64;
using List = std::vector<double>;

/// Columns [first, first + cols) of x[rows, width].
TensorId columns(HostTrial& t, TensorId x, std::string_view name, std::int64_t first, std::int64_t cols) {
  const Shape whole = t.builder().plan().shape(x);
  return t.builder().view(x, name, Layout{.shape = Shape{whole[0], cols}, .strides = {whole[1], 1}, .offset = first});
}

List part(const List& x, std::size_t first, std::size_t count) {
  return {x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(first + count)};
}

}  // namespace

TEST_CASE("local indices gather and scatter in the rows of a shard and leave others alone", "[runtime]") {
  HostTrial t;
  const TensorId index = t.indices("index", Shape{5}, {7, 4, -100, 3, 6}), first = t.indices("first", Shape{1}, {4}),
                 local = t.output("local", Shape{5}, DType::I32), table = t.input("table", Shape{3, 2}),
                 rows = t.output("rows", Shape{5, 2}), grad = t.input("grad", Shape{3, 2}, List(6, 0.0));
  t.add(LocalIndices{.rows = 5, .classes = 3}, reads(index), reads(first), writes(local));
  t.add(Gather{.rows = 5, .cols = 2, .table_rows = 3, .first = 0, .last = 3, .dtype = kType}, reads(table),
        reads(local), writes(rows));
  t.add(ScatterAdd{.rows = 5, .cols = 2, .table_rows = 3, .first = 0, .last = 3, .dtype = kType}, reads(rows),
        reads(local), updates(grad));
  t.run();
  CHECK(t.result(local) == List{-1, 0, -100, -1, 2});
  const List& e = t.given(table);
  CHECK(t.result(rows) == List{0, 0, e[0], e[1], 0, 0, 0, 0, e[4], e[5]});
  CHECK(t.result(grad) == List{e[0], e[1], 0, 0, e[4], e[5]});
}

TEST_CASE("a loss op by op equals the loss in one", "[runtime]") {
  // 37 classes, of which the target of one row lies on another shard; the last row is ignored.
  HostTrial t;
  const Shape matrix{5, 37}, row{5};
  const TensorId x = t.input("x", matrix, -3, 3), steps = t.output("steps", matrix), dx = t.output("dx", matrix),
                 targets = t.indices("targets", row, {4, 36, 0, -1, -100});
  const TensorId max = t.output("max", row), sums = t.output("sums", Shape{2, 5}), lse = t.output("lse", row),
                 want_sums = t.output("want_sums", Shape{2, 5}), loss = t.input("loss", Shape{1}, List{1.0});
  t.add(CopyRows{.rows = 5, .cols = 37, .dtype = kType}, reads(x), writes(steps));
  t.add(RowMax{.rows = 5, .cols = 37, .dtype = kType}, reads(x), writes(max));
  t.add(CrossEntropySums{.rows = 5, .classes = 37, .dtype = kType}, reads(x), reads(targets), reads(max),
        writes(want_sums));
  t.add(CrossEntropySums{.rows = 5, .classes = 37, .dtype = kType, .op_by_op = true}, updates(steps), reads(targets),
        reads(max), writes(sums));
  t.add(CrossEntropyFinish{.rows = 5, .weight = 0.5, .dtype = kType}, reads(targets), reads(max), reads(sums),
        writes(lse), updates(loss));
  t.add(CrossEntropyBackward{.rows = 5, .classes = 37, .weight = 0.5, .dtype = kType}, reads(x), reads(targets),
        reads(lse), writes(dx));
  t.add(CrossEntropyBackward{.rows = 5, .classes = 37, .weight = 0.5, .dtype = kType, .op_by_op = true}, updates(steps),
        reads(targets), reads(sums));
  t.run();
  CHECK(distance(t.result(sums), t.result(want_sums)) < kTight);
  CHECK(distance(t.result(steps), t.result(dx)) < kTight);
}

TEST_CASE("a loss in pieces over a padded shard equals the loss over its classes", "[runtime]") {
  // 5 classes in a shard of 6 columns; the last row is ignored.
  HostTrial t;
  const TensorId x = t.input("x", Shape{3, 5}, -3, 3), wide = t.output("wide", Shape{3, 6}),
                 targets = t.indices("targets", Shape{3}, {4, 0, -100}), zero = t.indices("zero", Shape{1}, {0});
  const TensorId max = t.output("max", Shape{3}), sums = t.output("sums", Shape{2, 3}), lse = t.output("lse", Shape{3}),
                 loss = t.input("loss", Shape{1}, List{1.0}), whole_lse = t.output("whole_lse", Shape{3}),
                 whole = t.input("whole", Shape{1}, List{1.0}), dx = t.output("dx", Shape{3, 5});
  t.add(Fill{.elements = 18, .value = 9, .dtype = kType}, writes(wide));
  t.add(CopyRows{.rows = 3, .cols = 5, .dtype = kType}, reads(x), updates(columns(t, wide, "five", 0, 5)));
  t.add(MaskColumns{.rows = 3, .cols = 6, .total = 5, .dtype = kType}, reads(zero), updates(wide));
  t.add(RowMax{.rows = 3, .cols = 6, .dtype = kType}, reads(wide), writes(max));
  t.add(CrossEntropySums{.rows = 3, .classes = 6, .dtype = kType}, reads(wide), reads(targets), reads(max),
        writes(sums));
  t.add(CrossEntropyFinish{.rows = 3, .weight = 0.5, .dtype = kType}, reads(targets), reads(max), reads(sums),
        writes(lse), updates(loss));
  t.add(CrossEntropyBackward{.rows = 3, .classes = 6, .weight = 0.5, .dtype = kType}, updates(wide), reads(targets),
        reads(lse));
  t.add(CrossEntropyForward{.rows = 3, .classes = 5, .weight = 0.5, .dtype = kType}, reads(x), reads(targets),
        writes(whole_lse), updates(whole));
  t.add(CrossEntropyBackward{.rows = 3, .classes = 5, .weight = 0.5, .dtype = kType}, reads(x), reads(targets),
        reads(whole_lse), writes(dx));
  t.run();
  CHECK(distance(t.result(lse), t.result(whole_lse)) < kTight);
  CHECK(distance(t.result(loss), t.result(whole)) < kTight);
  const List got = t.result(wide), want = t.result(dx);
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(distance(part(got, 6 * r, 5), part(want, 5 * r, 5)) < kTight);
    CHECK(got[6 * r + 5] == 0);
  }
}

namespace {

/// A norm of [3, 8] with its gradients, as a whole or in two pieces of four columns; RMS norm lacks some operands.
struct NormTrial {
  HostTrial& t;
  NormKind kind;
  TensorId x, dy, w, b;

  TensorId out(std::initializer_list<std::int64_t> shape) {
    return t.output("out" + std::to_string(t.builder().plan().tensors.size()), Shape(shape));
  }
  TensorId y = out({3, 8}), mean = out({3}), rstd = out({3}), dx = out({3, 8}), dw = out({8}), db = out({8});

  std::optional<Operand> layer(Operand o) const { return kind == NormKind::Layer ? std::optional{o} : std::nullopt; }
  void add(const Work& work, std::initializer_list<std::optional<Operand>> operands) {
    std::vector<Operand> present;
    for (const auto& o : operands)
      if (o) present.push_back(*o);
    t.builder().add("op", work, present);
  }
  void whole() {
    add(NormForward{.kind = kind, .rows = 3, .dim = 8, .epsilon = 1e-3, .dtype = kType},
        {reads(x), reads(w), layer(reads(b)), writes(y), layer(writes(mean)), writes(rstd)});
    add(NormBackward{.kind = kind, .rows = 3, .dim = 8, .epsilon = 1e-3, .dtype = kType},
        {reads(x), reads(w), layer(reads(mean)), reads(rstd), reads(dy), writes(dx), writes(dw), layer(writes(db))});
  }
  TensorId half(TensorId of, int r) { return columns(t, of, "half", 4 * r, 4); }
  TensorId half_row(TensorId of, int r) {
    return t.builder().view(of, "half", Layout{.shape = Shape{4}, .strides = {1}, .offset = 4 * r});
  }
  void pieces() {
    const TensorId sums = out({2, 3}), back = out({2, 3}), other = out({2, 3});
    for (const int r : {0, 1}) t.add(NormSums{kind, 3, 4, kType}, reads(half(x, r)), writes(r == 0 ? sums : other));
    t.add(Add{2, 3, kType}, updates(sums), reads(other));
    for (const int r : {0, 1})
      add(NormApply{kind, 3, 4, 8, 1e-3, kType},
          {reads(half(x, r)), reads(sums), reads(half_row(w, r)), layer(reads(half_row(b, r))), writes(half(y, r)),
           layer(writes(mean)), writes(rstd)});
    for (const int r : {0, 1})
      add(NormBackwardSums{.kind = kind, .rows = 3, .cols = 4, .dtype = kType},
          {reads(half(x, r)), reads(half_row(w, r)), layer(reads(mean)), reads(rstd), reads(half(dy, r)),
           writes(r == 0 ? back : other), writes(half_row(dw, r)), layer(writes(half_row(db, r)))});
    t.add(Add{2, 3, kType}, updates(back), reads(other));
    for (const int r : {0, 1})
      add(NormBackwardApply{kind, 3, 4, 8, kType}, {reads(half(x, r)), reads(half_row(w, r)), layer(reads(mean)),
                                                    reads(rstd), reads(half(dy, r)), reads(back), writes(half(dx, r))});
  }
};

}  // namespace

TEST_CASE("norms in two pieces equal the norm of whole rows, forward and backward", "[runtime]") {
  const NormKind kind = GENERATE(NormKind::Layer, NormKind::Rms, NormKind::RmsOnePlus);
  HostTrial t;
  const TensorId x = t.input("x", Shape{3, 8}), dy = t.input("dy", Shape{3, 8}), w = t.input("w", Shape{8});
  const TensorId b = kind == NormKind::Layer ? t.input("b", Shape{8}) : w;
  NormTrial whole{t, kind, x, dy, w, b}, pieces{t, kind, x, dy, w, b};
  whole.whole();
  pieces.pieces();
  t.run();
  const auto same = [&](TensorId NormTrial::*of) {
    return distance(t.result(pieces.*of), t.result(whole.*of)) < kTight;
  };
  CHECK(same(&NormTrial::y));
  CHECK(same(&NormTrial::rstd));
  CHECK(same(&NormTrial::dx));
  CHECK(same(&NormTrial::dw));
  if (kind == NormKind::Layer) CHECK(same(&NormTrial::db));
}

TEST_CASE("attention over two parts of the keys, merged, and its gradients equal attention over all", "[runtime]") {
  // 12 tokens, of which the queries are all; the parts are the even and the odd tokens.
  constexpr std::int64_t kTokens = 12, kHalf = 6, kHeads = 2, kDim = 3;
  HostTrial t;
  const Shape x{1, kTokens, kHeads, kDim}, lse_shape{1, kHeads, kTokens};
  const AttentionShape s{.heads = kHeads,
                         .kv_heads = kHeads,
                         .q = kTokens,
                         .kv = kTokens,
                         .qk_dim = kDim,
                         .v_dim = kDim,
                         .scale = 0.6,
                         .dtype = kType};
  const TensorId q = t.input("q", x), k = t.input("k", x), v = t.input("v", x), d_o = t.input("do", x),
                 o = t.output("o", x), lse = t.output("lse", lse_shape), dq = t.output("dq", x), dk = t.output("dk", x),
                 dv = t.output("dv", x);
  t.add(AttentionForward{s}, reads(q), reads(k), reads(v), writes(o), writes(lse));
  t.add(AttentionBackward{s}, reads(q), reads(k), reads(v), reads(o), reads(lse), reads(d_o), writes(dq), writes(dk),
        writes(dv));
  const auto every_other = [&](TensorId of, int r) {
    return t.builder().view(of, "every other",
                            Layout{.shape = Shape{1, kHalf, kHeads, kDim},
                                   .strides = {kTokens * kHeads * kDim, 2 * kHeads * kDim, kDim, 1},
                                   .offset = r * kHeads * kDim});
  };
  const TensorId at = t.indices("at", Shape{kTokens}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const TensorId places[] = {t.indices("even", Shape{kHalf}, {0, 2, 4, 6, 8, 10}),
                             t.indices("odd", Shape{kHalf}, {1, 3, 5, 7, 9, 11})};
  const TensorId all_o = t.output("all_o", x), all_lse = t.output("all_lse", lse_shape), part_o = t.output("part_o", x),
                 part_lse = t.output("part_lse", lse_shape), all_dq = t.input("all_dq", x, List(72, 0.0)),
                 all_dk = t.output("all_dk", x), all_dv = t.input("all_dv", x, List(72, 1.0));
  AttentionShape half = s;
  half.kv = kHalf;
  half.positions = true;
  for (const int r : {0, 1})
    t.add(AttentionForward{half}, reads(q), reads(every_other(k, r)), reads(every_other(v, r)), reads(at),
          reads(places[r]), writes(r == 0 ? all_o : part_o), writes(r == 0 ? all_lse : part_lse));
  t.add(MergeAttention{.rows = kTokens, .heads = kHeads, .dim = kDim, .dtype = kType}, reads(part_o), reads(part_lse),
        updates(all_o), updates(all_lse));
  for (const int r : {0, 1})
    t.add(AttentionBackward{half}, reads(q), reads(every_other(k, r)), reads(every_other(v, r)), reads(at),
          reads(places[r]), reads(all_o), reads(all_lse), reads(d_o), updates(all_dq), writes(every_other(all_dk, r)),
          updates(every_other(all_dv, r)));
  t.run();
  CHECK(distance(t.result(all_o), t.result(o)) < kTight);
  CHECK(distance(t.result(all_lse), t.result(lse)) < kTight);
  CHECK(distance(t.result(all_dq), t.result(dq)) < kTight);
  CHECK(distance(t.result(all_dk), t.result(dk)) < kTight);
  List more = t.result(dv);
  for (double& g : more) g += 1;
  CHECK(distance(t.result(all_dv), more) < kTight);
}

TEST_CASE("causal softmax and its gradient run in place", "[runtime]") {
  // Position 0 sees column 0 only: a probability of 1, whose gradient is 0.
  HostTrial t;
  const TensorId x = t.input("x", Shape{2, 3}), dy = t.input("dy", Shape{2, 3}),
                 rows = t.indices("rows", Shape{2}, {0, 9}), cols = t.indices("cols", Shape{3}, {0, 4, 8});
  t.add(SoftmaxForward{.rows = 2, .cols = 3, .scale = 2, .period = 2, .causal = true, .dtype = kType}, updates(x),
        reads(rows), reads(cols));
  t.add(SoftmaxBackward{.rows = 2, .cols = 3, .scale = 2, .dtype = kType}, reads(x), updates(dy));
  t.run();
  const List &e = t.given(x), &g = t.given(dy), y = t.result(x), dx = t.result(dy);
  const double sum = std::exp(2 * e[3]) + std::exp(2 * e[4]) + std::exp(2 * e[5]);
  CHECK(distance(y, {1, 0, 0, std::exp(2 * e[3]) / sum, std::exp(2 * e[4]) / sum, std::exp(2 * e[5]) / sum}) < kTight);
  const double dot = y[3] * g[3] + y[4] * g[4] + y[5] * g[5];
  CHECK(distance(dx, {0, 0, 0, 2 * y[3] * (g[3] - dot), 2 * y[4] * (g[4] - dot), 2 * y[5] * (g[5] - dot)}) < kTight);
}

TEST_CASE("axes of numbers and of indices are swapped", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{2, 2, 3, 1}), y = t.output("y", Shape{2, 3, 2, 1}),
                 i = t.indices("i", Shape{2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7}),
                 j = t.output("j", Shape{2, 2, 2}, DType::I32);
  t.add(SwapAxes{.outer = 2, .a = 2, .b = 3, .dtype = kType}, reads(x), writes(y));
  t.add(SwapAxes{.a = 2, .b = 2, .inner = 2, .dtype = DType::I32}, reads(i), writes(j));
  t.run();
  const List& e = t.given(x);
  CHECK(t.result(y) == List{e[0], e[3], e[1], e[4], e[2], e[5], e[6], e[9], e[7], e[10], e[8], e[11]});
  CHECK(t.result(j) == List{0, 1, 4, 5, 2, 3, 6, 7});
}

TEST_CASE("dropout of listed rows drops what it drops in the whole tensor", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{4, 8}), y = t.output("y", Shape{4, 8}), few = t.output("few", Shape{2, 8}),
                 rows = t.indices("rows", Shape{2}, {3, 1});
  const Dropout d{.rows = 4, .cols = 8, .global_cols = 8, .probability = 0.5, .seed = 3, .dtype = kType};
  Dropout listed = d;
  listed.rows = 2;
  listed.by_row = true;
  t.add(d, reads(x), writes(y));
  t.add(CopyRows{.rows = 1, .cols = 8, .dtype = kType}, reads(t.builder().view(x, "3", Layout{Shape{8}, {1}, 24})),
        updates(t.builder().view(few, "0", Layout{Shape{8}, {1}, 0})));
  t.add(CopyRows{.rows = 1, .cols = 8, .dtype = kType}, reads(t.builder().view(x, "1", Layout{Shape{8}, {1}, 8})),
        updates(t.builder().view(few, "1", Layout{Shape{8}, {1}, 8})));
  t.add(listed, updates(few), reads(rows));
  t.run();
  const List whole = t.result(y), got = t.result(few);
  CHECK(part(got, 0, 8) == part(whole, 24, 8));
  CHECK(part(got, 8, 8) == part(whole, 8, 8));
}

TEST_CASE("a mask of what dropout keeps stands for drawing again", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{4, 8}), dy = t.input("dy", Shape{4, 8}),
                 ids = t.indices("ids", Shape{4}, {7, 2, 9, 4});
  const TensorId y = t.output("y", Shape{4, 8}), mask = t.output("mask", Shape{4, 8}, DType::U8),
                 dx = t.output("dx", Shape{4, 8});
  const TensorId plain = t.output("plain", Shape{4, 8}), drawn = t.output("drawn", Shape{4, 8});
  Dropout d{.rows = 4, .cols = 8, .global_cols = 8, .probability = 0.5, .seed = 3, .by_row = true, .dtype = kType};
  t.add(d, reads(x), reads(ids), writes(plain));
  t.add(d, reads(dy), reads(ids), writes(drawn));
  d.mask = KeptMask::Written;
  t.add(d, reads(x), reads(ids), writes(y), writes(mask));
  d.mask = KeptMask::Read, d.by_row = false;
  t.add(d, reads(dy), reads(mask), writes(dx));
  t.run();
  CHECK(t.result(y) == t.result(plain));
  CHECK(t.result(dx) == t.result(drawn));
  CHECK(d.amount({}).read == size_of(kType, 32) + size_of(DType::U8, 32));
}

TEST_CASE("optimizers decay the first elements only when told so, and a part of a norm has its weight", "[runtime]") {
  HostTrial t;
  const auto w = [&](std::string_view name) { return t.input(name, Shape{6}, List{1, 2, 3, 4, 5, 6}); };
  const auto zeros = [&](std::string_view name) { return t.input(name, Shape{6}, List(6, 0.0)); };
  const TensorId g = t.input("g", Shape{6}, List{2, 0, 0, 0, 0, 1}), decayed = t.indices("decayed", Shape{1}, {4}),
                 norm = t.input("norm", Shape{1}, List{1.0}), some = w("some"), none = w("none"), all = w("all");
  const TensorId sgd_w = w("sgd_w"), sgd_m = zeros("sgd_m");
  AdamW a{.elements = 6, .rate = 0.1, .decay = 0.5, .step = 1, .dtype = kType, .state = kType};
  t.add(a, updates(all), reads(g), updates(zeros("m1")), updates(zeros("v1")));
  a.partly = true;
  t.add(a, updates(some), reads(g), updates(zeros("m2")), updates(zeros("v2")), reads(decayed));
  a.partly = false, a.decay = 0;
  t.add(a, updates(none), reads(g), updates(zeros("m3")), updates(zeros("v3")));
  t.add(SumSquares{.elements = 6, .weight = 0.25, .dtype = kType}, reads(g), updates(norm));
  t.add(Sgd{.elements = 6, .rate = 0.1, .momentum = 0.5, .decay = 0.5, .max_norm = 100, .partly = true, .dtype = kType},
        updates(sgd_w), reads(g), updates(sgd_m), reads(norm), reads(decayed));
  t.run();
  CHECK(t.result(norm) == List{1 + 0.25 * 5});
  CHECK(distance(part(t.result(some), 0, 4), part(t.result(all), 0, 4)) < kTight);
  CHECK(distance(part(t.result(some), 4, 2), part(t.result(none), 4, 2)) < kTight);
  CHECK(distance(t.result(sgd_w), {1 - 0.1 * 2.5, 2 - 0.1, 3 - 0.15, 4 - 0.2, 5, 6 - 0.1}) < kTight);
}
