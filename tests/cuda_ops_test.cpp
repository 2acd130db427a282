// SPDX-License-Identifier: Apache-2.0
// Ops on the cuda device against the host in double: on fresh inputs, over poisoned outputs, at odd sizes.
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Columns that no vector divides, and some that 16 bytes of each type do.
std::int64_t some_cols() { return GENERATE(37, 64); }

}  // namespace

TEST_CASE("activations and their gradients", "[cuda]") {
  const auto kind = static_cast<ActivationKind>(GENERATE(range(0, 7)));
  const std::int64_t cols = kind == ActivationKind::Silu ? 64 : 37;
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{5, cols}, -4, 4), u = t.input("u", Shape{5, cols});
    const TensorId dy = t.input("dy", Shape{5, cols});
    t.add(ActivationForward{kind, 5, cols, t.dtype()}, reads(x), writes(t.output("y", Shape{5, cols})));
    t.add(ActivationBackward{kind, 5, cols, t.dtype()}, reads(x), reads(dy), writes(t.output("dx", Shape{5, cols})));
    t.add(GatedForward{kind, 5, cols, t.dtype()}, reads(x), reads(u), writes(t.output("g", Shape{5, cols})));
    t.add(GatedBackward{kind, 5, cols, t.dtype()}, reads(x), reads(u), reads(dy),
          writes(t.output("dg", Shape{5, cols})), writes(t.output("du", Shape{5, cols})));
  });
}

TEST_CASE("rows in use are counted on the device", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{5, 8}), count = t.indices("count", Shape{2}, {9, 3});
    const TensorId y = t.input("y", Shape{5, 8});  // rows from the third on stay
    t.result(y);
    t.add(ActivationForward{ActivationKind::Relu, 4, 8, t.dtype(), true}, reads(x), reads(count), updates(y));
  });
}

TEST_CASE("arithmetic of matrices, also over views and in place", "[cuda]") {
  const std::int64_t cols = some_cols();
  compare_with_host([&](OpTrial& t) {
    const TensorId a = t.input("a", Shape{6, cols}), b = t.input("b", Shape{6, cols}), s = t.input("s", Shape{6});
    const TensorId wide = t.input("wide", Shape{6, 2 * cols + 3}), rows = t.input("rows", Shape{3, cols});
    const TensorId view =
        t.builder().view(wide, "view", Layout{.shape = Shape{6, cols}, .strides = {2 * cols + 3, 1}, .offset = 3});
    t.result(wide);
    t.add(Add{6, cols, t.dtype()}, updates(view), reads(b));
    t.add(Multiply{6, cols, t.dtype()}, reads(a), reads(view), writes(t.output("product", Shape{6, cols})));
    t.add(ScaleRows{6, cols, 0.75, true, t.dtype()}, reads(a), reads(s), writes(t.output("by row", Shape{6, cols})));
    t.add(ScaleRows{6, cols, -2.0, false, t.dtype()}, reads(a), writes(t.output("scaled", Shape{6, cols})));
    t.add(AddRows{6, cols, 3, t.dtype()}, reads(a), reads(rows), writes(t.output("added", Shape{6, cols})));
    t.add(RowDot{6, cols, t.dtype()}, reads(a), reads(b), writes(t.output("dot", Shape{6})));
  });
}

TEST_CASE("sums over rows, of any period and added to", "[cuda]") {
  const std::int64_t period = GENERATE(1, 3), cols = GENERATE(5, 64);
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{201, cols}), sum = t.input("sum", Shape{period, cols});
    t.result(sum);
    t.add(SumRows{201, cols, period, false, t.dtype()}, reads(x), writes(t.output("fresh", Shape{period, cols})));
    t.add(SumRows{201, cols, period, true, t.dtype()}, reads(x), updates(sum));
  });
}

TEST_CASE("whole arrays are summed, whose threads take more than they read at once", "[cuda]") {
  compare_with_host(
      [&](OpTrial& t) {
        const std::int64_t rows = 9001, elements = 1'100'003;
        std::vector<std::int32_t> classes;
        for (int r = 0; r < rows; ++r) classes.push_back(r % 3);
        const TensorId x = t.input("x", Shape{rows, 3}), targets = t.indices("targets", Shape{rows}, classes);
        const TensorId loss = t.input("loss", Shape{1}), g = t.input("g", Shape{elements});
        const TensorId norm = t.numbers("norm", Shape{1}, {0.5}, DType::F64);
        t.result(loss);
        t.result(norm);
        t.add(CrossEntropyForward{rows, 3, 1e-4, t.dtype()}, reads(x), reads(targets),
              writes(t.output("lse", Shape{rows})), updates(loss));
        t.add(SumSquares{elements, 0.5, t.dtype()}, reads(g), updates(norm));
      },
      {}, {DType::F32, DType::BF16});
}

