// SPDX-License-Identifier: Apache-2.0
// Kernels that go over the elements of matrices: one function of a few inputs each. 16 bytes per access where rows
// begin at multiples of 16 bytes, one element else.
#pragma once

#include "kernels/cuda/kernel.hpp"
#include "kernels/philox.hpp"

namespace orrery::kernels::cuda {

/// A matrix operand. Row r is row r mod `period` (0: all rows differ); with `by_row` it has one number per row.
struct MatrixView {
  void* at = nullptr;
  std::int64_t stride = 0;  // elements from row to row
  std::int64_t period = 0;
  bool by_row = false;

  KERNELS_GPU_INLINE std::int64_t first(std::int64_t row) const { return (period > 0 ? row % period : row) * stride; }
};

/// The order of orrery's ActivationKind.
enum class Activate : std::uint8_t { Relu, GeluTanh, GeluErf, Silu, Tanh, QuickGelu, Sigmoid };

struct ValueAndSlope {
  float value, slope;
};

KERNELS_GPU_INLINE float sigmoid(float x) { return inverse(1.0f + expf(-x)); }

/// An activation and its derivative, by the formulas of kernels/host/activation.cpp.
KERNELS_GPU_INLINE ValueAndSlope activate(Activate kind, float x) {
  switch (kind) {
    case Activate::Relu:
      return {x > 0 ? x : (x != x ? x : 0.0f), x > 0 ? 1.0f : 0.0f};
    case Activate::GeluTanh: {
      constexpr float kRoot = 0.79788456080286535588f, kCubic = 0.044715f;
      const float s = sigmoid(2 * kRoot * (x + kCubic * x * x * x));  // (1 + tanh) / 2
      return {x * s, s + 2 * x * s * (1.0f - s) * kRoot * (1.0f + 3.0f * kCubic * x * x)};
    }
    case Activate::GeluErf: {
      const float cdf = 0.5f * (1.0f + erff(x * 0.70710678118654752440f));
      return {x * cdf, cdf + x * 0.39894228040143267794f * expf(-0.5f * x * x)};
    }
    case Activate::Tanh: {
      const float t = tanhf(x);
      return {t, 1.0f - t * t};
    }
    case Activate::Sigmoid: {
      const float s = sigmoid(x);
      return {s, s * (1.0f - s)};
    }
    default: {
      const float a = kind == Activate::Silu ? 1.0f : 1.702f, s = sigmoid(a * x);
      return {x * s, s + a * x * s * (1.0f - s)};
    }
  }
}

/// Calls f with a kind that the compiler knows: what is decided here is not decided again for each number.
template <class F>
KERNELS_GPU_INLINE void with_kind(Activate kind, F&& f) {
  switch (kind) {
    case Activate::Relu:
      return f(Activate::Relu);
    case Activate::GeluTanh:
      return f(Activate::GeluTanh);
    case Activate::GeluErf:
      return f(Activate::GeluErf);
    case Activate::Silu:
      return f(Activate::Silu);
    case Activate::Tanh:
      return f(Activate::Tanh);
    case Activate::QuickGelu:
      return f(Activate::QuickGelu);
    default:
      return f(Activate::Sigmoid);
  }
}

// Functions of one element: in[] → out[] at (row, col), which `kPlaced` ones ask for.

struct ActivationOf {  // x → y
  static constexpr int kIn = 1, kOut = 1;
  Activate kind;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = activate(kind, in[0]).value;
  }
};
struct ActivationSlope {  // x dy → dx
  static constexpr int kIn = 2, kOut = 1;
  Activate kind;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = in[1] * activate(kind, in[0]).slope;
  }
};
struct GatedOf {  // gate up → y
  static constexpr int kIn = 2, kOut = 1;
  Activate kind;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = activate(kind, in[0]).value * in[1];
  }
};
struct GatedSlope {  // gate up dy → dgate dup
  static constexpr int kIn = 3, kOut = 2;
  Activate kind;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    const ValueAndSlope a = activate(kind, in[0]);
    out[0] = in[2] * in[1] * a.slope;
    out[1] = in[2] * a.value;
  }
};
struct SumOfTwo {
  static constexpr int kIn = 2, kOut = 1;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = in[0] + in[1];
  }
};
struct ProductOfTwo {
  static constexpr int kIn = 2, kOut = 1;
  float factor = 1;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = factor * in[0] * in[1];
  }
};
struct Scaled {
  static constexpr int kIn = 1, kOut = 1;
  float factor;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = factor * in[0];
  }
};
struct LargerOfTwo {
  static constexpr int kIn = 2, kOut = 1;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t, std::int64_t) const {
    out[0] = larger(in[0], in[1]);
  }
};
/// Kept where word ≥ `least`, drawn at the element's index in the whole tensor as kernels/host/random.cpp does; what is
/// kept may be written down, a byte a number.
struct DropoutOf {
  static constexpr int kIn = 1, kOut = 1;
  static constexpr bool kPlaced = true;
  PhiloxKey key;
  std::int64_t first_row, first_col, global_cols;
  const std::int32_t* row_ids;  // or null
  float factor;
  std::uint32_t least;
  bool none;
  std::uint8_t* mask;  // [rows, cols] or null
  std::int64_t cols;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t row, std::int64_t col) const {
    const std::int64_t global = row_ids ? row_ids[row] : first_row + row;
    const auto element = static_cast<std::uint64_t>(global * global_cols + first_col + col);
    const PhiloxWords words = philox(key, element / 4);
    const std::uint32_t at = static_cast<std::uint32_t>(element % 4);
    const std::uint32_t word = at == 0   ? words.word[0]
                               : at == 1 ? words.word[1]
                               : at == 2 ? words.word[2]
                                         : words.word[3];
    const bool keeps = !none && word >= least;
    out[0] = keeps ? in[0] * factor : 0.0f;
    if (mask) mask[row * cols + col] = keeps;
  }
};
struct MaskedOf {
  static constexpr int kIn = 1, kOut = 1;
  static constexpr bool kPlaced = true;
  float factor;
  const std::uint8_t* mask;
  std::int64_t cols;
  KERNELS_GPU_INLINE void operator()(const float* in, float* out, std::int64_t row, std::int64_t col) const {
    out[0] = mask[row * cols + col] ? in[0] * factor : 0.0f;
  }
};

