// SPDX-License-Identifier: Apache-2.0
// Tensor parallelism on a square of ranks, as in Optimus (arXiv 2104.05343), or on several squares one behind another,
// as in Tesseract (2.5D, arXiv 2105.14500). Samples are split over depth and row, columns and heads over col; a matrix
// is cut into blocks, inputs over row and outputs over col, and multiplied as in summa.hpp. Attention is local. The
// table of tokens has its vocabulary over row and serves logits too, whose classes lie over col. Squares share nothing
// but weights: their gradients add up over depth like those of replicas. Biases, norms and positions are split over col
// and equal along row; Optimus keeps them on row 0 and broadcasts them at each use.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"
#include "sim/strategy/summa.hpp"
#include "sim/strategy/tensor_mesh.hpp"

namespace orrery {
namespace {

Summa summa_of(Layers& l) {
  const Roles& r = l.roles();
  return {
      .builder = l.tape().builder(), .row = r.row, .col = r.col, .overlap = r.tensor_overlap, .dtype = l.sizes().dtype};
}

class Tensor2d final : public TensorMesh {
 public:
  Split columns(const Roles& roles) const override { return roles.col; }
  Split classes(const Roles& roles) const override { return roles.col; }
  std::vector<Split> axes(const Roles& roles) const override { return {roles.depth, roles.row, roles.col}; }
  MatrixCut cut(const Roles& roles, Use use, WeightLayout layout) const override {
    const bool first = use == Use::Table || layout == WeightLayout::InOut;
    return {{{first ? roles.row : roles.col}, {first ? roles.col : roles.row}}, {roles.col}};
  }

  TensorId linear(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Linear& w) const override;
  TensorId project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return linear(l, name, x, l.tape().plan().shape(x)[0], w);
  }
  TensorId project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return linear(l, name, x, l.tape().plan().shape(x)[0], w);
  }
  TensorId embed(Layers& l, std::string_view name, TensorId table, TensorId index) const override;
  TensorId logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const override;
};

/// Y = X·W; dX = dY·Wᵀ; dW = Xᵀ·dY, or dWᵀ = dYᵀ·X where Wᵀ is stored.
TensorId Tensor2d::linear(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Linear& w) const {
  Tape& tape = l.tape();
  const Summa s = summa_of(l);
  const bool stored_out_in = w.layout == WeightLayout::OutIn;
  const Gemm g{.m = rows, .n = w.out, .k = w.in, .transpose_b = stored_out_in, .dtype = s.dtype};
  const TensorId y = l.activation_tensor(name, Shape{rows, w.out}), weight = l.weight(w.weight),
                 bias = w.bias.is_none() ? TensorId{} : l.weight(w.bias);
  std::vector<Operand> operands{reads(x), reads(weight), writes(y)};
  if (!bias.is_none()) operands.push_back(reads(bias));
  tape.add_steps(operands, [s, g, n = std::string{name}](std::span<const TensorId> t) {
    s.multiply(n, g, {t[0], s.col}, {t[1], s.row}, t.size() > 3 ? t[3] : TensorId{}, t[2]);
  });
  tape.on_backward([&tape, s, g, x, weight, bias, y, n = std::string{name}] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    if (tape.wants(x)) {
      const TensorId dx = tape.contribution(x);
      const Gemm back{.m = g.m, .n = g.k, .k = g.n, .transpose_b = !g.transpose_b, .dtype = g.dtype};
      s.multiply(n + ".dx", back, {dy, {}}, {tape.saved(weight), s.row}, {}, dx, s.col);
      tape.contribute(x, dx);
    }
    tape.defer([&tape, s, g, x, weight, bias, dy, n] {
      const Summa::Factor rows_of_x{tape.saved(x), s.col}, rows_of_dy{dy, {}};
      Gemm back{.m = g.k, .n = g.n, .k = g.m, .transpose_a = true, .dtype = g.dtype};
      if (g.transpose_b) std::swap(back.m, back.n);
      add_to_gradient(tape, n + ".dw", weight, [&](TensorId dw) {
        s.multiply(n + ".dw", back, g.transpose_b ? rows_of_dy : rows_of_x, g.transpose_b ? rows_of_x : rows_of_dy, {},
                   dw, s.row);
      });
      if (!bias.is_none()) add_bias_gradient(tape, n + ".db", bias, dy);
    });
  });
  return y;
}