TEST_CASE("heads are broadcast and summed", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{4, 6}), y = t.input("y", Shape{4, 3, 6});
    t.add(BroadcastHeads{4, 3, 6, t.dtype()}, reads(x), writes(t.output("heads", Shape{4, 3, 6})));
    t.add(SumHeads{4, 3, 6, t.dtype()}, reads(y), writes(t.output("sum", Shape{4, 6})));
  });
}

TEST_CASE("dropout draws what the host draws", "[cuda]") {
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{7, 13}, 1, 2), ids = t.indices("ids", Shape{7}, {9, 2, 3, 40, 5, 6, 7});
    Dropout d{.rows = 7,
              .cols = 13,
              .global_cols = 29,
              .first_row = 3,
              .first_col = 5,
              .probability = 0.3,
              .seed = 11,
              .stream = 4,
              .step = Extent{2},
              .dtype = t.dtype()};
    t.add(d, reads(x), writes(t.output("y", Shape{7, 13})));
    d.by_row = true;
    t.add(d, reads(x), reads(ids), writes(t.output("z", Shape{7, 13})));
    const TensorId mask = t.typed_output("mask", Shape{7, 13}, DType::U8);
    d.mask = KeptMask::Written;
    t.add(d, reads(x), reads(ids), writes(t.output("kept", Shape{7, 13})), writes(mask));
    d.mask = KeptMask::Read, d.by_row = false;
    t.add(d, reads(x), reads(mask), writes(t.output("back", Shape{7, 13})));
  });
}

TEST_CASE("rows of tables are gathered, and gradients added to them", "[cuda]") {
  const std::int64_t cols = some_cols();
  compare_with_host([&](OpTrial& t) {
    const TensorId table = t.input("table", Shape{5, cols}), x = t.input("x", Shape{8, cols});
    const TensorId ids = t.indices("ids", Shape{8}, {3, 9, 3, 4, 7, 3, 5, -1}),
                   gradient = t.input("gradient", Shape{5, cols});
    const TensorId first = t.indices("first", Shape{1}, {3});
    t.result(gradient);
    t.add(Gather{8, cols, 5, 3, 8, t.dtype()}, reads(table), reads(ids), writes(t.output("rows", Shape{8, cols})));
    t.add(ScatterAdd{8, cols, 5, 3, 8, t.dtype()}, reads(x), reads(ids), updates(gradient));
    t.add(LocalIndices{8, 5}, reads(ids), reads(first), writes(t.typed_output("local", Shape{8}, DType::I32)));
    t.result(x);
    t.add(MaskColumns{8, cols, cols - 1, t.dtype()}, reads(first), updates(x));
  });
}

TEST_CASE("sums of rows that share an index, over blocks and digits of the sort", "[cuda]") {
  // 2500 rows are two blocks of 2048, 700 indices two digits; every eighth index is outside, 300 rows share one.
  const std::int64_t cols = GENERATE(3, 16);
  std::vector<std::int32_t> ids;
  for (int r = 0; r < 2500; ++r) ids.push_back(r % 8 == 3 ? 705 + r : r < 300 ? 11 : 5 + r * 131 % 700);
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{2500, cols}), table = t.input("table", Shape{700, cols});
    const TensorId index = t.indices("ids", Shape{2500}, ids);
    t.result(table);
    t.add(ScatterAdd{2500, cols, 700, 5, 705, t.dtype()}, reads(x), reads(index), updates(table));
  });
}

TEST_CASE("sums of rows over more blocks of the sort than there are warps in one, and three digits", "[cuda]") {
  // 18,441 rows are ten blocks, the last with a warp of 9 rows; indices up to 66,000, each of the last hundred many
  // times.
  std::vector<std::int32_t> ids;
  for (std::int64_t r = 0; r < 18'441; ++r)
    ids.push_back(static_cast<std::int32_t>(r % 5 == 0 ? 65'900 + r / 7 % 100 : r * 7919 % 66'000));
  const auto rows = static_cast<std::int64_t>(ids.size());
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{rows, 2}), table = t.input("table", Shape{66'000, 2});
    const TensorId index = t.indices("ids", Shape{rows}, ids);
    t.result(table);
    t.add(ScatterAdd{rows, 2, 66'000, 0, 66'000, t.dtype()}, reads(x), reads(index), updates(table));
  });
}

