// SPDX-License-Identifier: Apache-2.0
// The smaller families of ops through the host executor against their formulas, in double.
#include <catch2/catch.hpp>

#include "tests/runtime_support.hpp"

using namespace orrery;

namespace {

constexpr double kTight = 1e-12;
constexpr DType kType = DType::F64;
using List = std::vector<double>;

}  // namespace

TEST_CASE("elementwise ops follow their formulas, views included", "[runtime]") {
  HostTrial t;
  const TensorId a = t.input("a", Shape{2, 6}), b = t.input("b", Shape{2, 3}), row = t.input("row", Shape{3}),
                 factor = t.input("factor", Shape{2});
  const TensorId left = t.builder().view(a, "left", Layout{.shape = Shape{2, 3}, .strides = {6, 1}});
  const TensorId right = t.builder().view(a, "right", Layout{.shape = Shape{2, 3}, .strides = {6, 1}, .offset = 3});
  const auto out = [&](std::string_view name, Shape shape = Shape{2, 3}) { return t.output(name, shape); };
  const TensorId sum = out("sum"), times = out("times"), scaled = out("scaled"), dots = out("dots", Shape{2}),
                 biased = out("biased"), columns = out("columns", Shape{3}), gated = out("gated"), relu = out("relu");
  t.add(Add{2, 3, kType}, reads(left), reads(b), writes(sum));
  t.add(Multiply{2, 3, kType}, reads(left), reads(right), writes(times));
  t.add(ScaleRows{.rows = 2, .cols = 3, .factor = 2, .by_row = true, .dtype = kType}, reads(right), reads(factor),
        writes(scaled));
  t.add(RowDot{2, 3, kType}, reads(left), reads(b), writes(dots));
  t.add(AddRows{2, 3, 1, kType}, reads(left), reads(row), writes(biased));
  t.add(SumRows{2, 3, 1, false, kType}, reads(right), writes(columns));
  t.add(GatedForward{ActivationKind::Silu, 2, 3, kType}, reads(left), reads(right), writes(gated));
  t.add(ActivationForward{ActivationKind::Relu, 2, 3, kType}, reads(left), writes(relu));
  t.run();
  List want[8];
  want[3] = {0, 0};
  want[5] = {0, 0, 0};
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t c = 0; c < 3; ++c) {
      const double l = t.given(a)[r * 6 + c], g = t.given(a)[r * 6 + 3 + c], y = t.given(b)[r * 3 + c];
      want[0].push_back(l + y);
      want[1].push_back(l * g);
      want[2].push_back(2 * t.given(factor)[r] * g);
      want[3][r] += l * y;
      want[4].push_back(l + t.given(row)[c]);
      want[5][c] += g;
      want[6].push_back(l / (1 + std::exp(-l)) * g);
      want[7].push_back(std::max(l, 0.0));
    }
  const TensorId got[] = {sum, times, scaled, dots, biased, columns, gated, relu};
  for (int i = 0; i < 8; ++i) {
    CAPTURE(i);
    CHECK(distance(t.result(got[i]), want[i]) < kTight);
  }
}

TEST_CASE("rows are broadcast to heads and summed back, fills fill, casts keep the value", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{2, 3}), y = t.output("y", Shape{2, 2, 3}), back = t.output("back", Shape{2, 3});
  const TensorId five = t.output("five", Shape{4}), half = t.output("half", Shape{4}, DType::F32);
  t.add(BroadcastHeads{2, 2, 3, kType}, reads(x), writes(y));
  t.add(SumHeads{2, 2, 3, kType}, reads(y), writes(back));
  t.add(Fill{4, 0.5, kType}, writes(five));
  t.add(Cast{4, DType::F64, DType::F32}, reads(five), writes(half));
  t.run();
  List doubled = t.given(x);
  for (double& v : doubled) v *= 2;
  CHECK(distance(t.result(back), doubled) < kTight);
  CHECK(t.result(half) == List(4, 0.5));
}

