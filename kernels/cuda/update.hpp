// SPDX-License-Identifier: Apache-2.0
// Kernels of the optimiser, by the formulas of kernels/host/optimizer.cpp.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// Where the factor of clipping and the number of decayed elements come from; null: 1, and all.
struct UpdateControl {
  const double* norm2 = nullptr;
  double max_norm = 0;
  const std::int32_t* decayed = nullptr;

  /// min(1, max_norm / (√norm2 + 10⁻⁶)).
  KERNELS_GPU_INLINE float factor() const {
    if (!norm2) return 1.0f;
    const double f = max_norm / (sqrt(*norm2) + 1e-6);
    return static_cast<float>(f < 1.0 ? f : 1.0);
  }
  KERNELS_GPU_INLINE bool decays(std::int64_t i) const { return !decayed || i < *decayed; }
};

/// One step of AdamW in float. T: weights, G: gradient, M: moments. With a master copy the arithmetic is on it.
template <class T, class G, class M = float>
struct AdamWKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t elements;
  T* w;
  const G* g;
  M *m, *v;
  float* master;  // may be null
  UpdateControl control;
  float beta1, beta2, keep1, keep2;
  float rate, correction, epsilon, shrink;  // rate/(1 − β₁ᵗ), 1/√(1 − β₂ᵗ), ε, 1 − rate·decay
  bool wide;                                // all arrays begin at multiples of 16 bytes

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const float factor = control.factor();
    const std::int64_t first = t.block() * kThreads + t.index(), step = t.blocks() * kThreads;
    const std::int64_t packs = wide ? elements / 4 : 0;
    for (std::int64_t i = first; i < packs; i += step) some<4>(i * 4, factor);
    for (std::int64_t i = packs * 4 + first; i < elements; i += step) some<1>(i, factor);
  }

  template <int N>
  KERNELS_GPU_INLINE void some(std::int64_t i, float factor) const {
    float weight[N], gradient[N], first[N], second[N];
    if (master)
      load<float, N>(master + i, weight);
    else
      load<T, N>(w + i, weight);
    load<G, N>(g + i, gradient);
    load<M, N>(m + i, first);
    load<M, N>(v + i, second);
    for (int j = 0; j < N; ++j) {
      const float d = gradient[j] * factor;
      first[j] = beta1 * first[j] + keep1 * d;
      second[j] = beta2 * second[j] + keep2 * d * d;
      weight[j] = weight[j] * (control.decays(i + j) ? shrink : 1.0f) -
                  rate * first[j] / (sqrtf(second[j]) * correction + epsilon);
    }
    store<M, N>(m + i, first);
    store<M, N>(v + i, second);
    if (master) store<float, N>(master + i, weight);
    store<T, N>(w + i, weight);
  }
};

/// w −= rate·(own·g' + carried·m), m = momentum·m + g', g' = factor·g + decay·w. Nesterov: own 1, carried momentum.
template <class T>
struct SgdKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t elements;
  T* w;
  const T* g;
  Numbers velocity;  // or none
  UpdateControl control;
  float rate, momentum, decay, own, carried;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const float factor = control.factor();
    for (std::int64_t i = t.block() * kThreads + t.index(); i < elements; i += t.blocks() * kThreads) {
      const float weight = to_float(w[i]);
      const float d = to_float(g[i]) * factor + (control.decays(i) ? decay : 0.0f) * weight;
      float move = d;
      if (velocity.there()) {
        const float u = momentum * velocity.get(i) + d;
        velocity.set(i, u);
        move = own * d + carried * u;
      }
      w[i] = from_float<T>(weight - rate * move);
    }
  }
};

using UpdateKernels = KernelList<AdamWKernel<float, float>, AdamWKernel<bf16, bf16>, AdamWKernel<f16, f16>,
                                 AdamWKernel<bf16, float>, AdamWKernel<f16, float>, AdamWKernel<bf16, bf16, bf16>,
                                 AdamWKernel<bf16, float, bf16>, SgdKernel<float>, SgdKernel<bf16>, SgdKernel<f16>>;

}  // namespace orrery::kernels::cuda
