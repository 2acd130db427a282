// SPDX-License-Identifier: Apache-2.0
// Products whose operands are cast to few bits, through the host executor: those of the cast operands, whichever way
// the matrices lie.
#include <catch2/catch.hpp>

#include "kernels/host/narrow.hpp"
#include "tests/runtime_support.hpp"
#include "tests/weight_gradient.hpp"

using namespace orrery;
using orrery::testing::WeightGradient;

namespace {

constexpr double kTight = 1e-12;
using List = std::vector<double>;

/// [rows, cols] row by row from wherever its numbers lie.
template <class At>
List matrix(std::int64_t rows, std::int64_t cols, At at) {
  List out;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) out.push_back(at(i, j));
  return out;
}

/// What a product takes for a matrix whose rows it adds up along.
List as_cast(Narrow narrow, bool gradient, std::int64_t rows, std::int64_t cols, const List& in) {
  List out(in.size());
  const kernels::NarrowCast<double> cast{1, rows, cols, in.data(), cols, 0, out.data()};
  const auto format = gradient ? kernels::EightBits::E5M2 : kernels::EightBits::E4M3;
  const double scale =
      narrow == Narrow::FourBits ? kernels::cast_to_four_bits(cast, false) : kernels::cast_to_eight_bits(cast, format);
  for (double& x : out) x *= scale;
  return out;
}

/// A·Bᵀ of [m, k] and [n, k].
List product(std::int64_t m, std::int64_t n, std::int64_t k, const List& a, const List& b) {
  return matrix(m, n, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t l = 0; l < k; ++l) sum += a[std::size_t(i * k + l)] * b[std::size_t(j * k + l)];
    return sum;
  });
}

double size_of_all(const List& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}
double apart(const List& x, const List& y) {
  List difference(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) difference[i] = x[i] - y[i];
  return size_of_all(difference) / size_of_all(y);
}

/// Part by which random products may be off: a number has 3 or 1 bits behind its first, a gradient of 8 bits 2.
double doubt(Narrow narrow, bool gradient) { return narrow == Narrow::FourBits ? 0.2 : gradient ? 0.1 : 0.05; }

}  // namespace

TEST_CASE("a product in few bits is that of the cast operands, with either one transposed", "[runtime]") {
  const bool ta = GENERATE(false, true), tb = GENERATE(false, true);
  const Narrow narrow = GENERATE(Narrow::EightBits, Narrow::FourBits);
  const auto gradient = GENERATE(GradientOperand::None, GradientOperand::A, GradientOperand::B);
  constexpr std::int64_t m = 5, n = 9, k = 40;  // runs of 16, 16 and 8
  HostTrial t;
  const TensorId a = t.input("a", ta ? Shape{k, m} : Shape{m, k}), b = t.input("b", tb ? Shape{n, k} : Shape{k, n});
  const TensorId c = t.output("c", Shape{m, n});
  t.add(Gemm{.m = m,
             .n = n,
             .k = k,
             .transpose_a = ta,
             .transpose_b = tb,
             .narrow = narrow,
             .gradient = gradient,
             .dtype = DType::F64},
        reads(a), reads(b), writes(c));
  t.run();
  const List &x = t.given(a), &y = t.given(b);
  const List left = matrix(m, k, [&](auto i, auto l) { return x[std::size_t(ta ? l * m + i : i * k + l)]; });
  const List right = matrix(n, k, [&](auto j, auto l) { return y[std::size_t(tb ? j * k + l : l * n + j)]; });
  const List of_left = as_cast(narrow, gradient == GradientOperand::A, m, k, left),
             of_right = as_cast(narrow, gradient == GradientOperand::B, n, k, right);
  CHECK(apart(t.result(c), product(m, n, k, of_left, of_right)) < kTight);
  const double off = apart(t.result(c), product(m, n, k, left, right));
  CHECK(off < doubt(narrow, gradient != GradientOperand::None));
  CHECK(off > 1e-3);
}

TEST_CASE("a gradient that reads an input as it was cast is that which casts it again", "[runtime]") {
  const bool tb = GENERATE(false, true), bias = GENERATE(false, true);
  constexpr std::int64_t m = 6, n = 5, k = 16;
  HostTrial t;
  const TensorId x = t.input("x", Shape{m, k}), w = t.input("w", tb ? Shape{n, k} : Shape{k, n});
  const TensorId dy = t.input("dy", Shape{m, n}), y = t.output("y", Shape{m, n});
  const TensorId numbers = t.output("numbers", Shape{m, k}, DType::F8E4M3),
                 scale = t.output("scale", Shape{1}, DType::F32);
  const TensorId part = t.output("part", Shape{2, k}, DType::F8E4M3), scale_2 = t.output("scale", Shape{1}, DType::F32);
  const TensorId first = t.indices("first", Shape{1}, {3});
  Gemm g{.m = m,
         .n = n,
         .k = k,
         .transpose_b = tb,
         .bias = bias,
         .narrow = Narrow::EightBits,
         .dtype = DType::F64,
         .input = InputCast::Written,
         .cast_rows = m};
  std::vector<Operand> operands{reads(x), reads(w)};
  if (bias) operands.push_back(reads(t.input("b", Shape{n})));
  const auto add = [&](std::initializer_list<Operand> rest) {
    std::vector<Operand> all = operands;
    all.insert(all.end(), rest);
    t.builder().add("op", g, all);
  };
  add({writes(y), writes(numbers), writes(scale)});
  g.cast_rows = 2;  // rows 3 and 4, by the scale of all
  add({reads(first), writes(y), writes(part), writes(scale_2)});
  WeightGradient back{.rows = m, .n = n, .k = k, .transposed = tb};
  const TensorId again = back.add_to(t, "again", dy, x), once = back.add_to(t, "once", dy, numbers, scale);
  const TensorId of_two = t.output("two", Shape{2, n});
  t.add(CopyRows{2, n, DType::F64},
        reads(t.builder().view(dy, "dy", Layout{.shape = Shape{2, n}, .strides = {n, 1}, .offset = 3 * n})),
        writes(of_two));
  back.rows = 2;
  const TensorId rows = back.add_to(t, "rows", of_two, part, scale_2);
  t.run();
  CHECK(t.result(once) == t.result(again));
  // Sums over rows 3 and 4 alone, off by what 8 bits round.
  const List &in = t.given(x), &d = t.given(dy);
  const List sums = matrix(tb ? n : k, tb ? k : n, [&](auto i, auto j) {
    double sum = 0;
    for (std::size_t r : {3u, 4u}) sum += in[r * k + std::size_t(tb ? j : i)] * d[r * n + std::size_t(tb ? i : j)];
    return sum;
  });
  CHECK(apart(t.result(rows), sums) < doubt(Narrow::EightBits, true));
}