TEST_CASE("dropout of two halves is dropout of the whole, and its scale keeps the mean", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{64, 32}, List(2048, 1.0)), y = t.output("y", Shape{64, 32});
  const TensorId low = t.input("low", Shape{32, 32}, List(1024, 1.0)), low_y = t.output("low_y", Shape{32, 32});
  Dropout d{.rows = 64,
            .cols = 32,
            .global_cols = 32,
            .probability = 0.25,
            .seed = 3,
            .stream = 5,
            .step = Extent{0, Symbol::Step},
            .dtype = kType};
  t.add(d, reads(x), writes(y));
  d.rows = d.first_row = 32;
  t.add(d, reads(low), writes(low_y));
  t.run();
  const List all = t.result(y);
  CHECK(t.result(low_y) == List(all.begin() + 1024, all.end()));
  double sum = 0;
  for (double v : all) sum += v;
  CHECK(sum / 2048 == Approx(1.0).margin(0.06));  // 5 standard deviations of √(0.25/0.75/2048) = 0.0128
}

TEST_CASE("rows are gathered and their gradients scattered; rotation undoes itself", "[runtime]") {
  HostTrial t;
  const TensorId table = t.input("table", Shape{4, 2}), index = t.indices("index", Shape{3}, {2, 0, 2});
  const TensorId out = t.output("out", Shape{3, 2}), grad = t.input("grad", Shape{4, 2}, List(8, 0.0));
  t.add(Gather{3, 2, 4, 0, 4, kType}, reads(table), reads(index), writes(out));
  t.add(ScatterAdd{3, 2, 4, 0, 4, kType}, reads(out), reads(index), updates(grad));
  const TensorId x = t.input("x", Shape{2, 2, 4}),
                 cos = t.input("cos", Shape{8, 2}, {1, 1, 0.6, 0.8, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  const TensorId sin = t.input("sin", Shape{8, 2}, {0, 0, 0.8, 0.6, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  RotaryEmbedding r{.rows = 2, .heads = 2, .head_dim = 4, .rot_dim = 4, .sequence = 2, .dtype = kType};
  const TensorId turned = t.output("turned", Shape{2, 2, 4});
  t.add(r, reads(cos), reads(sin), updates(x));
  t.add(CopyRows{2, 8, kType}, reads(x), writes(turned));
  r.inverse = true;
  t.add(r, reads(cos), reads(sin), updates(x));
  t.run();
  const auto& e = t.given(table);
  CHECK(t.result(out) == List{e[4], e[5], e[0], e[1], e[4], e[5]});
  CHECK(distance(t.result(grad), {e[0], e[1], 0, 0, 2 * e[4], 2 * e[5], 0, 0}) < kTight);
  CHECK(distance(t.result(x), t.given(x)) < kTight);
  // Position 1, head 0, pair 0 is elements 8 and 10: (0.6 a − 0.8 b, 0.8 a + 0.6 b).
  CHECK(t.result(turned)[8] == Approx(0.6 * t.given(x)[8] - 0.8 * t.given(x)[10]));
  CHECK(t.result(turned)[10] == Approx(0.8 * t.given(x)[8] + 0.6 * t.given(x)[10]));
}

TEST_CASE("losses are added up with their weight and their gradients are softmax or sigmoid less the target",
          "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{3, 4}), y = t.indices("y", Shape{3}, {1, -100, 3});
  const TensorId lse = t.output("lse", Shape{3}), loss = t.input("loss", Shape{1}, List{10.0}),
                 dx = t.output("dx", Shape{3, 4});
  t.add(CrossEntropyForward{3, 4, 0.5, kType}, reads(x), reads(y), writes(lse), updates(loss));
  t.add(CrossEntropyBackward{3, 4, 0.5, kType}, reads(x), reads(y), reads(lse), writes(dx));
  const TensorId z = t.input("z", Shape{2}), target = t.input("target", Shape{2}, List{1, 0}),
                 bce = t.input("bce", Shape{1}, List{0.0}), dz = t.output("dz", Shape{2});
  t.add(BinaryCrossEntropyForward{2, 2.0, kType}, reads(z), reads(target), updates(bce));
  t.add(BinaryCrossEntropyBackward{2, 2.0, kType}, reads(z), reads(target), writes(dz));
  t.run();
  double want = 10;
  List grad(12, 0.0);
  for (std::size_t r : {0u, 2u}) {
    double sum = 0;
    for (std::size_t c = 0; c < 4; ++c) sum += std::exp(t.given(x)[r * 4 + c]);
    const std::size_t at = r == 0 ? 1 : 3;
    want += 0.5 * (std::log(sum) - t.given(x)[r * 4 + at]);
    for (std::size_t c = 0; c < 4; ++c) grad[r * 4 + c] = 0.5 * (std::exp(t.given(x)[r * 4 + c]) / sum - (c == at));
  }
  CHECK(t.result(loss)[0] == Approx(want).epsilon(1e-12));
  CHECK(distance(t.result(dx), grad) < kTight);
  const double p0 = 1 / (1 + std::exp(-t.given(z)[0])), p1 = 1 / (1 + std::exp(-t.given(z)[1]));
  CHECK(t.result(bce)[0] == Approx(2 * (-std::log(p0) - std::log(1 - p1))).epsilon(1e-12));
  CHECK(distance(t.result(dz), {2 * (p0 - 1), 2 * p1}) < kTight);
}

TEST_CASE("sampling at temperature 0 takes the largest logit, also of a view", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{2, 2, 3}, {9, 0, 0, 0, 1, 2, 9, 0, 0, 5, 4, 3}),
                 tokens = t.output("tokens", Shape{2}, DType::I32);
  const TensorId last = t.builder().view(x, "last", Layout{.shape = Shape{2, 3}, .strides = {6, 1}, .offset = 3});
  t.add(Sample{.rows = 2, .vocab = 3, .dtype = kType}, reads(last), writes(tokens));
  t.run();
  CHECK(t.result(tokens) == List{2, 0});
}

// Experts 0 and 2 have rows 0–6 and 7–11. A third of 7 rows from remainder 1 is ⌊(7·a + 1)/3⌋: 0, 2, 5, 7.
TEST_CASE("rows of an expert are cut into equal parts, odd ones here or there", "[runtime]") {
  HostTrial t;
  const TensorId offsets = t.indices("offsets", Shape{4}, {0, 7, 7, 12});
  const TensorId parts = t.indices(
      "parts", Shape{6, 5}, {0, 0, 1, 3, 1, 0, 1, 3, 3, 1, 1, 0, 1, 1, 0, 2, 0, 1, 2, 0, 2, 1, 2, 2, 0, 2, 0, 1, 2, 1});
  const TensorId spans = t.output("spans", Shape{6, 2}, DType::I32);
  t.add(SplitRoutes{.experts = 3, .parts = 6}, reads(offsets), reads(parts), writes(spans));
  t.run();
  CHECK(t.result(spans) == List{0, 2, 2, 7, 7, 7, 7, 9, 9, 12, 7, 10});
}

TEST_CASE("experts get the rows that chose them and the weighted rows come back", "[runtime]") {
  // Top 1 of 2 experts by logit; tokens 0 and 2 choose expert 1: sorted rows are tokens 1, 0, 2.
  HostTrial t;
  const TensorId logits = t.input("logits", Shape{3, 2}, {0, 1, 2, 0, 0, 3}), x = t.input("x", Shape{3, 2});
  const TensorId p = t.output("p", Shape{3, 2}), w = t.output("w", Shape{3, 1}),
                 i = t.output("i", Shape{3, 1}, DType::I32);
  const TensorId offsets = t.output("offsets", Shape{3}, DType::I32), source = t.output("source", Shape{3}, DType::I32),
                 row = t.output("row", Shape{3, 1}, DType::I32);
  const TensorId sorted = t.output("sorted", Shape{3, 2}), back = t.output("back", Shape{3, 2});
  const TensorId dy = t.output("dy", Shape{3, 2}), dw = t.output("dw", Shape{3, 1}), dx = t.output("dx", Shape{3, 2}),
                 dlogits = t.output("dlogits", Shape{3, 2});
  t.add(TopKGate{.tokens = 3, .experts = 2, .top_k = 1, .normalise = false, .dtype = kType}, reads(logits), writes(p),
        writes(w), writes(i));
  t.add(RouteMap{.tokens = 3, .top_k = 1, .experts = 2}, reads(i), writes(offsets), writes(source), writes(row));
  t.add(Permute{3, 1, 2, kType}, reads(x), reads(source), reads(row), writes(sorted));
  t.add(Unpermute{3, 1, 2, kType}, reads(sorted), reads(row), reads(w), writes(back));
  t.add(UnpermuteBackward{3, 1, 2, kType}, reads(sorted), reads(row), reads(w), reads(x), writes(dy), writes(dw));
  t.add(PermuteBackward{3, 1, 2, kType}, reads(dy), reads(row), writes(dx));
  t.add(TopKGateBackward{.tokens = 3, .experts = 2, .top_k = 1, .normalise = false, .dtype = kType}, reads(p), reads(i),
        reads(dw), writes(dlogits));
  t.run();
  CHECK(t.result(i) == List{1, 0, 1});
  CHECK(t.result(offsets) == List{0, 1, 3});
  CHECK(t.result(source) == List{1, 0, 2});
  CHECK(t.result(row) == List{1, 0, 2});
  const List weights = {1 / (1 + std::exp(-1.0)), 1 / (1 + std::exp(-2.0)), 1 / (1 + std::exp(-3.0))};
  CHECK(distance(t.result(w), weights) < kTight);
  List weighted, squares, slopes;
  for (std::size_t token = 0; token < 3; ++token) {
    const double a = t.given(x)[2 * token], b = t.given(x)[2 * token + 1],
                 s = weights[token] * (1 - weights[token]) * (a * a + b * b);
    weighted.insert(weighted.end(), {weights[token] * a, weights[token] * b});
    squares.push_back(a * a + b * b);  // dw = x·dout, and both are x
    const bool second = token != 1;
    slopes.insert(slopes.end(), {second ? -s : s, second ? s : -s});
  }
  CHECK(distance(t.result(back), weighted) < kTight);
  CHECK(distance(t.result(dx), weighted) < kTight);
  CHECK(distance(t.result(dw), squares) < kTight);
  CHECK(distance(t.result(dlogits), slopes) < kTight);
}

TEST_CASE("images become rows, get a class token and are pooled", "[runtime]") {
  // 4×4 pixels in 2×2 patches: the second row is the upper right patch, pixels 2, 3, 6, 7.
  HostTrial t;
  const TensorId image = t.input("image", Shape{1, 1, 4, 4}), rows = t.output("rows", Shape{4, 4}),
                 prefix = t.input("prefix", Shape{4});
  const TensorId joined = t.output("joined", Shape{1, 5, 4}), pooled = t.output("pooled", Shape{1, 4});
  t.add(Patchify{1, 1, 4, 2, kType}, reads(image), writes(rows));
  t.add(ConcatPrefix{1, 4, 4, kType}, reads(rows), reads(prefix), writes(joined));
  t.add(MeanPool{1, 5, 4, kType}, reads(joined), writes(pooled));
  t.run();
  const auto& x = t.given(image);
  const List got = t.result(rows);
  CHECK(List(got.begin() + 4, got.begin() + 8) == List{x[2], x[3], x[6], x[7]});
  CHECK(t.result(pooled)[0] == Approx((t.given(prefix)[0] + x[0] + x[2] + x[8] + x[10]) / 5));
}

TEST_CASE("bags of embeddings are summed and features crossed", "[runtime]") {
  HostTrial t;
  const TensorId table = t.input("table", Shape{3, 2}), index = t.indices("index", Shape{3}, {2, 0, 1}),
                 offsets = t.indices("offsets", Shape{3}, {0, 2, 3});
  const TensorId out = t.output("out", Shape{2, 2}), crossed = t.output("crossed", Shape{1, 3});
  t.add(EmbeddingBagForward{.bags = 2, .lookups = 3, .cols = 2, .table_rows = 3, .dtype = kType}, reads(table),
        reads(index), reads(offsets), writes(out));
  const TensorId pair = t.builder().view(out, "pair", Layout::contiguous(Shape{1, 2, 2}));
  t.add(DotInteractionForward{1, 2, 2, kType}, reads(pair), writes(crossed));
  t.run();
  const auto& e = t.given(table);
  const List bags = {e[4] + e[0], e[5] + e[1], e[2], e[3]};
  CHECK(distance(t.result(out), bags) < kTight);
  CHECK(distance(t.result(crossed), {bags[0], bags[1], bags[0] * bags[2] + bags[1] * bags[3]}) < kTight);
}

TEST_CASE("adamw and sgd take the step of their formulas with a clipped gradient", "[runtime]") {
  HostTrial t;
  const TensorId w = t.input("w", Shape{2}, List{1, 2}), g = t.input("g", Shape{2}, List{3, 4}),
                 m = t.input("m", Shape{2}, List{0, 0}), v = t.input("v", Shape{2}, List{0, 0});
  const TensorId u = t.input("u", Shape{2}, List{1, 1}), velocity = t.input("velocity", Shape{2}, List{0, 0}),
                 norm2 = t.input("norm2", Shape{1}, List{0});
  t.add(SumSquares{.elements = 2, .dtype = kType}, reads(g), updates(norm2));
  t.add(
      AdamW{.elements = 2, .rate = 0.1, .decay = 0.01, .max_norm = 1, .step = Extent{1, Symbol::Step}, .dtype = kType},
      updates(w), reads(g), updates(m), updates(v), reads(norm2));
  t.add(Sgd{.elements = 2, .rate = 0.1, .momentum = 0.9, .max_norm = 1, .dtype = kType}, updates(u), reads(g),
        updates(velocity), reads(norm2));
  t.run();
  CHECK(t.result(norm2)[0] == 25.0);
  // The norm is 5: the gradient becomes (0.6, 0.8). First step of Adam: m̂/√v̂ = 1, so w −= 0.1·(1 + 0.01·w).
  CHECK(distance(t.result(w), {1 - 0.1 - 0.001, 2 - 0.1 - 0.002}) < 1e-6);
  CHECK(distance(t.result(u), {1 - 0.06, 1 - 0.08}) < 1e-6);
}

TEST_CASE("a factored matrix solves its equations", "[runtime]") {
  // A = [[4, 2], [2, 5]], b = (8, 12): x = (1, 2); L = [[2, 0], [1, 2]].
  HostTrial t;
  const TensorId a = t.input("a", Shape{2, 2}, List{4, 2, 2, 5}), b = t.input("b", Shape{2, 1}, List{8, 12}),
                 l = t.output("l", Shape{2, 2}), x = t.output("x", Shape{2, 1});
  t.add(Cholesky{2, kType}, reads(a), writes(l));
  t.add(CholeskySolve{2, 1, kType}, reads(l), reads(b), writes(x));
  t.run();
  CHECK(distance(t.result(l), {2, 0, 1, 2}) < kTight);
  CHECK(distance(t.result(x), {1, 2}) < kTight);
}

TEST_CASE("covariances follow their formulas where rows of a history are known", "[runtime]") {
  // Points (0, 0) and (3, 4) against rows (0, 0), (3, 4), (1, 1): distances 0, 5, √2 and 5, 0, √13, over a length of 2.
  const auto matern = [](double d) {
    const double s = std::sqrt(5.0) * d / 2;
    return (1 + s + s * s / 3) * std::exp(-s);
  };
  HostTrial t;
  const TensorId a = t.input("a", Shape{2, 2}, List{0, 0, 3, 4}), h = t.input("h", Shape{3, 2}, List{0, 0, 3, 4, 1, 1}),
                 second = t.indices("second", Shape{1}, {1}), k = t.output("k", Shape{2, 3}),
                 none = t.output("none", Shape{2, 3}), own = t.output("own", Shape{3, 3}),
                 one = t.output("one", Shape{2, 3}), rough = t.output("rough", Shape{2, 3});
  Covariance c{.points = 2, .history = 3, .columns = 2, .length = 2, .known = 2, .dtype = kType};
  t.add(c, reads(a), reads(h), writes(k));
  c.known = 1;
  t.add(c, reads(a), reads(h), writes(none));
  c.known = 7, c.used = 1, c.kind = CovarianceKind::SquaredExponential;
  t.add(c, reads(a), reads(h), reads(second), writes(one));
  c.used = 0, c.kind = CovarianceKind::Matern32;
  t.add(c, reads(a), reads(h), writes(rough));
  c = {.points = 3, .history = 3, .columns = 2, .length = 2, .noise = 0.5, .own = true, .known = 2, .dtype = kType};
  t.add(c, reads(h), writes(own));
  t.run();
  CHECK(distance(t.result(k), {1, matern(5), 0, matern(5), 1, 0}) < kTight);
  CHECK(distance(t.result(none), {0, 0, 0, 0, 0, 0}) < kTight);
  CHECK(distance(t.result(own), {1.5, matern(5), 0, matern(5), 1.5, 0, 0, 0, 1}) < kTight);
  // Over the second column alone: differences 0, 4, 1 and 4, 0, 3.
  const auto square = [](double d) { return std::exp(-d * d / 8); };
  CHECK(distance(t.result(one), {1, square(4), square(1), square(4), 1, square(3)}) < kTight);
  const double s = std::sqrt(3.0) * 5 / 2;
  CHECK(t.result(rough)[1] == Approx((1 + s) * std::exp(-s)));
}

TEST_CASE("a bias table serves pairs of positions and takes their gradients", "[runtime]") {
  HostTrial t;
  const TensorId table = t.input("table", Shape{2, 2}), index = t.indices("index", Shape{2, 2}, {0, 1, 1, 0}),
                 bias = t.output("bias", Shape{2, 2, 2}), grad = t.input("grad", Shape{2, 2}, List(4, 0.0));
  t.add(RelativeBiasForward{.heads = 2, .q = 2, .buckets = 2, .kv = 2, .dtype = kType}, reads(table), reads(index),
        writes(bias));
  t.add(RelativeBiasBackward{.heads = 2, .q = 2, .kv = 2, .buckets = 2, .dtype = kType}, reads(index), reads(bias),
        updates(grad));
  t.run();
  const auto& e = t.given(table);
  CHECK(t.result(bias) == List{e[0], e[2], e[2], e[0], e[1], e[3], e[3], e[1]});
  CHECK(distance(t.result(grad), {2 * e[0], 2 * e[1], 2 * e[2], 2 * e[3]}) < kTight);
}

TEST_CASE("a tensor survives the way to the disk, to pinned and peer memory and back", "[runtime]") {
  HostTrial t;
  const TensorId x = t.input("x", Shape{1000}), y = t.output("y", Shape{1000});
  const auto on = [&](Tier tier, std::string_view name) {
    return t.builder().tensor(name, Shape{1000}, {.dtype = kType, .tier = tier});
  };
  const TensorId pinned = on(Tier::Pinned, "pinned"), disk = on(Tier::Disk, "disk"), again = on(Tier::Disk, "again"),
                 peer = on(Tier::Peer, "peer");
  const auto copy = [&](TensorId from, TensorId to, Tier a, Tier b) {
    t.add(Copy{size_of(kType, 1000), a, b}, reads(from), writes(to));
  };
  copy(x, pinned, Tier::Device, Tier::Pinned);
  copy(pinned, disk, Tier::Pinned, Tier::Disk);
  copy(disk, again, Tier::Disk, Tier::Disk);
  copy(again, peer, Tier::Disk, Tier::Peer);
  copy(peer, y, Tier::Peer, Tier::Device);
  t.add(HostWork{.flops = Flops{1e4}, .bytes = Bytes{1e4}}, reads(y));
  t.run();
  CHECK(t.result(y) == t.given(x));
}
