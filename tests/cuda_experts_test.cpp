// SPDX-License-Identifier: Apache-2.0
// Ops of mixture-of-experts layers on the cuda device against the host in double: on fresh inputs, over poisoned
// outputs, at odd sizes.
#include "tests/cuda_testing.hpp"
#include "tests/weight_gradient.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

/// Experts of the choices of `tokens`, some of none.
std::vector<std::int32_t> some_choices(std::int64_t choices, std::int64_t experts) {
  std::mt19937_64 random{5};
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < choices; ++i)
    all.push_back(i % 11 == 7 ? -1 : static_cast<std::int32_t>(random() % std::uint64_t(experts)));
  return all;
}

}  // namespace

TEST_CASE("gates choose the experts that the host chooses, in groups and with biases", "[cuda]") {
  const auto score = GENERATE(RouterScore::Softmax, RouterScore::Sigmoid);
  const bool grouped = GENERATE(false, true), bias = GENERATE(false, true);
  compare_with_host([&](OpTrial& t) {
    const TopKGate g{.tokens = 9,
                     .experts = 12,
                     .top_k = 3,
                     .score = score,
                     .normalise = grouped,
                     .scaling = 1.5,
                     .groups = grouped ? 4 : 1,
                     .top_groups = grouped ? 2 : 1,
                     .bias = bias,
                     .dtype = t.dtype()};
    const TensorId logits = t.input("logits", Shape{9, 12}, -2, 2);
    const TensorId scores = t.output("scores", Shape{9, 12}), weights = t.output("weights", Shape{9, 3});
    const TensorId indices = t.typed_output("indices", Shape{9, 3}, DType::I32);
    const TensorId dweights = t.input("dweights", Shape{9, 3});
    if (bias)
      t.add(g, reads(logits), reads(t.input("bias", Shape{12})), writes(scores), writes(weights), writes(indices));
    else
      t.add(g, reads(logits), writes(scores), writes(weights), writes(indices));
    t.add(TopKGateBackward{9, 12, 3, score, grouped, 1.5, t.dtype()}, reads(scores), reads(indices), reads(dweights),
          writes(t.output("dlogits", Shape{9, 12})));
  });
}

TEST_CASE("choices are sorted by expert in their order, with room for some or for all", "[cuda]") {
  const std::int64_t capacity = GENERATE(0, 7);
  const std::int64_t groups = capacity > 0 ? 2 : 1;
  compare_with_host(
      [&](OpTrial& t) {
        const RouteMap r{.tokens = 150, .top_k = 2, .experts = 5, .capacity = capacity, .groups = groups};
        const TensorId indices = t.indices("indices", Shape{150, 2}, some_choices(300, 5));
        t.add(r, reads(indices), writes(t.typed_output("offsets", Shape{6}, DType::I32)),
              writes(t.typed_output("source", Shape{r.rows()}, DType::I32)),
              writes(t.typed_output("row", Shape{150, 2}, DType::I32)));
      },
      {}, {DType::F32});
}

TEST_CASE("rows go to their experts and back, with gradients", "[cuda]") {
  const std::int64_t cols = GENERATE(37, 64, 2072);
  compare_with_host([&](OpTrial& t) {
    const RouteMap r{.tokens = 11, .top_k = 2, .experts = 3, .capacity = 5, .groups = 1};
    const std::int64_t rows = r.rows();
    const TensorId indices = t.indices("indices", Shape{11, 2}, some_choices(22, 3));
    const TensorId offsets = t.typed_output("offsets", Shape{4}, DType::I32);
    const TensorId source = t.typed_output("source", Shape{rows}, DType::I32);
    const TensorId row = t.typed_output("row", Shape{11, 2}, DType::I32);
    const TensorId x = t.input("x", Shape{11, cols}), y = t.input("y", Shape{rows, cols});
    const TensorId weights = t.input("weights", Shape{11, 2}), dy = t.input("dy", Shape{11, cols});
    t.add(r, reads(indices), writes(offsets), writes(source), writes(row));
    t.add(Permute{11, 2, cols, t.dtype(), rows}, reads(x), reads(source), reads(row),
          writes(t.output("sorted", Shape{rows, cols})));
    t.add(PermuteBackward{11, 2, cols, t.dtype()}, reads(y), reads(row), writes(t.output("dx", Shape{11, cols})));
    t.add(Unpermute{11, 2, cols, t.dtype(), rows}, reads(y), reads(row), reads(weights),
          writes(t.output("joined", Shape{11, cols})));
    t.add(UnpermuteBackward{11, 2, cols, t.dtype(), rows}, reads(y), reads(row), reads(weights), reads(dy),
          writes(t.output("dsorted", Shape{rows, cols})), writes(t.output("dweights", Shape{11, 2})));
  });
}

