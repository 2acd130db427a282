// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// *sum += Σ x²; squares and sums in double.
template <class T>
void sum_of_squares(std::int64_t n, const T* x, double* sum);

/// Factor that limits a gradient of norm √sum_of_squares to max_norm: min(1, max_norm/(norm + 1e−6)).
double clip_factor(double sum_of_squares, double max_norm);

/// g' = g·gradient_scale + weight_decay·w; u = momentum·u + g'; w −= rate·(nesterov ? g' + momentum·u : u).
/// Without velocity: w −= rate·g'.
template <class T>
struct SgdArgs {
  std::int64_t n = 0;
  double rate = 0, momentum = 0, weight_decay = 0;
  bool nesterov = false;
  double gradient_scale = 1;
  T* weights = nullptr;
  const T* gradient = nullptr;
  T* velocity = nullptr;  ///< null if momentum is 0; zeros before the first step
};

template <class T>
void sgd(const SgdArgs<T>& args);

/// m = β₁m + (1−β₁)g; v = β₂v + (1−β₂)g²; w ← w·(1 − rate·weight_decay) − rate·m̂/(√v̂ + epsilon),
/// m̂ = m/(1−β₁^step), v̂ = v/(1−β₂^step), step from 1; g is scaled by gradient_scale first (clipping, loss scaling).
template <class T>
struct AdamWArgs {
  std::int64_t n = 0;
  double rate = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0;
  std::int64_t step = 1;
  double gradient_scale = 1;
  T* weights = nullptr;
  const T* gradient = nullptr;
  T* m = nullptr;
  T* v = nullptr;
};

template <class T>
void adamw(const AdamWArgs<T>& args);

}  // namespace orrery::kernels
