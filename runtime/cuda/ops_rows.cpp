// SPDX-License-Identifier: Apache-2.0
// Norms, softmax and losses: ops that reduce rows.
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/rows.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

/// dγ and dβ of a norm from dy (operand `dy`) and x (operand 0); β there when `db` is.
template <class T>
void norm_parameters(const GpuContext<T>& c, std::int64_t rows, std::int64_t cols, int dy, gpu::Numbers mean,
                     gpu::Numbers rstd, int dw, int db, bool adds) {
  const std::int64_t parts = gpu::column_parts(rows), tiles = gpu::blocks_of<std::int64_t>(cols, 128);
  auto *product = c.template scratch<float>(), *plain = product + parts * cols;
  c.launch(gpu::ColumnPartsKernel<T>{.rows = rows,
                                     .cols = cols,
                                     .period = 1,
                                     .dy_stride = c.row_stride(dy, rows, cols),
                                     .x_stride = c.row_stride(0, rows, cols),
                                     .dy = c.data(dy),
                                     .x = c.data(0),
                                     .mean = mean,
                                     .rstd = rstd,
                                     .product = product,
                                     .plain = db >= 0 ? plain : nullptr},
           parts * tiles);
  c.over(gpu::SumPartsKernel<T>{.parts = parts, .cols = cols, .from = product, .out = c.dense(dw), .adds = adds}, cols);
  if (db >= 0)
    c.over(gpu::SumPartsKernel<T>{.parts = parts, .cols = cols, .from = plain, .out = c.dense(db), .adds = adds}, cols);
}

}  // namespace

