// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/normalization.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"

namespace orrery {

template <class T>
static void layer_norm(const NormForward& n, const OpContext<T>& c) {
  const int y = c.num_reads();  // x w [b]
  kernels::layer_norm(kernels::LayerNormArgs<T>{.rows = n.rows,
                                                .cols = n.dim,
                                                .x = c.data(0),
                                                .x_stride = c.row_stride(0, n.rows, n.dim),
                                                .gamma = c.dense(1),
                                                .beta = y > 2 ? c.dense(2) : nullptr,
                                                .y = c.data(y),
                                                .y_stride = c.row_stride(y, n.rows, n.dim),
                                                .mean = c.size() > y + 2 ? c.dense(y + 1) : nullptr,
                                                .rstd = c.size() > y + 1 ? c.dense(c.size() - 1) : nullptr,
                                                .epsilon = T(n.epsilon)});
}

template <class T>
void run(const NormForward& n, const OpContext<T>& c) {
  if (n.kind == NormKind::Layer) return layer_norm(n, c);
  const int y = c.num_reads();  // x [w]
  kernels::rms_norm(kernels::RmsNormArgs<T>{.rows = n.rows,
                                            .cols = n.dim,
                                            .x = c.data(0),
                                            .x_stride = c.row_stride(0, n.rows, n.dim),
                                            .gamma = n.weighted ? c.dense(1) : nullptr,
                                            .offset = T(weight_offset(n.kind)),
                                            .y = c.data(y),
                                            .y_stride = c.row_stride(y, n.rows, n.dim),
                                            .rstd = c.size() > y + 1 ? c.dense(y + 1) : nullptr,
                                            .epsilon = T(n.epsilon)});
}

template <class T>
static void layer_norm_backward(const NormBackward& n, const OpContext<T>& c) {
  kernels::LayerNormBackwardArgs<T> a;
  a.rows = n.rows;
  a.cols = n.dim;
  a.x = c.data(0);
  a.x_stride = c.row_stride(0, n.rows, n.dim);
  a.gamma = c.dense(1);
  a.mean = c.dense(2);
  a.rstd = c.dense(3);
  a.dy = c.data(4);
  a.dy_stride = c.row_stride(4, n.rows, n.dim);
  a.dx = c.data(5);
  a.dx_stride = c.row_stride(5, n.rows, n.dim);
  a.dgamma = c.dense(6);
  a.dbeta = c.size() > 7 ? c.dense(7) : nullptr;
  a.write_dx = c.write_mode(5);
  a.write_parameters = n.accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite;
  kernels::layer_norm_backward(a);
}

template <class T>
void run(const NormBackward& n, const OpContext<T>& c) {
  if (n.kind == NormKind::Layer) return layer_norm_backward(n, c);
  const int rstd = n.weighted ? 2 : 1, dy = rstd + 1, dx = dy + 1;  // x [w] rstd dy → dx [dw]
  kernels::RmsNormBackwardArgs<T> a;
  a.rows = n.rows;
  a.cols = n.dim;
  a.x = c.data(0);
  a.x_stride = c.row_stride(0, n.rows, n.dim);
  a.gamma = n.weighted ? c.dense(1) : nullptr;
  a.offset = T(weight_offset(n.kind));
  a.rstd = c.dense(rstd);
  a.dy = c.data(dy);
  a.dy_stride = c.row_stride(dy, n.rows, n.dim);
  a.dx = c.data(dx);
  a.dx_stride = c.row_stride(dx, n.rows, n.dim);
  a.dgamma = n.weighted ? c.dense(dx + 1) : nullptr;
  a.write_dx = c.write_mode(dx);
  a.write_parameters = n.accumulate ? kernels::Write::Accumulate : kernels::Write::Overwrite;
  kernels::rms_norm_backward(a);
}

Kernel find_norm(const Work& work) { return find_typed<NormForward, NormBackward>(work); }

}  // namespace orrery
