// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/activation.hpp"

#include "kernels/host/simd.hpp"

namespace orrery::kernels {
namespace {

/// Value and derivative of an activation at x.
template <class V>
struct Point {
  V value, slope;
};

struct Relu {
  template <class V>
  static Point<V> at(V x) {
    const V zero = splat<V>(0);
    return {x > zero ? x : (x != x ? x : zero), x > zero ? splat<V>(1) : zero};
  }
};

struct GeluTanh {
  template <class V>
  static Point<V> at(V x) {
    using T = ScalarOf<V>;
    constexpr T kRoot = T(0.79788456080286535588), kCubic = T(0.044715);  // √(2/π)
    const V t = tanh(kRoot * (x + kCubic * x * x * x)), half = T(0.5) * (T(1) + t);
    return {x * half, half + T(0.5) * x * (T(1) - t * t) * kRoot * (T(1) + 3 * kCubic * x * x)};
  }
};

struct GeluErf {
  template <class V>
  static Point<V> at(V x) {
    using T = ScalarOf<V>;
    constexpr T kInverseRoot2 = T(0.70710678118654752440), kInverseRoot2Pi = T(0.39894228040143267794);
    const V cdf = T(0.5) * (T(1) + erf(x * kInverseRoot2));
    return {x * cdf, cdf + x * (kInverseRoot2Pi * exp(T(-0.5) * x * x))};
  }
};

template <int Thousandths>
struct Swish {  // x·σ(a·x)
  template <class V>
  static Point<V> at(V x) {
    using T = ScalarOf<V>;
    constexpr T a = T(Thousandths) / T(1000);
    const V s = sigmoid(a * x);
    return {x * s, s + a * x * s * (T(1) - s)};
  }
};

struct Tanh {
  template <class V>
  static Point<V> at(V x) {
    const V t = tanh(x);
    return {t, ScalarOf<V>(1) - t * t};
  }
};

struct Sigmoid {
  template <class V>
  static Point<V> at(V x) {
    const V s = sigmoid(x);
    return {s, s * (ScalarOf<V>(1) - s)};
  }
};

/// Calls `f` with the function object of `kind`.
template <class F>
void with_activation(Activation kind, F&& f) {
  switch (kind) {
    case Activation::Relu:
      return f(Relu{});
    case Activation::GeluTanh:
      return f(GeluTanh{});
    case Activation::GeluErf:
      return f(GeluErf{});
    case Activation::Silu:
      return f(Swish<1000>{});
    case Activation::Tanh:
      return f(Tanh{});
    case Activation::QuickGelu:
      return f(Swish<1702>{});
    case Activation::Sigmoid:
      return f(Sigmoid{});
  }
}

/// Start of row r of an array whose rows are `stride` (or cols) apart.
template <class T>
T* row(T* x, RowStride stride, std::int64_t cols, std::int64_t r) {
  return x + r * stride.value_or(cols);
}

}  // namespace

template <class T>
void activation(const ActivationArgs<T>& a) {
  with_activation(a.kind, [&](auto f) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T* x = row(a.x, a.x_stride, a.cols, r);
      T* y = row(a.y, a.y_stride, a.cols, r);
      map(a.cols, y, [&](auto at) {
        at.claim(y);
        return f.at(at.ahead(x)).value;
      });
    }
  });
}

template <class T>
void activation_backward(const ActivationBackwardArgs<T>& a) {
  with_activation(a.kind, [&](auto f) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T *x = row(a.x, a.x_stride, a.cols, r), *dy = row(a.dy, a.dy_stride, a.cols, r);
      T* dx = row(a.dx, a.dx_stride, a.cols, r);
      map(a.cols, dx, [&](auto at) {
        at.claim(dx);
        return at.ahead(dy) * f.at(at.ahead(x)).slope;
      });
    }
  });
}

template <class T>
void gated_activation(const GatedArgs<T>& a) {
  with_activation(a.kind, [&](auto f) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T *gate = row(a.gate, a.gate_stride, a.cols, r), *up = row(a.up, a.up_stride, a.cols, r);
      T* y = row(a.y, a.y_stride, a.cols, r);
      map(a.cols, y, [&](auto at) {
        at.claim(y);
        return f.at(at.ahead(gate)).value * at.ahead(up);
      });
    }
  });
}

template <class T>
void gated_activation_backward(const GatedBackwardArgs<T>& a) {
  with_activation(a.kind, [&](auto f) {
    for (std::int64_t r = 0; r < a.rows; ++r) {
      const T *gate = row(a.gate, a.gate_stride, a.cols, r), *up = row(a.up, a.up_stride, a.cols, r);
      const T* dy = row(a.dy, a.dy_stride, a.cols, r);
      T *dgate = row(a.dgate, a.dgate_stride, a.cols, r), *dup = row(a.dup, a.dup_stride, a.cols, r);
      each<T>(a.cols, [&](auto at, std::int64_t c) {
        const auto point = f.at(at.ahead(gate));
        const auto d = at.ahead(dy), u = at.ahead(up);
        at.claim(dgate);
        at.claim(dup);
        put(dgate, c, d * u * point.slope);
        put(dup, c, d * point.value);
      });
    }
  });
}

template void activation<float>(const ActivationArgs<float>&);
template void activation<double>(const ActivationArgs<double>&);
template void activation_backward<float>(const ActivationBackwardArgs<float>&);
template void activation_backward<double>(const ActivationBackwardArgs<double>&);
template void gated_activation<float>(const GatedArgs<float>&);
template void gated_activation<double>(const GatedArgs<double>&);
template void gated_activation_backward<float>(const GatedBackwardArgs<float>&);
template void gated_activation_backward<double>(const GatedBackwardArgs<double>&);

}  // namespace orrery::kernels
