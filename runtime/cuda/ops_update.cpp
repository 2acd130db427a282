// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <type_traits>

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/update.hpp"
#include "runtime/cuda/families.hpp"
#include "runtime/cuda/op_context.hpp"

namespace orrery {
namespace {

/// Clipping, where there is any, reads the operand after the states; a part that decays is said by the last operand.
gpu::UpdateControl control_of(double max_norm, bool partly, int norm_operand, const GpuContextBase& c) {
  gpu::UpdateControl control;
  if (max_norm > 0) {
    control.norm2 = c.elements_of<double>(norm_operand);
    control.max_norm = max_norm;
  }
  if (partly) control.decayed = c.ints(c.size() - 1);
  return control;
}

template <class T, class G, class M = float>
void adamw(const AdamW& a, const GpuContextBase& c) {
  const std::int64_t step = c.at(a.step);
  if (step < 0) c.fail(fmt::format("step {}; steps count from 1", step));
  if (step == 0) return;  // of a delayed update: there is no gradient yet
  const double t = static_cast<double>(step);
  const int states = a.master ? 5 : 4;
  gpu::AdamWKernel<T, G, M> k{.elements = a.elements,
                              .w = c.elements_of<T>(0),
                              .g = c.elements_of<G>(1),
                              .m = c.elements_of<M>(2),
                              .v = c.elements_of<M>(3),
                              .master = a.master ? c.elements_of<float>(4) : nullptr,
                              .control = control_of(a.max_norm, a.partly, states, c),
                              .beta1 = static_cast<float>(a.beta1),
                              .beta2 = static_cast<float>(a.beta2),
                              .keep1 = static_cast<float>(1 - a.beta1),
                              .keep2 = static_cast<float>(1 - a.beta2),
                              .rate = static_cast<float>(a.rate / (1 - std::pow(a.beta1, t))),
                              .correction = static_cast<float>(1 / std::sqrt(1 - std::pow(a.beta2, t))),
                              .epsilon = static_cast<float>(a.epsilon),
                              .shrink = static_cast<float>(1 - a.rate * a.decay),
                              .wide = true};
  for (int i = 0; i < states; ++i) k.wide = k.wide && c.call().place(c.operand(i)) % 16 == 0;
  c.over(k, a.elements / (k.wide ? 4 : 1) + 1);
}

}  // namespace

template <class T>
void run(const AdamW& a, const GpuContext<T>& c) {
  const bool wide_gradient = a.gradient == DType::F32;
  if constexpr (std::is_same_v<T, gpu::bf16>)
    if (a.narrow_moments) return wide_gradient ? adamw<T, float, T>(a, c) : adamw<T, T, T>(a, c);
  wide_gradient ? adamw<T, float>(a, c) : adamw<T, T>(a, c);
}

namespace {

/// By the type of weights: `enqueue` without one is that of updates on the host.
Kernel adamw_kernel(const AdamW& a) {
  const bool gradients = a.gradient == a.dtype || a.gradient == DType::F32;
  const bool moments = !a.narrow_moments || a.dtype == DType::BF16;
  return gradients && moments && a.state == DType::F32 ? gpu_kernel<AdamW>(a.dtype) : nullptr;
}

}  // namespace

template <class T>
void run(const SumSquares& s, const GpuContext<T>& c) {
  auto* parts = c.template scratch<double>();
  const std::int64_t blocks = std::min(gpu::kSumBlocks, gpu::grid_for<gpu::SquaresKernel<T>>(s.elements));
  c.launch(gpu::SquaresKernel<T>{s.elements, c.dense(0), parts, c.call().place(c.operand(0)) % 16 == 0}, blocks,
           gpu::kTotalShared);
  c.launch(gpu::TotalKernel<double>{blocks, parts, s.weight, c.numbers(1)}, 1, gpu::kTotalShared);
}

/// The velocity is the operand after the gradient.
template <class T>
void run(const Sgd& s, const GpuContext<T>& c) {
  const bool has_velocity = s.has_velocity();
  const auto momentum = static_cast<float>(s.momentum);
  c.over(gpu::SgdKernel<T>{.elements = s.elements,
                           .w = c.dense(0),
                           .g = c.dense(1),
                           .velocity = has_velocity ? c.numbers(2) : c.no_numbers(),
                           .control = control_of(s.max_norm, s.partly, has_velocity ? 3 : 2, c),
                           .rate = static_cast<float>(s.rate),
                           .momentum = momentum,
                           .decay = static_cast<float>(s.decay),
                           .own = s.nesterov ? 1.0f : 0.0f,
                           .carried = s.nesterov ? momentum : 1.0f},
         s.elements);
}

Kernel find_gpu_update(const Work& work) {
  if (const auto* a = std::get_if<AdamW>(&work)) return adamw_kernel(*a);
  return find_gpu_typed<SumSquares, Sgd>(work);
}

}  // namespace orrery
