// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/shapes.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {

template <class T>
void run(const Patchify& p, const GpuContext<T>& c) {
  c.over(gpu::PatchifyKernel<T>{p.batch, p.channels, p.side, p.patch, c.dense(0), c.dense(1)},
         p.batch * p.channels * p.side * p.side);
}

template <class T>
void run(const ConcatPrefix& p, const GpuContext<T>& c) {
  c.over(gpu::ConcatPrefixKernel<T>{p.batch, p.rows, p.cols, c.dense(0), c.dense(1), c.dense(2)},
         p.batch * (p.rows + 1) * p.cols);
}

template <class T>
void run(const ConcatPrefixBackward& p, const GpuContext<T>& c) {
  c.over(gpu::ConcatPrefixSlopeKernel<T>{p.batch, p.rows, p.cols, c.dense(0), c.dense(1), c.dense(2), p.accumulate},
         (p.batch * p.rows + 1) * p.cols);
}

template <class T>
void run(const MeanPool& p, const GpuContext<T>& c) {
  c.over(gpu::MeanRowsKernel<T>{p.batch, p.rows, p.cols, c.dense(0), c.dense(1), false}, p.batch * p.cols);
}

template <class T>
void run(const MeanPoolBackward& p, const GpuContext<T>& c) {
  c.over(gpu::MeanRowsKernel<T>{p.batch, p.rows, p.cols, c.dense(1), c.dense(0), true}, p.batch * p.cols);
}

Kernel find_gpu_vision(const Work& work) {
  return find_gpu_typed<Patchify, ConcatPrefix, ConcatPrefixBackward, MeanPool, MeanPoolBackward>(work);
}

}  // namespace orrery