/// out = f(in) over [rows, cols]. `count`, where there is one, holds the number of rows in use.
template <class T, class F>
struct MapKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  F f;
  std::int64_t rows, cols;
  MatrixView in[F::kIn], out[F::kOut];
  const std::int32_t* count = nullptr;
  bool wide = false;  // rows begin at multiples of 16 bytes, and so do their ends

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t used = count ? smaller_of<std::int64_t>(*count, rows) : rows;
    if (wide)
      over<kPack<T>>(t, used);
    else
      over<1>(t, used);
  }

  template <int N, class Thread>
  KERNELS_GPU void over(const Thread& t, std::int64_t used) const {
    const std::int64_t width = cols / N, step = t.blocks() * kThreads;
    for (std::int64_t i = t.block() * kThreads + t.index(); i < used * width; i += step)
      rows == 1 ? one<N>(0, i * N) : one<N>(i / width, i % width * N);
  }

  template <int N>
  KERNELS_GPU_INLINE void one(std::int64_t row, std::int64_t col) const {
    float x[F::kIn][N], y[F::kOut][N];
    for (int k = 0; k < F::kIn; ++k) {
      const T* from = static_cast<const T*>(in[k].at) + in[k].first(row);
      if (in[k].by_row)
        for (int j = 0; j < N; ++j) x[k][j] = to_float(*from);
      else
        load<T, N>(from + col, x[k]);
    }
    if constexpr (requires { f.kind; }) {
      with_kind(f.kind, [&](Activate kind) {
        F known = f;
        known.kind = kind;
        each_number(known, x, y, row, col);
      });
    } else {
      each_number(f, x, y, row, col);
    }
    for (int k = 0; k < F::kOut; ++k) store<T, N>(static_cast<T*>(out[k].at) + out[k].first(row) + col, y[k]);
  }
  template <int N>
  static KERNELS_GPU_INLINE void each_number(const F& f, const float (&x)[F::kIn][N], float (&y)[F::kOut][N],
                                             std::int64_t row, std::int64_t col) {
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) {
      float a[F::kIn], b[F::kOut];
      for (int k = 0; k < F::kIn; ++k) a[k] = x[k][j];
      f(a, b, row, col + j);
      for (int k = 0; k < F::kOut; ++k) y[k][j] = b[k];
    }
  }
};

