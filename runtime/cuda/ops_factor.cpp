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

static void run(const Covariance& w, const GpuContext<float>& c) {
  const int h = w.own ? 0 : 1;
  const std::int64_t known = c.at(w.known);
  c.each_row(gpu::CovarianceKernel{.kind = static_cast<int>(w.kind),
                                   .points = w.points,
                                   .history = w.history,
                                   .columns = w.columns,
                                   .width = w.width(),
                                   .known = known < 2 ? 0 : known,
                                   .scale = static_cast<float>(1 / (w.length * w.length)),
                                   .noise = static_cast<float>(w.noise),
                                   .own = w.own,
                                   .a = c.dense(0),
                                   .h = c.dense(h),
                                   .coordinates = w.used > 0 ? c.ints(h + 1) : nullptr,
                                   .k = c.dense(c.output())},
             w.points * w.history, gpu::CovarianceKernel::kShared);
}

Kernel find_gpu_factor(const Work& work) {
  if (const auto* w = std::get_if<Cholesky>(&work)) return w->dtype == DType::F32 ? &enqueue<Cholesky, float> : nullptr;
  if (const auto* w = std::get_if<CholeskySolve>(&work))
    return w->dtype == DType::F32 ? &enqueue<CholeskySolve, float> : nullptr;
  if (const auto* w = std::get_if<Covariance>(&work))
    return w->dtype == DType::F32 ? &enqueue<Covariance, float> : nullptr;
  return nullptr;
}

}  // namespace orrery
