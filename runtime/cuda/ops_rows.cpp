// SPDX-License-Identifier: Apache-2.0
// Norms, softmax and losses: ops that reduce rows.
#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/norms.hpp"
#include "kernels/cuda/rows.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

using Operands = std::initializer_list<int>;

/// How rows of these operands are shared out; `along` are single rows beside them.
template <class T>
gpu::RowTeams teams_of(const GpuContext<T>& c, std::int64_t rows, std::int64_t cols, Operands matrices,
                       Operands along = {}) {
  bool wide = true;
  for (const int i : matrices) wide = wide && c.is_wide(i, rows, cols);
  for (const int i : along) wide = wide && c.call().place(c.operand(i)) % 16 == 0;
  return gpu::row_teams(rows, cols, wide ? gpu::RowForm::Held : gpu::RowForm::Numbers);
}
/// The same of dense rows that are read once, and written to where they lie alike in words of 16 bytes.
template <class T>
gpu::RowTeams read_teams(const GpuContext<T>& c, std::int64_t rows, std::int64_t cols, int x, int y) {
  const bool alike = c.call().place(c.operand(x)) % 16 == c.call().place(c.operand(y)) % 16;
  return gpu::row_teams(rows, cols, alike ? gpu::RowForm::Packs : gpu::RowForm::Numbers);
}
template <class T, class K>
void over_rows(const GpuContext<T>& c, const K& kernel, std::size_t shared_bytes = 0) {
  c.each_row(kernel, kernel.teams.blocks(), shared_bytes);
}

/// What is left of dγ and dβ of a norm behind their parts; β there when `db` is.
template <class T>
void sum_parts(const GpuContext<T>& c, std::int64_t parts, std::int64_t cols, const float* product, const float* plain,
               int dw, int db, bool adds) {
  const auto sum = [&](const float* from, int out) {
    const gpu::SumPartsKernel<T> k{.parts = parts, .cols = cols, .from = from, .out = c.dense(out), .adds = adds};
    c.each_row(k, k.blocks(), k.kShared);
  };
  sum(product, dw);
  if (db >= 0) sum(plain, db);
}

/// dγ and dβ of a norm from dy (operand `dy`) and x (operand 0).
template <class T>
void norm_parameters(const GpuContext<T>& c, std::int64_t rows, std::int64_t cols, int dy, gpu::Numbers mean,
                     gpu::Numbers rstd, int dw, int db, bool adds) {
  const std::int64_t parts = gpu::column_parts(rows);
  auto *product = c.template scratch<float>(), *plain = product + parts * cols;
  const gpu::ColumnPartsKernel<T> k{.rows = rows,
                                    .cols = cols,
                                    .period = 1,
                                    .dy_stride = c.row_stride(dy, rows, cols),
                                    .x_stride = c.row_stride(0, rows, cols),
                                    .dy = c.data(dy),
                                    .x = c.data(0),
                                    .mean = mean,
                                    .rstd = rstd,
                                    .product = product,
                                    .plain = db >= 0 ? plain : nullptr,
                                    .wide = c.is_wide(dy, rows, cols) && c.is_wide(0, rows, cols)};
  c.launch(k, k.blocks());
  sum_parts(c, parts, cols, product, plain, dw, db, adds);
}

}  // namespace

template <class T>
void run(const NormForward& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int y = c.num_reads(), last = c.size() - 1;  // x [w] [b] → y [mean] rstd
  over_rows(c,
            gpu::NormKernel<T>{.layer = layer,
                               .teams = teams_of(c, n.rows, n.dim, {0, y}, {n.weighted ? 1 : 0, y > 2 ? 2 : 0}),
                               .x_stride = c.row_stride(0, n.rows, n.dim),
                               .y_stride = c.row_stride(y, n.rows, n.dim),
                               .x = c.data(0),
                               .gamma = n.weighted ? c.dense(1) : nullptr,
                               .beta = y > 2 ? c.dense(2) : nullptr,
                               .y = c.data(y),
                               .mean = last > y + 1 ? c.numbers(y + 1) : c.no_numbers(),
                               .rstd = last > y ? c.numbers(last) : c.no_numbers(),
                               .epsilon = static_cast<float>(n.epsilon),
                               .offset = static_cast<float>(weight_offset(n.kind))},
            gpu::kRowShared);
}