template <class T>
void run(const NormForward& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int y = c.num_reads(), last = c.size() - 1;  // x [w] [b] → y [mean] rstd
  c.each_row(gpu::NormKernel<T>{.layer = layer,
                                .wide = c.is_wide(0, n.rows, n.dim),
                                .rows = n.rows,
                                .cols = n.dim,
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
             n.rows, gpu::kRowShared);
}

/// Operands: x [w] [mean] rstd dy → dx [dw] [db].
template <class T>
void run(const NormBackward& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int rstd_at = 1 + (n.weighted ? 1 : 0) + (layer ? 1 : 0), dy = rstd_at + 1, dx = dy + 1;
  const gpu::Numbers means = layer ? c.numbers(2) : c.no_numbers(), rstd = c.numbers(rstd_at);
  c.each_row(gpu::NormSlopeKernel<T>{.layer = layer,
                                     .adds = c.operand(dx).access == Access::ReadWrite,
                                     .rows = n.rows,
                                     .cols = n.dim,
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
                                     .offset = static_cast<float>(weight_offset(n.kind))},
             n.rows, gpu::kRowShared);
  if (n.weighted)
    norm_parameters(c, n.rows, n.dim, dy, means, rstd, dx + 1, c.size() > dx + 2 ? dx + 2 : -1, n.accumulate);
}

template <class T>
void run(const NormSums& n, const GpuContext<T>& c) {
  c.each_row(gpu::RowValueKernel<T>{.what = gpu::RowValue::NormSums,
                                    .layer = n.kind == NormKind::Layer,
                                    .rows = n.rows,
                                    .cols = n.cols,
                                    .x_stride = c.row_stride(0, n.rows, n.cols),
                                    .b_stride = 0,
                                    .x = c.data(0),
                                    .b = nullptr,
                                    .targets = nullptr,
                                    .most = {},
                                    .out = c.numbers(1)},
             n.rows, gpu::kRowShared);
}

template <class T>
void run(const NormApply& n, const GpuContext<T>& c) {
  const int y = c.num_reads(), last = c.size() - 1;  // x sums w [b] → y [mean] rstd
  c.each_row(gpu::NormApplyKernel<T>{.layer = n.kind == NormKind::Layer,
                                     .rows = n.rows,
                                     .cols = n.cols,
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
                                     .offset = static_cast<float>(weight_offset(n.kind))},
             n.rows);
}

template <class T>
void run(const NormBackwardSums& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int mean = layer ? 1 : 0, dy = 3 + mean;  // x w [mean] rstd dy → sums dw [db]
  const gpu::Numbers means = layer ? c.numbers(2) : c.no_numbers(), rstd = c.numbers(2 + mean);
  c.each_row(gpu::NormSlopeSumsKernel<T>{.layer = layer,
                                         .rows = n.rows,
                                         .cols = n.cols,
                                         .x_stride = c.row_stride(0, n.rows, n.cols),
                                         .dy_stride = c.row_stride(dy, n.rows, n.cols),
                                         .x = c.data(0),
                                         .gamma = c.dense(1),
                                         .dy = c.data(dy),
                                         .mean = means,
                                         .rstd = rstd,
                                         .sums = c.numbers(dy + 1),
                                         .offset = static_cast<float>(weight_offset(n.kind))},
             n.rows, gpu::kRowShared);
  norm_parameters(c, n.rows, n.cols, dy, means, rstd, dy + 2, c.size() > dy + 3 ? dy + 3 : -1, n.accumulate);
}

template <class T>
void run(const NormBackwardApply& n, const GpuContext<T>& c) {
  const bool layer = n.kind == NormKind::Layer;
  const int mean = layer ? 1 : 0, dy = 3 + mean, dx = dy + 2;  // x w [mean] rstd dy sums → dx
  c.each_row(gpu::NormSlopeKernel<T>{.layer = layer,
                                     .adds = c.operand(dx).access == Access::ReadWrite,
                                     .rows = n.rows,
                                     .cols = n.cols,
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
             n.rows, gpu::kRowShared);
}

template <class T>
void run(const SoftmaxForward& w, const GpuContext<T>& c) {
  const int y = c.output();
  c.each_row(gpu::SoftmaxKernel<T>{.rows = w.rows,
                                   .cols = w.cols,
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
             w.rows, gpu::kRowShared);
}

template <class T>
void run(const SoftmaxBackward& w, const GpuContext<T>& c) {
  const auto stride = [&](int i) { return c.row_stride(i, w.rows, w.cols); };
  const int dx = c.output();
  c.each_row(gpu::SoftmaxSlopeKernel<T>{.rows = w.rows,
                                        .cols = w.cols,
                                        .y_stride = stride(0),
                                        .dy_stride = stride(1),
                                        .dx_stride = stride(dx),
                                        .y = c.data(0),
                                        .dy = c.data(1),
                                        .dx = c.data(dx),
                                        .scale = static_cast<float>(w.scale)},
             w.rows, gpu::kRowShared);
}

namespace {

/// One number per row of operand 0.
template <class T>
void row_value(const GpuContext<T>& c, gpu::RowValue what, std::int64_t rows, std::int64_t cols, int b, int out) {
  c.each_row(gpu::RowValueKernel<T>{.what = what,
                                    .layer = false,
                                    .rows = rows,
                                    .cols = cols,
                                    .x_stride = c.row_stride(0, rows, cols),
                                    .b_stride = b >= 0 ? c.row_stride(b, rows, cols) : 0,
                                    .x = c.data(0),
                                    .b = b >= 0 ? c.data(b) : nullptr,
                                    .targets = nullptr,
                                    .most = {},
                                    .out = c.numbers(out)},
             rows, gpu::kRowShared);
}

/// Over operand 0 with the targets of operand 1.
template <class T>
void loss_step(const GpuContext<T>& c, gpu::LossStep step, std::int64_t rows, std::int64_t classes, double weight,
               gpu::Numbers most, gpu::Numbers sums) {
  c.each_row(gpu::LossStepKernel<T>{.step = step,
                                    .rows = rows,
                                    .classes = classes,
                                    .weight = static_cast<float>(weight),
                                    .x = c.dense(0),
                                    .targets = c.ints(1),
                                    .most = most,
                                    .sums = sums},
             rows);
}

}  // namespace

template <class T>
void run(const CrossEntropyForward& w, const GpuContext<T>& c) {
  auto* losses = c.template scratch<float>();
  c.each_row(gpu::CrossEntropyKernel<T>{.rows = w.rows,
                                        .classes = w.classes,
                                        .wide = c.is_wide(0, w.rows, w.classes),
                                        .logits = c.dense(0),
                                        .targets = c.ints(1),
                                        .lse = c.numbers(2),
                                        .losses = losses},
             w.rows, gpu::kRowShared);
  c.launch(gpu::TotalKernel<float>{w.rows, losses, w.weight, c.numbers(3)}, 1, gpu::kTotalShared);
}

template <class T>
void run(const CrossEntropyBackward& w, const GpuContext<T>& c) {
  if (w.op_by_op) {
    for (const gpu::LossStep step : {gpu::LossStep::Divide, gpu::LossStep::Scale})
      loss_step(c, step, w.rows, w.classes, w.weight, c.no_numbers(), c.numbers(2));
    return;
  }
  c.each_row(gpu::CrossEntropySlopeKernel<T>{.rows = w.rows,
                                             .classes = w.classes,
                                             .weight = static_cast<float>(w.weight),
                                             .logits = c.dense(0),
                                             .targets = c.ints(1),
                                             .lse = c.numbers(2),
                                             .dlogits = c.dense(c.output())},
             w.rows);
}

template <class T>
void run(const CrossEntropySums& w, const GpuContext<T>& c) {
  if (w.op_by_op) {
    for (const gpu::LossStep step : {gpu::LossStep::Subtract, gpu::LossStep::Exponentiate})
      loss_step(c, step, w.rows, w.classes, 1.0, c.numbers(2), c.numbers(3));
    row_value(c, gpu::RowValue::Sum, w.rows, w.classes, -1, 3);
    return;
  }
  c.each_row(gpu::RowValueKernel<T>{.what = gpu::RowValue::CrossEntropySums,
                                    .layer = false,
                                    .rows = w.rows,
                                    .cols = w.classes,
                                    .x_stride = w.classes,
                                    .b_stride = 0,
                                    .x = c.dense(0),
                                    .b = nullptr,
                                    .targets = c.ints(1),
                                    .most = c.numbers(2),
                                    .out = c.numbers(3)},
             w.rows, gpu::kRowShared);
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
