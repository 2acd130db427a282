// SPDX-License-Identifier: Apache-2.0
// Bags of embedding rows, products of features, the loss of a click; and factors of small matrices.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// out[b,:] = Σ (or mean of) table[index[i],:] over the bag of b: a block per bag.
template <class T>
struct BagKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t bags, cols, table_rows;
  const std::int32_t *index, *offsets;
  const T* table;
  T* out;
  bool mean;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t b = t.block(); b < bags; b += t.blocks()) {
      const std::int32_t n = offsets[b + 1] - offsets[b];
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        float sum = 0;
        for (std::int32_t i = offsets[b]; i < offsets[b + 1]; ++i)
          if (index[i] >= 0 && index[i] < table_rows) sum += to_float(table[index[i] * cols + c]);
        out[b * cols + c] = from_float<T>(mean && n > 0 ? sum / static_cast<float>(n) : sum);
      }
    }
  }
};

/// dtable[index[i],:] += dout[bag of i,:] in order of i: the block of the first lookup of a row adds up all of them.
/// Threads look at a stretch of the lookups each; quadratic in the lookups.
template <class T>
struct BagSlopeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  std::int64_t bags, lookups, cols, table_rows;
  const std::int32_t *index, *offsets;
  const T* dout;
  T* dtable;
  bool mean;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block(); i < lookups; i += t.blocks()) {
      const std::int32_t id = index[i];
      std::int32_t before = 0;
      for (std::int64_t j = t.index(); j < i; j += kThreads) before += index[j] == id ? 1 : 0;
      before = block_reduce<kThreads / kWarp>(t, before, t.template shared<std::int32_t>(), SumOf{});
      if (before > 0 || id < 0 || id >= table_rows) continue;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) add(i, id, c);
    }
  }

 private:
  KERNELS_GPU_INLINE void add(std::int64_t first, std::int32_t id, std::int64_t c) const {
    float sum = to_float(dtable[id * cols + c]);
    for (std::int64_t j = first, bag = 0; j < lookups; ++j) {
      if (index[j] != id) continue;
      while (offsets[bag + 1] <= j) ++bag;
      const float n = static_cast<float>(offsets[bag + 1] - offsets[bag]);
      sum += to_float(dout[bag * cols + c]) / (mean ? n : 1.0f);
    }
    dtable[id * cols + c] = from_float<T>(sum);
  }
};

/// out[b] = x[b, 0,:], then x[b, i]·x[b, j] for j < i: a block per sample.
template <class T>
struct DotInteractionKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t batch, features, dim;
  const T* x;
  T* out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t cols = dim + features * (features - 1) / 2;
    for (std::int64_t b = t.block(); b < batch; b += t.blocks()) {
      const T* sample = x + b * features * dim;
      T* to = out + b * cols;
      for (std::int64_t d = t.index(); d < dim; d += kThreads) to[d] = sample[d];
      for (std::int64_t w = t.index(); w < features * features; w += kThreads) {
        const std::int64_t i = w / features, j = w % features;
        if (j >= i) continue;
        float sum = 0;
        for (std::int64_t d = 0; d < dim; ++d) sum += to_float(sample[i * dim + d]) * to_float(sample[j * dim + d]);
        to[dim + i * (i - 1) / 2 + j] = from_float<T>(sum);
      }
    }
  }
};

/// dx[b, i] = Σ_j dpair(i, j)·x[b, j], and of the first feature what was copied: a thread per number.
template <class T>
struct DotInteractionSlopeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t batch, features, dim;
  const T *x, *dout;
  T* dx;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t cols = dim + features * (features - 1) / 2, all = batch * features * dim;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t d = w % dim, i = w / dim % features, b = w / dim / features;
      const T* pairs = dout + b * cols + dim;
      float sum = i == 0 ? to_float(dout[b * cols + d]) : 0.0f;
      for (std::int64_t j = 0; j < features; ++j) {
        if (j == i) continue;
        const std::int64_t high = i > j ? i : j, low = i > j ? j : i;
        sum += to_float(pairs[high * (high - 1) / 2 + low]) * to_float(x[(b * features + j) * dim + d]);
      }
      dx[w] = from_float<T>(sum);
    }
  }
};