TEST_CASE("heads are turned by their positions, and back", "[cuda]") {
  const bool interleaved = GENERATE(false, true), inverse = GENERATE(false, true);
  const std::int64_t half = GENERATE(3, 16), offset = half == 3 ? 3 : 16;  // the latter in whole packs
  compare_with_host([&](OpTrial& t) {
    const TensorId cosine = t.input("cos", Shape{9, half}), sine = t.input("sin", Shape{9, half});
    const TensorId x = t.input("x", Shape{4, 4 * half + 32});
    const TensorId view = t.builder().view(
        x, "v", Layout{.shape = Shape{4, 2, 2 * half}, .strides = {4 * half + 32, 2 * half + 8, 1}, .offset = offset});
    t.result(x);
    t.add(RotaryEmbedding{.rows = 4,
                          .heads = 2,
                          .head_dim = 2 * half,
                          .rot_dim = 2 * half,
                          .sequence = 2,
                          .start = Extent{5},
                          .interleaved = interleaved,
                          .inverse = inverse,
                          .dtype = t.dtype()},
          reads(cosine), reads(sine), updates(view));
  });
}

TEST_CASE("tokens are drawn as on the host", "[cuda]") {
  const double temperature = GENERATE(0.0, 0.8);
  const std::int64_t top_k = GENERATE(0, 5);
  const double top_p = GENERATE(1.0, 0.6);
  const std::int64_t vocab = GENERATE(41, 4003);
  compare_with_host(
      [&](OpTrial& t) {
        const TensorId x = t.input("x", Shape{6, vocab}, -4, 4);
        t.add(Sample{.rows = 6,
                     .vocab = vocab,
                     .temperature = temperature,
                     .top_k = top_k,
                     .top_p = top_p,
                     .seed = 5,
                     .step = Extent{3},
                     .dtype = t.dtype()},
              reads(x), writes(t.typed_output("tokens", Shape{6}, DType::I32)));
      },
      {}, {DType::F32});
}

TEST_CASE("views are copied and axes exchanged in words of any size", "[cuda]") {
  const std::int64_t offset = GENERATE(0, 1, 4);
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{5, 24}), cache = t.input("cache", Shape{2, 9, 8});
    const TensorId part =
        t.builder().view(x, "part", Layout{.shape = Shape{5, 8}, .strides = {24, 1}, .offset = offset});
    const TensorId rows = t.input("rows", Shape{2, 3, 8}), y = t.input("y", Shape{3, 4, 5});
    t.result(cache);
    t.add(CopyRows{5, 8, t.dtype()}, reads(part), writes(t.output("rows of x", Shape{5, 8})));
    t.add(AppendCache{.batch = 2, .rows = 3, .cols = 8, .capacity = 9, .at = Extent{4}, .dtype = t.dtype()},
          reads(rows), updates(cache));
    t.add(SwapAxes{.outer = 3, .a = 4, .b = 5, .inner = 1, .dtype = t.dtype()}, reads(y),
          writes(t.output("swapped", Shape{3, 5, 4})));
  });
}