/// Operands: x [w] [mean] rstd dy → dx [dw] [db]. Rows of whole packs give the parts of dw and db on the way.
template <class T>
void run(const NormBackward& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int rstd_at = 1 + (n.weighted ? 1 : 0) + (layer ? 1 : 0), dy = rstd_at + 1, dx = dy + 1;
  const int dw = dx + 1, db = c.size() > dx + 2 ? dx + 2 : -1;
  const gpu::Numbers means = layer ? c.numbers(2) : c.no_numbers(), rstd = c.numbers(rstd_at);
  gpu::NormSlopeKernel<T> k{.layer = layer,
                            .adds = c.operand(dx).access == Access::ReadWrite,
                            .teams = teams_of(c, n.rows, n.dim, {0, dy, dx}, {n.weighted ? 1 : 0}),
                            .total = n.dim,
                            .x_stride = c.row_stride(0, n.rows, n.dim),
                            .dy_stride = c.row_stride(dy, n.rows, n.dim),
                            .dx_stride = c.row_stride(dx, n.rows, n.dim),
                            .x = c.data(0),
                            .gamma = n.weighted ? c.dense(1) : nullptr,
                            .dy = c.data(dy),
                            .dx = c.data(dx),
                            .mean = means,
                            .rstd = rstd,
                            .sums = {},
                            .offset = static_cast<float>(weight_offset(n.kind))};
  if (!n.weighted || k.teams.form == gpu::RowForm::Numbers || n.dim > gpu::kNormColumns) {
    over_rows(c, k, gpu::kRowShared);
    if (n.weighted) norm_parameters(c, n.rows, n.dim, dy, means, rstd, dw, db, n.accumulate);
    return;
  }
  const std::int64_t blocks = std::min(k.teams.blocks(), gpu::kNormBlocks);
  k.product = c.template scratch<float>();
  if (db >= 0) k.plain = k.product + blocks * n.dim;
  c.launch(k, blocks, k.shared_bytes());
  sum_parts(c, blocks, n.dim, k.product, k.plain, dw, db, n.accumulate);
}

template <class T>
void run(const NormSums& n, const GpuContext<T>& c) {
  over_rows(c,
            gpu::RowValueKernel<T>{.what = gpu::RowValue::NormSums,
                                   .layer = n.kind == NormKind::Layer,
                                   .teams = teams_of(c, n.rows, n.cols, {0}),
                                   .x_stride = c.row_stride(0, n.rows, n.cols),
                                   .b_stride = 0,
                                   .x = c.data(0),
                                   .b = nullptr,
                                   .targets = nullptr,
                                   .most = {},
                                   .out = c.numbers(1)},
            gpu::kRowShared);
}

template <class T>
void run(const NormApply& n, const GpuContext<T>& c) {
  const int y = c.num_reads(), last = c.size() - 1;  // x sums w [b] → y [mean] rstd
  over_rows(c, gpu::NormApplyKernel<T>{.layer = n.kind == NormKind::Layer,
                                       .teams = teams_of(c, n.rows, n.cols, {0, y}, {2, y > 3 ? 3 : 2}),
                                       .total = n.dim,
                                       .x_stride = c.row_stride(0, n.rows, n.cols),
                                       .y_stride = c.row_stride(y, n.rows, n.cols),
                                       .x = c.data(0),
                                       .gamma = c.dense(2),
                                       .beta = y > 3 ? c.dense(3) : nullptr,
                                       .y = c.data(y),
                                       .sums = c.numbers(1),
                                       .mean = last > y + 1 ? c.numbers(y + 1) : c.no_numbers(),
                                       .rstd = last > y ? c.numbers(last) : c.no_numbers(),
                                       .epsilon = static_cast<float>(n.epsilon),
                                       .offset = static_cast<float>(weight_offset(n.kind))});
}