namespace {

/// Groups of rows, and their matrices. `behind`: rows that belong to no group.
struct Groups {
  std::int64_t in, out;
  std::vector<std::int32_t> offsets;
  std::int64_t behind = 0;

  std::int64_t count() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::int64_t rows() const { return offsets.back() + behind; }
};

/// Many groups of which most are empty: as many tiles as fill a GPU.
Groups many_groups(std::int64_t in, std::int64_t out) {
  Groups g{in, out, {0}};
  for (int i = 0; i < 140; ++i) g.offsets.push_back(g.offsets.back() + (i == 3 ? 130 : i == 97 ? 9 : 0));
  return g;
}

/// Rows that are not whole 16 bytes, with a group of more than a tile; whole ones, with a step of depth behind the
/// ring's and parts of tiles and steps at each end; large tiles.
Groups some_groups(std::int64_t behind) {
  const int which = GENERATE(0, 1, 2, 3);
  if (which == 0) return {41, 70, {0, 0, 70, 71, 137}, behind};
  if (which == 1) return {208, 272, {0, 0, 130, 131, 197}, behind};
  Groups many = which == 2 ? many_groups(16, 304) : many_groups(304, 16);
  many.behind = behind;
  return many;
}

}  // namespace

TEST_CASE("products of groups: forward, both gradients, either form of weights, added to", "[cuda]") {
  const auto mode = GENERATE(GroupedMode::Forward, GroupedMode::InputGradient, GroupedMode::WeightGradient);
  const bool transposed = GENERATE(false, true), adds = GENERATE(false, true);
  const Groups groups = some_groups(0);
  compare_with_host([&](OpTrial& t) {
    const TensorId offsets = t.indices("offsets", Shape{groups.count() + 1}, groups.offsets);
    const Shape matrix =
        transposed ? Shape{groups.count(), groups.out, groups.in} : Shape{groups.count(), groups.in, groups.out};
    const Shape in{groups.rows(), groups.in}, sums{groups.rows(), groups.out};
    const bool forward = mode == GroupedMode::Forward, input = mode == GroupedMode::InputGradient;
    const TensorId left = t.input("left", input ? sums : in);
    const TensorId right = t.input("right", forward || input ? matrix : sums);
    const GroupedGemm g{.rows = groups.rows(),
                        .n = groups.out,
                        .k = groups.in,
                        .groups = groups.count(),
                        .mode = mode,
                        .transpose_b = transposed,
                        .accumulate = adds,
                        .dtype = t.dtype()};
    const Shape out = forward ? sums : input ? in : matrix;
    const TensorId y = adds ? t.input("y", out) : t.output("y", out);
    if (adds) t.result(y);
    t.add(g, reads(left), reads(right), reads(offsets), adds ? updates(y) : writes(y));
  });
}

