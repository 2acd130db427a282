// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

/// Relu max(x,0) · GeluTanh ½x(1+tanh(√(2/π)(x+0.044715x³))) · GeluErf ½x(1+erf(x/√2)) · Silu x·σ(x) · Tanh ·
/// QuickGelu x·σ(1.702x) · Sigmoid σ(x) = 1/(1+e^−x). The derivative of relu at 0 is 0.
enum class Activation { Relu, GeluTanh, GeluErf, Silu, Tanh, QuickGelu, Sigmoid };

/// y = act(x) on [rows,cols]; y may be x.
template <class T>
struct ActivationArgs {
  Activation kind = Activation::Relu;
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  T* y = nullptr;
  RowStride y_stride = {};
};

template <class T>
void activation(const ActivationArgs<T>& args);

/// dx = dy·act′(x) on [rows,cols]; dx may be dy.
template <class T>
struct ActivationBackwardArgs {
  Activation kind = Activation::Relu;
  std::int64_t rows = 0, cols = 0;
  const T* x = nullptr;
  RowStride x_stride = {};
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* dx = nullptr;
  RowStride dx_stride = {};
};

template <class T>
void activation_backward(const ActivationBackwardArgs<T>& args);

/// y = act(gate)·up on [rows,cols]. With a fused [rows,2F] tensor: gate = t, up = t + F, both strides 2F.
template <class T>
struct GatedArgs {
  Activation kind = Activation::Silu;
  std::int64_t rows = 0, cols = 0;
  const T* gate = nullptr;
  RowStride gate_stride = {};
  const T* up = nullptr;
  RowStride up_stride = {};
  T* y = nullptr;
  RowStride y_stride = {};
};

template <class T>
void gated_activation(const GatedArgs<T>& args);

/// dgate = dy·up·act′(gate), dup = dy·act(gate); dgate may be gate and dup may be up.
template <class T>
struct GatedBackwardArgs {
  Activation kind = Activation::Silu;
  std::int64_t rows = 0, cols = 0;
  const T* gate = nullptr;
  RowStride gate_stride = {};
  const T* up = nullptr;
  RowStride up_stride = {};
  const T* dy = nullptr;
  RowStride dy_stride = {};
  T* dgate = nullptr;
  RowStride dgate_stride = {};
  T* dup = nullptr;
  RowStride dup_stride = {};
};

template <class T>
void gated_activation_backward(const GatedBackwardArgs<T>& args);

}  // namespace orrery::kernels