/// softplus(x) − x·target of each row, or with `dx` its gradient weight·(σ(x) − target). Targets are numbers of type T
/// or integers.
template <class T>
struct BinaryCrossEntropyKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows;
  float weight;
  const T* x;
  const void* targets;
  bool whole;  // targets are integers
  float* losses;
  T* dx;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block() * kThreads + t.index(); r < rows; r += t.blocks() * kThreads) {
      const float v = to_float(x[r]), target = whole ? static_cast<float>(static_cast<const std::int32_t*>(targets)[r])
                                                     : to_float(static_cast<const T*>(targets)[r]);
      if (dx) dx[r] = from_float<T>(weight * (1.0f / (1.0f + expf(-v)) - target));
      if (losses) losses[r] = (v > 0 ? v : 0.0f) + log1pf(expf(v > 0 ? -v : v)) - v * target;
    }
  }
};

/// L·Lᵀ = A, zeros above the diagonal: one block, column after column.
struct CholeskyKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  std::int64_t n;
  const float* a;
  float* l;  // may be a
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    if (t.block() > 0) return;
    for (std::int64_t w = t.index(); w < n * n; w += kThreads) l[w] = w % n <= w / n ? a[w] : 0.0f;
    t.sync();
    for (std::int64_t j = 0; j < n; ++j) {
      if (t.index() == 0) {
        const float rest = left_of(j, j);
        if (!(rest > 0)) fault.raise(FaultKind::NotPositive, j, n);
        l[j * n + j] = sqrtf(rest > 0 ? rest : 1.0f);
      }
      t.sync();
      for (std::int64_t i = j + 1 + t.index(); i < n; i += kThreads) l[i * n + j] = left_of(i, j) / l[j * n + j];
      t.sync();
    }
  }

 private:
  KERNELS_GPU_INLINE float left_of(std::int64_t i, std::int64_t j) const {
    float sum = l[i * n + j];
    for (std::int64_t p = 0; p < j; ++p) sum -= l[i * n + p] * l[j * n + p];
    return sum;
  }
};

/// X = (L·Lᵀ)⁻¹·B: a thread per column.
struct CholeskySolveKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t n, columns;
  const float *l, *b;
  float* x;  // may be b

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t c = t.block() * kThreads + t.index(); c < columns; c += t.blocks() * kThreads) {
      for (std::int64_t i = 0; i < n; ++i) {
        float sum = b[i * columns + c];
        for (std::int64_t p = 0; p < i; ++p) sum -= l[i * n + p] * x[p * columns + c];
        x[i * columns + c] = sum / l[i * n + i];
      }
      for (std::int64_t i = n - 1; i >= 0; --i) {
        float sum = x[i * columns + c];
        for (std::int64_t p = i + 1; p < n; ++p) sum -= l[p * n + i] * x[p * columns + c];
        x[i * columns + c] = sum / l[i * n + i];
      }
    }
  }
};

/// κ of two points at a distance r, given its square in units of the length: Matérn 5/2, Matérn 3/2, squared
/// exponential.
KERNELS_GPU_INLINE float covariance_of(int kind, float squared) {
  if (kind == 2) return expf(-squared / 2);
  const float s = sqrtf((kind == 0 ? 5.0f : 3.0f) * squared);
  return (1 + s + (kind == 0 ? s * s / 3 : 0.0f)) * expf(-s);
}

/// Covariances of points with the rows of a history, see the op: a block per pair.
struct CovarianceKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  static constexpr std::size_t kShared = kThreads / kWarp * sizeof(float);
  int kind;
  std::int64_t points, history, columns, width, known;
  float scale, noise;
  bool own;
  const float *a, *h;
  const std::int32_t* coordinates;  // null: all
  float* k;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < points * history; w += t.blocks()) {
      const std::int64_t i = w / history, j = w % history;
      float sum = 0;
      for (std::int64_t c = t.index(); c < width; c += kThreads) {
        const std::int64_t at = coordinates ? coordinates[c] : c;
        const float d = a[i * columns + at] - h[j * columns + at];
        sum += d * d;
      }
      sum = block_reduce<kThreads / kWarp>(t, sum, t.template shared<float>(), SumOf{});
      if (t.index() == 0) k[w] = value(i, j, sum);
    }
  }

 private:
  KERNELS_GPU_INLINE float value(std::int64_t i, std::int64_t j, float squared) const {
    if (j >= known || (own && i >= known)) return own && i == j ? 1.0f : 0.0f;
    return covariance_of(kind, scale * squared) + (own && i == j ? noise : 0.0f);
  }
};

template <class T>
using RecommendationKernels = KernelList<BagKernel<T>, BagSlopeKernel<T>, DotInteractionKernel<T>,
                                         DotInteractionSlopeKernel<T>, BinaryCrossEntropyKernel<T>>;
using FactorKernels = KernelList<CholeskyKernel, CholeskySolveKernel, CovarianceKernel>;

}  // namespace orrery::kernels::cuda
