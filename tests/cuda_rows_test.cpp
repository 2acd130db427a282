// SPDX-License-Identifier: Apache-2.0
// Norms, softmax and cross-entropy on the device.
#include "tests/cuda_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

namespace {

struct Sizes {
  std::int64_t rows, cols;
};
/// Rows that no vector divides, that threads of one warp, of two and of all warps of a block hold, and that none do.
Sizes some_rows() { return GENERATE(Sizes{9, 37}, Sizes{70, 64}, Sizes{5, 1040}, Sizes{270, 4104}, Sizes{2, 8464}); }

}  // namespace

TEST_CASE("norms, whole and in pieces, with their gradients", "[cuda]") {
  const NormKind kind = GENERATE(NormKind::Layer, NormKind::Rms, NormKind::RmsOnePlus);
  const Sizes sizes = some_rows();
  compare_with_host([&](OpTrial& t) {
    const std::int64_t rows = sizes.rows, cols = sizes.cols;
    const bool layer = kind == NormKind::Layer;
    const Shape matrix{rows, cols}, row{cols}, stats{rows};
    const TensorId x = t.input("x", matrix, -2, 3), w = t.input("w", row, 0.5, 1.5), b = t.input("b", row);
    const TensorId dy = t.input("dy", matrix), sums = t.output("sums", Shape{2, rows}),
                   back = t.output("back", Shape{2, rows});
    const TensorId y = t.output("y", matrix), mean = t.output("mean", stats), rstd = t.output("rstd", stats);
    const TensorId z = t.output("z", matrix), dw = t.input("dw", row), db = t.input("db", row);
    const TensorId dx = t.output("dx", matrix), dx2 = t.output("dx2", matrix);
    const TensorId dw2 = t.output("dw2", row), db2 = t.output("db2", row);
    t.result(dw);
    const NormForward forward{kind, rows, cols, 1e-5, t.dtype()};
    const NormBackward backward{kind, rows, cols, 1e-5, true, t.dtype()};
    const NormApply apply{kind, rows, cols, cols, 1e-5, t.dtype()};
    t.add(NormSums{kind, rows, cols, t.dtype()}, reads(x), writes(sums));
    if (layer) {
      t.result(db);
      t.add(forward, reads(x), reads(w), reads(b), writes(y), writes(mean), writes(rstd));
      t.add(apply, reads(x), reads(sums), reads(w), reads(b), writes(z));
      t.add(backward, reads(x), reads(w), reads(mean), reads(rstd), reads(dy), writes(dx), updates(dw), updates(db));
      t.add(NormBackwardSums{kind, rows, cols, false, t.dtype()}, reads(x), reads(w), reads(mean), reads(rstd),
            reads(dy), writes(back), writes(dw2), writes(db2));
      t.add(NormBackwardApply{kind, rows, cols, cols, t.dtype()}, reads(x), reads(w), reads(mean), reads(rstd),
            reads(dy), reads(back), writes(dx2));
    } else {
      t.add(Fill{rows, 0, t.dtype()}, writes(mean));
      t.add(Add{1, cols, t.dtype()}, reads(b), reads(db), writes(db2));
      t.add(forward, reads(x), reads(w), writes(y), writes(rstd));
      t.add(apply, reads(x), reads(sums), reads(w), writes(z));
      t.add(backward, reads(x), reads(w), reads(rstd), reads(dy), writes(dx), updates(dw));
      t.add(NormBackwardSums{kind, rows, cols, false, t.dtype()}, reads(x), reads(w), reads(rstd), reads(dy),
            writes(back), writes(dw2));
      t.add(NormBackwardApply{kind, rows, cols, cols, t.dtype()}, reads(x), reads(w), reads(rstd), reads(dy),
            reads(back), writes(dx2));
      const TensorId plain = t.output("plain", matrix), root = t.output("root", stats),
                     slope = t.output("slope", matrix);
      t.add(NormForward{kind, rows, cols, 1e-5, t.dtype(), false}, reads(x), writes(plain), writes(root));
      t.add(NormBackward{kind, rows, cols, 1e-5, false, t.dtype(), false}, reads(x), reads(root), reads(dy),
            writes(slope));
    }
  });
}