template <class T>
void run(const NormBackwardSums& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int mean = layer ? 1 : 0, dy = 3 + mean;  // x w [mean] rstd dy → sums dw [db]
  const gpu::Numbers means = layer ? c.numbers(2) : c.no_numbers(), rstd = c.numbers(2 + mean);
  over_rows(c,
            gpu::NormSlopeSumsKernel<T>{.layer = layer,
                                        .teams = teams_of(c, n.rows, n.cols, {0, dy}, {1}),
                                        .x_stride = c.row_stride(0, n.rows, n.cols),
                                        .dy_stride = c.row_stride(dy, n.rows, n.cols),
                                        .x = c.data(0),
                                        .gamma = c.dense(1),
                                        .dy = c.data(dy),
                                        .mean = means,
                                        .rstd = rstd,
                                        .sums = c.numbers(dy + 1),
                                        .offset = static_cast<float>(weight_offset(n.kind))},
            gpu::kRowShared);
  norm_parameters(c, n.rows, n.cols, dy, means, rstd, dy + 2, c.size() > dy + 3 ? dy + 3 : -1, n.accumulate);
}

template <class T>
void run(const NormBackwardApply& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int mean = layer ? 1 : 0, dy = 3 + mean, dx = dy + 2;  // x w [mean] rstd dy sums → dx
  over_rows(c,
            gpu::NormSlopeKernel<T>{.layer = layer,
                                    .adds = c.operand(dx).access == Access::ReadWrite,
                                    .teams = teams_of(c, n.rows, n.cols, {0, dy, dx}, {1}),
                                    .total = n.dim,
                                    .x_stride = c.row_stride(0, n.rows, n.cols),
                                    .dy_stride = c.row_stride(dy, n.rows, n.cols),
                                    .dx_stride = c.row_stride(dx, n.rows, n.cols),
                                    .x = c.data(0),
                                    .gamma = c.dense(1),
                                    .dy = c.data(dy),
                                    .dx = c.data(dx),
                                    .mean = layer ? c.numbers(2) : c.no_numbers(),
                                    .rstd = c.numbers(2 + mean),
                                    .sums = c.numbers(dy + 1),
                                    .offset = static_cast<float>(weight_offset(n.kind))},
            gpu::kRowShared);
}

template <class T>
void run(const SoftmaxForward& w, const GpuContext<T>& c) {
  const int y = c.output();
  over_rows(c,
            gpu::SoftmaxKernel<T>{.teams = teams_of(c, w.rows, w.cols, {0, y}),
                                  .x_stride = c.row_stride(0, w.rows, w.cols),
                                  .y_stride = c.row_stride(y, w.rows, w.cols),
                                  .period = w.period,
                                  .x = c.data(0),
                                  .y = c.data(y),
                                  .scale = static_cast<float>(w.scale),
                                  .row_positions = w.causal ? c.ints(1) : nullptr,
                                  .col_positions = w.causal ? c.ints(2) : nullptr,
                                  .window = w.window,
                                  .chunked = w.chunked},
            gpu::kRowShared);
}

template <class T>
void run(const SoftmaxBackward& w, const GpuContext<T>& c) {
  const auto stride = [&](int i) { return c.row_stride(i, w.rows, w.cols); };
  const int dx = c.output();
  over_rows(c,
            gpu::SoftmaxSlopeKernel<T>{.teams = teams_of(c, w.rows, w.cols, {0, 1, dx}),
                                       .y_stride = stride(0),
                                       .dy_stride = stride(1),
                                       .dx_stride = stride(dx),
                                       .y = c.data(0),
                                       .dy = c.data(1),
                                       .dx = c.data(dx),
                                       .scale = static_cast<float>(w.scale)},
            gpu::kRowShared);
}

namespace {

/// One number per row of operand 0.
template <class T>
void row_value(const GpuContext<T>& c, gpu::RowValue what, std::int64_t rows, std::int64_t cols, int b, int out) {
  over_rows(c,
            gpu::RowValueKernel<T>{.what = what,
                                   .layer = false,
                                   .teams = teams_of(c, rows, cols, {0, b >= 0 ? b : 0}),
                                   .x_stride = c.row_stride(0, rows, cols),
                                   .b_stride = b >= 0 ? c.row_stride(b, rows, cols) : 0,
                                   .x = c.data(0),
                                   .b = b >= 0 ? c.data(b) : nullptr,
                                   .targets = nullptr,
                                   .most = {},
                                   .out = c.numbers(out)},
            gpu::kRowShared);
}

/// Over operand 0 with the targets of operand 1.
template <class T>
void loss_step(const GpuContext<T>& c, gpu::LossStep step, std::int64_t rows, std::int64_t classes, double weight,
               gpu::Numbers most, gpu::Numbers sums) {
  over_rows(c, gpu::LossStepKernel<T>{.step = step,
                                      .teams = read_teams(c, rows, classes, 0, 0),
                                      .weight = static_cast<float>(weight),
                                      .x = c.dense(0),
                                      .targets = c.ints(1),
                                      .most = most,
                                      .sums = sums});
}

}  // namespace