TEST_CASE("gradients of weights of groups leave in f32 where a plan wants them so", "[cuda]") {
  const bool adds = GENERATE(false, true);
  const std::int64_t in = GENERATE(41, 40);
  compare_with_host(
      [&](OpTrial& t) {
        constexpr std::int64_t rows = 137, out = 136;
        const DType wide = t.dtype() == DType::F64 ? DType::F64 : DType::F32;
        const Shape matrix{3, in, out};
        const GroupedGemm g{.rows = rows,
                            .n = out,
                            .k = in,
                            .groups = 3,
                            .mode = GroupedMode::WeightGradient,
                            .accumulate = adds,
                            .wide = wide == DType::F32,
                            .dtype = t.dtype()};
        const TensorId x = t.input("x", Shape{rows, in}), dy = t.input("dy", Shape{rows, out});
        const TensorId offsets = t.indices("offsets", Shape{4}, {0, 0, 70, rows});
        const std::vector<double> before(static_cast<std::size_t>(matrix.elements()), 0.25);
        const TensorId dw = adds ? t.numbers("dw", matrix, before, wide) : t.typed_output("dw", matrix, wide);
        if (adds) t.result(dw);
        t.add(g, reads(x), reads(dy), reads(offsets), adds ? updates(dw) : writes(dw));
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("products of groups in 8 bits are the host's, whose operands are cast alike", "[cuda]") {
  const auto mode = GENERATE(GroupedMode::Forward, GroupedMode::InputGradient, GroupedMode::WeightGradient);
  const bool transposed = GENERATE(false, true), adds = GENERATE(false, true);
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  const Groups groups = some_groups(6);  // rows behind the last group are no part of an operand, not even of its scale
  compare_with_host(
      [&](OpTrial& t) {
        const TensorId offsets = t.indices("offsets", Shape{groups.count() + 1}, groups.offsets);
        const Shape matrix =
            transposed ? Shape{groups.count(), groups.out, groups.in} : Shape{groups.count(), groups.in, groups.out};
        const bool forward = mode == GroupedMode::Forward, input = mode == GroupedMode::InputGradient;
        const auto rows = [&](const char* name, std::int64_t cols, double size) {
          std::vector<double> x(static_cast<std::size_t>(groups.rows() * cols), 1024);
          for (std::int64_t i = 0; i < groups.offsets.back() * cols; ++i)
            x[static_cast<std::size_t>(i)] = size * static_cast<double>(i * 37 % 255 - 127) / 128;
          return t.numbers(name, Shape{groups.rows(), cols}, std::move(x), t.dtype());
        };
        const TensorId left = rows("left", input ? groups.out : groups.in, 2);
        const TensorId right = forward || input ? t.input("right", matrix, -0.1, 0.1) : rows("right", groups.out, 0.25);
        const GroupedGemm g{.rows = groups.rows(),
                            .n = groups.out,
                            .k = groups.in,
                            .groups = groups.count(),
                            .mode = mode,
                            .transpose_b = transposed,
                            .accumulate = adds || mode != GroupedMode::WeightGradient,
                            .narrow = Narrow::EightBits,
                            .dtype = t.dtype()};
        const Shape out = forward ? Shape{groups.rows(), groups.out} : input ? Shape{groups.rows(), groups.in} : matrix;
        const TensorId y = g.accumulate ? t.input("y", out) : t.output("y", out);
        if (g.accumulate) t.result(y);
        t.add(g, reads(left), reads(right), reads(offsets), g.accumulate ? updates(y) : writes(y));
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("inputs of products in 8 bits that are kept as they were cast give what the host computes", "[cuda]") {
  const bool tb = GENERATE(false, true), part = GENERATE(false, true);
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  compare_with_host(
      [&](OpTrial& t) {
        constexpr std::int64_t m = 12, n = 16, k = 32, first = 5;
        const std::int64_t kept = part ? 7 : m;
        const TensorId x = t.input("x", Shape{m, k}, -3, 3), w = t.input("w", tb ? Shape{n, k} : Shape{k, n});
        const TensorId y = t.output("y", Shape{m, n});
        const TensorId numbers = t.builder().tensor("numbers", Shape{kept, k}, {.dtype = DType::F8E4M3}),
                       scale = t.builder().tensor("scale", Shape{1}, {.dtype = DType::F32});
        const Gemm forward{.m = m,
                           .n = n,
                           .k = k,
                           .transpose_b = tb,
                           .narrow = Narrow::EightBits,
                           .dtype = t.dtype(),
                           .input = InputCast::Written,
                           .cast_rows = kept};
        if (part)
          t.add(forward, reads(x), reads(w), reads(t.indices("first", Shape{1}, {first})), writes(y), writes(numbers),
                writes(scale));
        else
          t.add(forward, reads(x), reads(w), writes(y), writes(numbers), writes(scale));
        const TensorId dy = t.input("dy", Shape{kept, n}, -0.01, 0.01);
        const WeightGradient back{.rows = kept, .n = n, .k = k, .transposed = tb, .dtype = t.dtype()};
        back.add_to(t, "dw", dy, numbers, scale);
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("rows of experts that are kept as they were cast give what the host computes", "[cuda]") {
  const bool transposed = GENERATE(false, true);
  if (gpu_under_test()->info(0).capability < 89) return;  // has no such tensor cores
  compare_with_host(
      [&](OpTrial& t) {
        constexpr std::int64_t room = 40, used = 33, in = 32, out = 16;
        const TensorId offsets = t.indices("offsets", Shape{4}, {0, 20, 20, used});
        std::vector<double> rows(room * in, 1024);  // behind those of the groups: nothing of use
        for (std::size_t i = 0; i < used * in; ++i) rows[i] = static_cast<double>(i * 37 % 255) / 128 - 1;
        const TensorId x = t.numbers("x", Shape{room, in}, std::move(rows), t.dtype());
        const Shape matrix = transposed ? Shape{3, out, in} : Shape{3, in, out};
        const TensorId w = t.input("w", matrix), y = t.input("y", Shape{room, out});
        t.result(y);
        const TensorId numbers = t.builder().tensor("numbers", Shape{room, in}, {.dtype = DType::F8E4M3}),
                       scale = t.builder().tensor("scale", Shape{1}, {.dtype = DType::F32});
        GroupedGemm g{.rows = room,
                      .n = out,
                      .k = in,
                      .groups = 3,
                      .transpose_b = transposed,
                      .accumulate = true,
                      .narrow = Narrow::EightBits,
                      .dtype = t.dtype(),
                      .input = InputCast::Written};
        t.add(g, reads(x), reads(w), reads(offsets), updates(y), writes(numbers), writes(scale));
        g.mode = GroupedMode::WeightGradient;
        g.accumulate = false;
        g.input = InputCast::Read;
        const TensorId dy = t.input("dy", Shape{room, out}, -0.1, 0.1), dw = t.output("dw", matrix);
        t.add(g, reads(numbers), reads(dy), reads(offsets), reads(scale), writes(dw));
      },
      {}, {DType::BF16, DType::F16});
}

TEST_CASE("spans of rows are neighbours among the offsets: rows of a copy that overlap", "[cuda]") {
  compare_with_host(
      [&](OpTrial& t) {
        const TensorId offsets = t.indices("offsets", Shape{5}, {0, 3, 3, 8, 9});
        const TensorId pairs = t.builder().view(offsets, "pairs", Layout{.shape = Shape{4, 2}, .strides = {1, 1}});
        t.add(CopyRows{4, 2, DType::I32}, reads(pairs), writes(t.typed_output("spans", Shape{4, 2}, DType::I32)));
      },
      {}, {DType::F32});
}

TEST_CASE("rows of an expert are cut into parts for its replicas", "[cuda]") {
  compare_with_host(
      [&](OpTrial& t) {
        const TensorId offsets = t.indices("offsets", Shape{4}, {0, 7, 7, 12});
        const TensorId parts = t.indices("parts", Shape{6, 5}, {0, 0, 1, 3, 1, 0, 1, 3, 3, 1, 1, 0, 1, 1, 0,
                                                                2, 0, 1, 2, 1, 2, 1, 2, 2, 1, 0, 0, 0, 1, 0});
        t.add(SplitRoutes{3, 6}, reads(offsets), reads(parts),
              writes(t.typed_output("spans", Shape{6, 2}, DType::I32)));
      },
      {}, {DType::F32});
}

TEST_CASE("ways of rows to the experts of a rank are merged, and too many of them are an error", "[cuda]") {
  const auto describe = [](OpTrial& t, std::int64_t room) {
    const TensorId sent = t.indices("sent", Shape{2, 3, 2}, {0, 2, 2, 5, 5, 5, 4, 4, 4, 5, 5, 9});
    t.add(MergeRoutes{2, 3, room}, reads(sent), writes(t.typed_output("place", Shape{2, 3, 2}, DType::I32)),
          writes(t.typed_output("offsets", Shape{4}, DType::I32)));
  };
  compare_with_host([&](OpTrial& t) { describe(t, 10); }, {}, {DType::F32});
  OpTrial full{DType::F32, DType::F32};
  describe(full, 9);
  const auto device = make_gpu_executor(gpu_under_test());
  CHECK_THROWS_WITH(full.run(*device, gpu_workspaces(), {}),
                    "op 0 'op': 10 rows come to the experts of this rank, there is room for 9; a larger "
                    "`expert_buffer` has room for more, 0 for all");
}
