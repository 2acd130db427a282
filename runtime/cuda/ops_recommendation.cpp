// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/recommendation.hpp"
#include "kernels/cuda/rows.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {

template <class T>
void run(const EmbeddingBagForward& e, const GpuContext<T>& c) {
  c.each_row(gpu::BagKernel<T>{.bags = e.bags,
                               .cols = e.cols,
                               .table_rows = e.table_rows,
                               .index = c.ints(1),
                               .offsets = c.ints(2),
                               .table = c.dense(0),
                               .out = c.dense(3),
                               .mean = e.mean},
             e.bags);
}

template <class T>
void run(const EmbeddingBagBackward& e, const GpuContext<T>& c) {
  c.each_row(gpu::BagSlopeKernel<T>{.bags = e.bags,
                                    .lookups = c.elements(1),
                                    .cols = e.cols,
                                    .table_rows = e.table_rows,
                                    .index = c.ints(1),
                                    .offsets = c.ints(2),
                                    .dout = c.dense(0),
                                    .dtable = c.dense(3),
                                    .mean = e.mean},
             c.elements(1), gpu::kRowShared);
}

template <class T>
void run(const DotInteractionForward& d, const GpuContext<T>& c) {
  c.each_row(gpu::DotInteractionKernel<T>{d.batch, d.features, d.dim, c.dense(0), c.dense(1)}, d.batch);
}

template <class T>
void run(const DotInteractionBackward& d, const GpuContext<T>& c) {
  c.over(gpu::DotInteractionSlopeKernel<T>{d.batch, d.features, d.dim, c.dense(0), c.dense(1), c.dense(2)},
         d.batch * d.features * d.dim);
}

namespace {

template <class T, class K>
gpu::BinaryCrossEntropyKernel<T> binary(const K& w, const GpuContext<T>& c) {
  return {.rows = w.rows,
          .weight = static_cast<float>(w.weight),
          .x = c.dense(0),
          .targets = c.template elements_of<void>(1),
          .whole = c.operand(1).dtype == DType::I32,
          .losses = nullptr,
          .dx = nullptr};
}

}  // namespace

template <class T>
void run(const BinaryCrossEntropyForward& w, const GpuContext<T>& c) {
  auto k = binary<T>(w, c);
  k.losses = c.template scratch<float>();
  c.over(k, w.rows);
  c.launch(gpu::TotalKernel<float>{w.rows, k.losses, w.weight, c.numbers(2)}, 1, gpu::kTotalShared);
}

template <class T>
void run(const BinaryCrossEntropyBackward& w, const GpuContext<T>& c) {
  auto k = binary<T>(w, c);
  k.dx = c.dense(c.output());
  c.over(k, w.rows);
}

Kernel find_gpu_recommendation(const Work& work) {
  return find_gpu_typed<EmbeddingBagForward, EmbeddingBagBackward, DotInteractionForward, DotInteractionBackward,
                        BinaryCrossEntropyForward, BinaryCrossEntropyBackward>(work);
}

}  // namespace orrery