TEST_CASE("softmax, its mask and its gradient", "[cuda]") {
  const std::int64_t width = GENERATE(35, 64, 1040, 8464);
  compare_with_host([&](OpTrial& t) {
    const TensorId x = t.input("x", Shape{6, width}, -5, 5), dy = t.input("dy", Shape{6, width});
    std::vector<std::int32_t> cols(static_cast<std::size_t>(width));
    for (int i = 0; i < width; ++i) cols[std::size_t(i)] = i;
    const TensorId rows = t.indices("rows", Shape{3}, {4, 20, static_cast<std::int32_t>(width) - 1}),
                   columns = t.indices("columns", Shape{width}, cols);
    const TensorId y = t.output("y", Shape{6, width});
    t.add(SoftmaxForward{.rows = 6, .cols = width, .scale = 0.7, .dtype = t.dtype()}, reads(x), writes(y));
    t.add(SoftmaxForward{.rows = 6, .cols = width, .scale = 0.7, .period = 3, .causal = true, .dtype = t.dtype()},
          reads(x), reads(rows), reads(columns), writes(t.output("masked", Shape{6, width})));
    for (const bool chunked : {false, true})
      t.add(SoftmaxForward{.rows = 6,
                           .cols = width,
                           .scale = 0.7,
                           .period = 3,
                           .causal = true,
                           .window = 6,
                           .chunked = chunked,
                           .dtype = t.dtype()},
            reads(x), reads(rows), reads(columns),
            writes(t.output(chunked ? "masked_in_chunks" : "masked_by_window", Shape{6, width})));
    t.add(SoftmaxBackward{6, width, 0.7, t.dtype()}, reads(y), reads(dy), writes(t.output("dx", Shape{6, width})));
  });
}

TEST_CASE("cross-entropy, whole and over shards of the classes", "[cuda]") {
  const std::int64_t classes = GENERATE(37, 64, 8465);  // more than a block reads at once, and rows begin anywhere
  compare_with_host([&](OpTrial& t) {
    const Shape matrix{7, classes}, row{7};
    const TensorId x = t.input("x", matrix, -3, 3), targets = t.indices("targets", row, {0, 5, -100, 36, 2, -1, 9});
    const TensorId whole = t.indices("whole", row, {0, 5, -100, 36, 2, 1, 9});
    const TensorId lse = t.output("lse", row), lse2 = t.output("lse2", row), max = t.output("max", row);
    const TensorId sums = t.output("sums", Shape{2, 7}), loss = t.input("loss", Shape{1}),
                   loss2 = t.input("loss2", Shape{1});
    t.result(loss);
    t.result(loss2);
    t.add(CrossEntropyForward{7, classes, 0.25, t.dtype()}, reads(x), reads(whole), writes(lse), updates(loss));
    t.add(CrossEntropyBackward{7, classes, 0.25, t.dtype()}, reads(x), reads(targets), reads(lse),
          writes(t.output("dx", matrix)));
    t.add(RowMax{7, classes, t.dtype()}, reads(x), writes(max));
    t.add(CrossEntropySums{7, classes, t.dtype()}, reads(x), reads(targets), reads(max), writes(sums));
    t.add(CrossEntropyFinish{7, 0.25, t.dtype()}, reads(targets), reads(max), reads(sums), writes(lse2),
          updates(loss2));
    const TensorId steps = t.output("steps", matrix), sums2 = t.output("sums2", Shape{2, 7});
    t.add(CopyRows{7, classes, t.dtype()}, reads(x), writes(steps));
    t.add(CrossEntropySums{7, classes, t.dtype(), true}, updates(steps), reads(targets), reads(max), writes(sums2));
    t.add(CrossEntropyBackward{7, classes, 0.25, t.dtype(), true}, updates(steps), reads(targets), reads(sums2));
  });
}