template <class T>
void run(const CrossEntropyForward& w, const GpuContext<T>& c) {
  auto* losses = c.template scratch<float>();
  over_rows(c,
            gpu::CrossEntropyKernel<T>{.teams = read_teams(c, w.rows, w.classes, 0, 0),
                                       .logits = c.dense(0),
                                       .targets = c.ints(1),
                                       .lse = c.numbers(2),
                                       .losses = losses},
            gpu::kRowShared);
  c.launch(gpu::TotalKernel<float>{w.rows, losses, w.weight, c.numbers(3)}, 1, gpu::kTotalShared);
}

template <class T>
void run(const CrossEntropyBackward& w, const GpuContext<T>& c) {
  if (w.op_by_op) {
    for (const gpu::LossStep step : {gpu::LossStep::Divide, gpu::LossStep::Scale})
      loss_step(c, step, w.rows, w.classes, w.weight, c.no_numbers(), c.numbers(2));
    return;
  }
  over_rows(c, gpu::CrossEntropySlopeKernel<T>{.teams = read_teams(c, w.rows, w.classes, 0, c.output()),
                                               .weight = static_cast<float>(w.weight),
                                               .logits = c.dense(0),
                                               .targets = c.ints(1),
                                               .lse = c.numbers(2),
                                               .dlogits = c.dense(c.output())});
}

template <class T>
void run(const CrossEntropySums& w, const GpuContext<T>& c) {
  if (w.op_by_op) {
    for (const gpu::LossStep step : {gpu::LossStep::Subtract, gpu::LossStep::Exponentiate})
      loss_step(c, step, w.rows, w.classes, 1.0, c.numbers(2), c.numbers(3));
    row_value(c, gpu::RowValue::Sum, w.rows, w.classes, -1, 3);
    return;
  }
  over_rows(c,
            gpu::RowValueKernel<T>{.what = gpu::RowValue::CrossEntropySums,
                                   .layer = false,
                                   .teams = read_teams(c, w.rows, w.classes, 0, 0),
                                   .x_stride = w.classes,
                                   .b_stride = 0,
                                   .x = c.dense(0),
                                   .b = nullptr,
                                   .targets = c.ints(1),
                                   .most = c.numbers(2),
                                   .out = c.numbers(3)},
            gpu::kRowShared);
}

template <class T>
void run(const CrossEntropyFinish& w, const GpuContext<T>& c) {
  auto* losses = c.template scratch<float>();
  c.over(gpu::CrossEntropyFinishKernel{w.rows, c.ints(0), c.numbers(1), c.numbers(2), c.numbers(3), losses}, w.rows);
  c.launch(gpu::TotalKernel<float>{w.rows, losses, w.weight, c.numbers(4)}, 1, gpu::kTotalShared);
}

template <class T>
void run(const RowMax& w, const GpuContext<T>& c) {
  row_value(c, gpu::RowValue::Max, w.rows, w.cols, -1, 1);
}
template <class T>
void run(const RowDot& w, const GpuContext<T>& c) {
  row_value(c, gpu::RowValue::Dot, c.rows_of(w), w.cols, 1, c.output());  // those in use come first
}

Kernel find_gpu_rows(const Work& work) {
  return find_gpu_typed<NormForward, NormBackward, NormSums, NormApply, NormBackwardSums, NormBackwardApply,
                        SoftmaxForward, SoftmaxBackward, CrossEntropyForward, CrossEntropyBackward, CrossEntropySums,
                        CrossEntropyFinish, RowMax, RowDot>(work);
}

}  // namespace orrery
