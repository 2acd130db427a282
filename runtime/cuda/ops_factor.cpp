// SPDX-License-Identifier: Apache-2.0
// Factors of small matrices, in f32.
#include "kernels/cuda/recommendation.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {

static void run(const Cholesky& w, const GpuContext<float>& c) {
  c.launch(gpu::CholeskyKernel{w.n, c.dense(0), c.dense(c.output()), c.fault()}, 1);
}

static void run(const CholeskySolve& w, const GpuContext<float>& c) {
  c.over(gpu::CholeskySolveKernel{w.n, w.columns, c.dense(0), c.dense(1), c.dense(c.output())}, w.columns);
}

Kernel find_gpu_factor(const Work& work) {
  if (const auto* w = std::get_if<Cholesky>(&work)) return w->dtype == DType::F32 ? &enqueue<Cholesky, float> : nullptr;
  if (const auto* w = std::get_if<CholeskySolve>(&work))
    return w->dtype == DType::F32 ? &enqueue<CholeskySolve, float> : nullptr;
  return nullptr;
}

}  // namespace orrery
