// SPDX-License-Identifier: Apache-2.0
// Norms whose columns lie on several ranks.
#include "kernels/host/norm_pieces.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {
namespace {

kernels::NormStyle style_of(NormKind kind) {
  return kind == NormKind::Layer ? kernels::NormStyle::Layer : kernels::NormStyle::Rms;
}

}  // namespace

template <class T>
void run(const NormSums& n, const OpContext<T>& c) {
  kernels::norm_sums(kernels::NormSumsArgs<T>{.style = style_of(n.kind),
                                              .rows = n.rows,
                                              .cols = n.cols,
                                              .x = c.data(0),
                                              .x_stride = c.row_stride(0, n.rows, n.cols),
                                              .sums = c.dense(1)});
}

template <class T>
void run(const NormApply& n, const OpContext<T>& c) {
  const int y = c.num_reads(), last = c.size() - 1;  // x sums w [b] → y [mean] rstd
  kernels::NormApplyArgs<T> a;
  a.style = style_of(n.kind);
  a.rows = n.rows;
  a.cols = n.cols;
  a.dim = n.dim;
  a.x = c.data(0);
  a.x_stride = c.row_stride(0, n.rows, n.cols);
  a.sums = c.dense(1);
  a.gamma = c.dense(2);
  a.offset = T(weight_offset(n.kind));
  a.beta = y > 3 ? c.dense(3) : nullptr;
  a.y = c.data(y);
  a.y_stride = c.row_stride(y, n.rows, n.cols);
  a.mean = last > y + 1 ? c.dense(y + 1) : nullptr;
  a.rstd = last > y ? c.dense(last) : nullptr;
  a.epsilon = T(n.epsilon);
  kernels::norm_apply(a);
}

/// Both pieces of a gradient read x w [mean] rstd dy first.
template <class Args, class Work, class T>
void set_operands(Args& a, const Work& n, const OpContext<T>& c, int mean) {
  a.style = style_of(n.kind);
  a.rows = n.rows;
  a.cols = n.cols;
  a.x = c.data(0);
  a.x_stride = c.row_stride(0, n.rows, n.cols);
  a.gamma = c.dense(1);
  a.offset = T(weight_offset(n.kind));
  a.mean = mean ? c.dense(2) : nullptr;
  a.rstd = c.dense(2 + mean);
  a.dy = c.data(3 + mean);
  a.dy_stride = c.row_stride(3 + mean, n.rows, n.cols);
}

template <class T>
void run(const NormBackwardSums& n, const OpContext<T>& c) {
  const int mean = n.kind == NormKind::Layer ? 1 : 0;  // x w [mean] rstd dy → sums dw [db]
  kernels::NormBackwardSumsArgs<T> a;
  set_operands(a, n, c, mean);
  a.sums = c.dense(4 + mean);
  a.dgamma = c.dense(5 + mean);
  a.dbeta = c.size() > 6 + mean ? c.dense(6 + mean) : nullptr;
  a.write_parameters = n.accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite;
  kernels::norm_backward_sums(a);
}

template <class T>
void run(const NormBackwardApply& n, const OpContext<T>& c) {
  const int mean = n.kind == NormKind::Layer ? 1 : 0;  // x w [mean] rstd dy sums → dx
  kernels::NormBackwardApplyArgs<T> a;
  set_operands(a, n, c, mean);
  a.dim = n.dim;
  a.sums = c.dense(4 + mean);
  a.dx = c.data(5 + mean);
  a.dx_stride = c.row_stride(5 + mean, n.rows, n.cols);
  a.write_dx = c.write_mode(5 + mean);
  kernels::norm_backward_apply(a);
}

Kernel find_norm_pieces(const Work& work) {
  return find_typed<NormSums, NormApply, NormBackwardSums, NormBackwardApply>(work);
}

}  // namespace orrery