TEST_CASE("the optimisers move weights as on the host", "[cuda]") {
  const double max_norm = GENERATE(0.0, 0.5);
  const std::int64_t n = GENERATE(64, 131);
  const double momentum = GENERATE(0.0, 0.9);
  compare_with_host(
      [&](OpTrial& t) {
        const TensorId w = t.input("w", Shape{n}), g = t.input("g", Shape{n}), m = t.input("m", Shape{n}, -0.1, 0.1);
        const TensorId v = t.input("v", Shape{n}, 0.01, 0.1), w2 = t.input("w2", Shape{n});
        const TensorId norm = t.numbers("norm", Shape{1}, {0.5}, DType::F64), some = t.indices("some", Shape{1}, {50});
        for (const TensorId x : {w, m, v, w2, norm}) t.result(x);
        t.add(SumSquares{n, 0.5, t.dtype()}, reads(g), updates(norm));
        const AdamW adamw{.elements = n,
                          .rate = 0.01,
                          .decay = 0.1,
                          .max_norm = max_norm,
                          .step = Extent{3},
                          .partly = true,
                          .dtype = t.dtype(),
                          .gradient = t.dtype(),
                          .state = t.dtype()};
        const Sgd sgd{.elements = n,
                      .momentum = momentum,
                      .nesterov = true,
                      .decay = 0.1,
                      .max_norm = max_norm,
                      .dtype = t.dtype()};
        if (max_norm > 0)
          t.add(adamw, updates(w), reads(g), updates(m), updates(v), reads(norm), reads(some));
        else
          t.add(adamw, updates(w), reads(g), updates(m), updates(v), reads(some));
        if (momentum > 0) {
          const TensorId u = t.input("u", Shape{n});
          t.result(u);
          if (max_norm > 0)
            t.add(sgd, updates(w2), reads(g), updates(u), reads(norm));
          else
            t.add(sgd, updates(w2), reads(g), updates(u));
        } else if (max_norm > 0)
          t.add(sgd, updates(w2), reads(g), reads(norm));
        else
          t.add(sgd, updates(w2), reads(g));
      },
      {}, {DType::F32});
}

TEST_CASE("products in 8 bits compute what the host does, whose operands are cast alike", "[cuda]") {
  const bool ta = GENERATE(false, true), tb = GENERATE(false, true);
  const auto gradient = GENERATE(GradientOperand::None, GradientOperand::A, GradientOperand::B);
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  compare_with_host(
      [&](OpTrial& t) {
        // Rows of 21 numbers are not whole words of 16; the operands are of very different sizes.
        const TensorId a = t.input("a", ta ? Shape{2, 21, 5} : Shape{2, 5, 21}, -3, 3),
                       b = t.input("b", tb ? Shape{16, 21} : Shape{21, 16}, -0.01, 0.01);
        const TensorId bias = t.input("bias", Shape{16}, -0.01, 0.01), c = t.input("c", Shape{2, 5, 16}, -0.1, 0.1);
        t.result(c);
        t.add(Gemm{.m = 5,
                   .n = 16,
                   .k = 21,
                   .batch = 2,
                   .transpose_a = ta,
                   .transpose_b = tb,
                   .bias = true,
                   .accumulate = true,
                   .narrow = Narrow::EightBits,
                   .gradient = gradient,
                   .dtype = t.dtype(),
                   .alpha = 0.5},
              reads(a), reads(b), reads(bias), updates(c));
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("products of f32 that may round to tf32 are right to a thousandth", "[cuda]") {
  const auto describe = [](OpTrial& t) {
    const TensorId a = t.input("a", Shape{33, 129}), b = t.input("b", Shape{129, 65});
    t.add(Gemm{.m = 33, .n = 65, .k = 129, .dtype = t.dtype()}, reads(a), reads(b),
          writes(t.output("c", Shape{33, 65})));
  };
  OpTrial on_host{DType::F64, DType::F32}, on_gpu{DType::F32, DType::F32};
  describe(on_host);
  describe(on_gpu);
  const auto host = make_host_executor();
  const auto device = make_gpu_executor(gpu_under_test(), {}, {.fast_f32 = true});
  const auto want = on_host.run(*host, host_workspaces(), {}), got = on_gpu.run(*device, gpu_workspaces(), {});
  CHECK(relative_distance(got[0], want[0]) < 1e-3);
}

TEST_CASE("products over views, with bias, sums and either operand transposed", "[cuda]") {
  const bool ta = GENERATE(false, true), tb = GENERATE(false, true);
  compare_with_host([&](OpTrial& t) {
    const TensorId a = t.input("a", ta ? Shape{2, 7, 5} : Shape{2, 5, 7}),
                   b = t.input("b", tb ? Shape{9, 7} : Shape{7, 9});
    const TensorId bias = t.input("bias", Shape{9}), c = t.input("c", Shape{2, 5, 9});
    t.result(c);
    t.add(Gemm{.m = 5,
               .n = 9,
               .k = 7,
               .batch = 2,
               .transpose_a = ta,
               .transpose_b = tb,
               .bias = true,
               .accumulate = true,
               .dtype = t.dtype(),
               .alpha = 0.5},
          reads(a), reads(b), reads(bias), updates(c));
  });
}