/// Of six rows the last three are eight times as large: one scale for another would show.
TEST_CASE("rows that were cast apart are read with a scale for each part", "[runtime]") {
  const bool tb = GENERATE(false, true);
  constexpr std::int64_t m = 6, half = 3, n = 5, k = 16;
  HostTrial t;
  const TensorId small = t.input("small", Shape{half, k}), same = t.input("same", Shape{half, k});
  const TensorId w = t.input("w", tb ? Shape{n, k} : Shape{k, n}), dy = t.input("dy", Shape{m, n});
  const TensorId large = t.output("large", Shape{half, k}), y = t.output("y", Shape{half, n}),
                 y_again = t.output("y", Shape{half, n});
  const TensorId numbers = t.output("numbers", Shape{m, k}, DType::F8E4M3),
                 scales = t.output("scales", Shape{2}, DType::F32);
  t.add(ScaleRows{.rows = half, .cols = k, .factor = 8, .dtype = DType::F64}, reads(same), writes(large));
  Gemm forward{.m = half,
               .n = n,
               .k = k,
               .transpose_b = tb,
               .narrow = Narrow::EightBits,
               .dtype = DType::F64,
               .input = InputCast::Written,
               .cast_rows = half};
  const auto part = [&](TensorId of, std::int64_t i, const Shape& shape) {
    Layout l = Layout::contiguous(shape);
    l.offset = i * shape.elements();
    return t.builder().view(of, "part", l);
  };
  for (const std::int64_t i : {0, 1})
    t.add(forward, reads(i == 0 ? small : large), reads(w), writes(y), writes(part(numbers, i, Shape{half, k})),
          writes(part(scales, i, Shape{1})));
  forward.input = InputCast::Read, forward.cast_rows = 0;
  t.add(forward, reads(part(numbers, 1, Shape{half, k})), reads(w), reads(part(scales, 1, Shape{1})), writes(y_again));
  const WeightGradient back{.rows = m, .n = n, .k = k, .transposed = tb, .cast_rows = half};
  const TensorId dw = back.add_to(t, "dw", dy, numbers, scales);
  t.run();
  CHECK(t.result(y_again) == t.result(y));
  const List &first = t.given(small), &rest = t.given(same), &d = t.given(dy);
  const List sums = matrix(tb ? n : k, tb ? k : n, [&](auto i, auto j) {
    double sum = 0;
    for (std::int64_t r = 0; r < m; ++r) {
      const auto at = std::size_t(r % half * k + (tb ? j : i));
      sum += (r < half ? first[at] : 8 * rest[at]) * d[std::size_t(r * n + (tb ? i : j))];
    }
    return sum;
  });
  CHECK(apart(t.result(dw), sums) < doubt(Narrow::EightBits, true));
}

TEST_CASE("products over experts in few bits are near those in many", "[runtime]") {
  const auto mode = GENERATE(GroupedMode::Forward, GroupedMode::InputGradient, GroupedMode::WeightGradient);
  const bool tb = GENERATE(false, true);
  const Narrow narrow = GENERATE(Narrow::EightBits, Narrow::FourBits);
  constexpr std::int64_t rows = 64, n = 32, k = 48, groups = 2;
  List results[2];
  for (const Narrow how : {Narrow::None, narrow}) {
    HostTrial t;
    const Shape w = tb ? Shape{groups, n, k} : Shape{groups, k, n};
    const TensorId x = t.input("x", Shape{rows, mode == GroupedMode::InputGradient ? n : k});
    const TensorId second = mode == GroupedMode::WeightGradient ? t.input("dy", Shape{rows, n}) : t.input("w", w);
    const TensorId offsets = t.indices("offsets", Shape{groups + 1}, {0, 32, 64});
    const TensorId y = t.output("y", mode == GroupedMode::WeightGradient  ? w
                                     : mode == GroupedMode::InputGradient ? Shape{rows, k}
                                                                          : Shape{rows, n});
    t.add(GroupedGemm{.rows = rows,
                      .n = n,
                      .k = k,
                      .groups = groups,
                      .mode = mode,
                      .transpose_b = tb,
                      .narrow = how,
                      .dtype = DType::F64},
          reads(x), reads(second), reads(offsets), writes(y));
    t.run();
    results[how == Narrow::None ? 0 : 1] = t.result(y);
  }
  INFO(int(mode) << " " << tb << " " << int(narrow));
  CHECK(apart(results[1], results[0]) < doubt(narrow, mode != GroupedMode::Forward));
  CHECK(apart(results[1], results[0]) > 1e-3);
}