/// Y = X·Eᵀ, E being the table [classes, columns]; dX = dY·E; dE = dYᵀ·X.
TensorId Tensor2d::logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const {
  Tape& tape = l.tape();
  const Summa s = summa_of(l);
  const std::int64_t rows = tape.plan().shape(x)[0];
  const TensorId y = l.activation_tensor(name, Shape{rows, w.out}), table = l.weight(w.weight);
  const Gemm g{.m = rows, .n = w.out, .k = w.in, .transpose_b = true, .dtype = s.dtype};
  const std::vector<Operand> operands{reads(x), reads(table), writes(y)};
  tape.add_steps(operands, [s, g, n = std::string{name}](std::span<const TensorId> t) {
    s.multiply(n, g, {t[0], {}}, {t[1], s.row}, {}, t[2], s.col);
  });
  tape.on_backward([&tape, s, g, x, table, y, n = std::string{name}] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape.contribution(x);
    const Gemm back{.m = g.m, .n = g.k, .k = g.n, .dtype = g.dtype};
    s.multiply(n + ".dx", back, {dy, s.col}, {tape.saved(table), s.row}, {}, dx);
    tape.contribute(x, dx);
    tape.defer([&tape, s, g, x, table, dy, n] {
      const Gemm back{.m = g.n, .n = g.k, .k = g.m, .transpose_a = true, .dtype = g.dtype};
      add_to_gradient(tape, n + ".dw", table, [&](TensorId dw) {
        s.multiply(n + ".dw", back, {dy, s.col}, {tape.saved(x), {}}, {}, dw, s.row);
      });
    });
  });
  return l.add_bias(name, y, w.bias);
}

/// In step i the i-th part of the vocabulary is broadcast over row; its rows are taken out of it, zeros for others.
/// Backward, the gradient of that part is summed over row.
TensorId Tensor2d::embed(Layers& l, std::string_view name, TensorId table, TensorId index) const {
  Tape& tape = l.tape();
  const Summa s = summa_of(l);
  const Shape part = tape.plan().shape(table);
  const std::int64_t rows = tape.plan().shape(index).elements(), cols = part[1];
  const TensorId y = l.activation_tensor(name, Shape{rows, cols});
  const std::vector<Operand> operands{reads(table), reads(index), writes(y)};
  tape.add_steps(operands, [s, part, rows, cols, n = std::string{name}](std::span<const TensorId> t) {
    const TensorId fetched = s.buffer(n + ".table", part), more = s.buffer(n + ".more", Shape{rows, cols});
    for (std::int64_t i = 0; i < s.row.ranks; ++i) {
      s.broadcast(n + ".table", t[0], s.row, i, fetched);
      const Gather gather{rows, cols, part[0], i * part[0], (i + 1) * part[0], s.dtype};
      s.builder.add(n, gather, {reads(fetched), reads(t[1]), writes(i == 0 ? t[2] : more)});
      if (i > 0) s.builder.add(n + ".add", Add{rows, cols, s.dtype}, {updates(t[2]), reads(more)});
    }
  });
  tape.on_backward([&tape, s, part, rows, cols, table, index, y, n = fmt::format("{}.dw", name)] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    add_to_gradient(tape, n, table, [&](TensorId dw) {
      const TensorId sum = s.buffer(n + ".sum", part);
      for (std::int64_t i = 0; i < s.row.ranks; ++i) {
        tape.emit(n + ".zero", Fill{.elements = part.elements(), .dtype = s.dtype}, {writes(sum)});
        tape.emit(n, ScatterAdd{rows, cols, part[0], i * part[0], (i + 1) * part[0], s.dtype},
                  {reads(dy), reads(index), updates(sum)});
        s.reduce(n + ".sum", sum, s.row, i, dw);
      }
    });
  });
  return y;
}

}  // namespace

const TensorScheme& tensor_2d() {
  static const Tensor2d scheme;
  return scheme;
}

}  // namespace orrery