/// y = x in another type.
template <class From, class To>
struct CastKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  static constexpr int N = sizeof(From) + sizeof(To) > 8 ? 2 : 4;  // numbers of an access
  std::int64_t elements;
  const From* x;
  To* y;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const bool wide = reinterpret_cast<std::uintptr_t>(x) % (N * sizeof(From)) == 0 &&
                      reinterpret_cast<std::uintptr_t>(y) % (N * sizeof(To)) == 0;
    const std::int64_t first = t.block() * kThreads + t.index(), step = t.blocks() * kThreads;
    const std::int64_t packs = wide ? elements / N : 0;
    for (std::int64_t i = first; i < packs; i += step) {
      const auto from = *reinterpret_cast<const Pack<From, N>*>(x + i * N);
      Pack<To, N> to;
      for (int j = 0; j < N; ++j) to.value[j] = cast(from.value[j]);
      *reinterpret_cast<Pack<To, N>*>(y + i * N) = to;
    }
    for (std::int64_t i = packs * N + first; i < elements; i += step) y[i] = cast(x[i]);
  }
  static KERNELS_GPU_INLINE To cast(From v) {
    if constexpr (sizeof(From) + sizeof(To) == 12)
      return static_cast<To>(v);  // between float and double, without a way round
    else
      return from_float<To>(to_float(v));
  }
};

/// Every word of memory = value; W is an unsigned integer of the size of an element.
template <class W>
struct FillKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t words;
  W* to;
  W value;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < words; i += t.blocks() * kThreads) to[i] = value;
  }
};

/// Sizes and strides (in words) of up to five dimensions, innermost last.
struct StridedWords {
  std::int64_t size[5], stride[5];
};

/// Copies elements in row-major order of both sides; W is a word that divides the runs of both.
template <class W>
struct CopyKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t words;
  const W* from;
  W* to;
  int from_rank, to_rank;
  StridedWords source, target;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < words; i += t.blocks() * kThreads)
      to[place(target, to_rank, i)] = from[place(source, from_rank, i)];
  }
  static KERNELS_GPU_INLINE std::int64_t place(const StridedWords& d, int rank, std::int64_t i) {
    std::int64_t at = 0;
    for (int k = rank - 1; k >= 0; --k) {
      at += i % d.size[k] * d.stride[k];
      i /= d.size[k];
    }
    return at;
  }
};

/// to[i] = own[i] ∘ theirs[i]: a step of a collective. Sums and maxima of doubles and integers too.
template <class T>
struct JoinKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t elements;
  const T *own, *theirs;
  T* to;
  bool maximum;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < elements; i += t.blocks() * kThreads)
      to[i] = maximum ? (own[i] < theirs[i] ? theirs[i] : own[i]) : own[i] + theirs[i];
  }
};

template <class T>
using MapKernels =
    KernelList<MapKernel<T, ActivationOf>, MapKernel<T, ActivationSlope>, MapKernel<T, GatedOf>,
               MapKernel<T, GatedSlope>, MapKernel<T, SumOfTwo>, MapKernel<T, ProductOfTwo>, MapKernel<T, Scaled>,
               MapKernel<T, LargerOfTwo>, MapKernel<T, DropoutOf>, MapKernel<T, MaskedOf>>;
using CastKernels =
    KernelList<CastKernel<float, bf16>, CastKernel<float, f16>, CastKernel<float, double>, CastKernel<bf16, float>,
               CastKernel<f16, float>, CastKernel<double, float>, CastKernel<bf16, f16>, CastKernel<f16, bf16>>;
using MoveKernels =
    KernelList<FillKernel<std::uint16_t>, FillKernel<std::uint32_t>, FillKernel<std::uint64_t>,
               CopyKernel<std::uint8_t>, CopyKernel<std::uint16_t>, CopyKernel<std::uint32_t>,
               CopyKernel<std::uint64_t>, CopyKernel<Quad>, JoinKernel<double>, JoinKernel<std::int32_t>>;

}  // namespace orrery::kernels::cuda
