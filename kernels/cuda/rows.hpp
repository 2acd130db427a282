// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce the rows of a matrix: a block per row, sums in a fixed order. Statistics of rows may have a type
// of their own.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

constexpr int kRowThreads = 128, kRowWarps = kRowThreads / kWarp;

/// What kernels over rows share: each block takes rows, its threads the columns.
template <class T>
struct RowAccess {
  /// Calls f(col, x) for the columns of a thread, several per access where `wide`.
  template <class Thread, class F>
  static KERNELS_GPU_INLINE void each(const Thread& t, const T* row, std::int64_t cols, bool wide, F&& f) {
    constexpr int N = kPack<T>;
    if (wide) {
      for (std::int64_t c = static_cast<std::int64_t>(t.index()) * N; c < cols; c += kRowThreads * N) {
        float x[N];
        load<T, N>(row + c, x);
        for (int j = 0; j < N; ++j) f(c + j, x[j]);
      }
    } else {
      for (std::int64_t c = t.index(); c < cols; c += kRowThreads) f(c, to_float(row[c]));
    }
  }
  template <class Thread, class V>
  static KERNELS_GPU_INLINE V sum(const Thread& t, V x) {
    return block_reduce<kRowWarps>(t, x, t.template shared<V>(), SumOf{});
  }
  template <class Thread>
  static KERNELS_GPU_INLINE float max(const Thread& t, float x) {
    return block_reduce<kRowWarps>(t, x, t.template shared<float>(), LargerOf{});
  }
};
constexpr std::size_t kRowShared = kRowWarps * sizeof(double);

/// What a norm multiplies by: γ, counted from `offset`; ones without γ.
template <class T>
KERNELS_GPU_INLINE float norm_factor(const T* gamma, std::int64_t c, float offset) {
  return gamma ? to_float(gamma[c]) + offset : 1.0f;
}

/// y = (x − mean)·rstd·γ + β; without `layer` no mean, without γ ones, without β none added. Two passes over x, the
/// second from cache: the variance is that of the differences to the mean.
template <class T>
struct NormKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer, wide;
  std::int64_t rows, cols, x_stride, y_stride;
  const T *x, *gamma, *beta;
  T* y;
  Numbers mean, rstd;
  float epsilon, offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    using Row = RowAccess<T>;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* from = x + r * x_stride;
      float m = 0, sum = 0;
      if (layer) {
        Row::each(t, from, cols, wide, [&](std::int64_t, float v) { sum += v; });
        m = Row::sum(t, sum) / static_cast<float>(cols);
      }
      float squares = 0;
      Row::each(t, from, cols, wide, [&](std::int64_t, float v) { squares += (v - m) * (v - m); });
      const float s = 1.0f / sqrtf(Row::sum(t, squares) / static_cast<float>(cols) + epsilon);
      T* to = y + r * y_stride;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        const float v = (to_float(from[c]) - m) * s * norm_factor(gamma, c, offset);
        to[c] = from_float<T>(beta ? v + to_float(beta[c]) : v);
      }
      if (t.index() == 0 && mean.there()) mean.set(r, m);
      if (t.index() == 0 && rstd.there()) rstd.set(r, s);
    }
  }
};

/// dx = rstd·(g − Σg/n − x̂·Σ(g·x̂)/n), g = dy·γ, x̂ = (x − mean)·rstd; RMSNorm has no Σg. `sums`, where given, are those
/// over the columns of all ranks, and `total` their number.
template <class T>
struct NormSlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer, adds;
  std::int64_t rows, cols, total, x_stride, dy_stride, dx_stride;
  const T *x, *gamma, *dy;
  T* dx;
  Numbers mean, rstd, sums;
  float offset = 0;

  KERNELS_GPU_INLINE float slope(const T* d, std::int64_t c) const {
    return to_float(d[c]) * norm_factor(gamma, c, offset);
  }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    using Row = RowAccess<T>;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const float m = layer ? mean.get(r) : 0.0f, s = rstd.get(r);
      const T *from = x + r * x_stride, *d = dy + r * dy_stride;
      float sum = 0, product = 0;
      if (sums.there()) {
        sum = layer ? sums.get(r) : 0.0f;
        product = sums.get(rows + r);
      } else {
        for (std::int64_t c = t.index(); c < cols; c += kThreads) {
          const float g = slope(d, c);
          sum += g;
          product += g * (to_float(from[c]) - m) * s;
        }
        sum = layer ? Row::sum(t, sum) : 0.0f;
        product = Row::sum(t, product);
      }
      const float share = 1.0f / static_cast<float>(total);
      T* to = dx + r * dx_stride;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        const float g = slope(d, c), hat = (to_float(from[c]) - m) * s;
        const float v = s * (g - sum * share - hat * product * share);
        to[c] = from_float<T>(adds ? to_float(to[c]) + v : v);
      }
    }
  }
};

/// y[r,:] = softmax(scale·x[r,:]); causal: columns whose position is past that of row r mod period, or before its
/// window, are 0.
template <class T>
struct SoftmaxKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  std::int64_t rows, cols, x_stride, y_stride, period;
  const T* x;
  T* y;
  float scale;
  const std::int32_t *row_positions, *col_positions;  // or null
  std::int64_t window = 0;                            // 0: none
  bool chunked = false;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    using Row = RowAccess<T>;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* from = x + r * x_stride;
      T* to = y + r * y_stride;
      const std::int64_t last = row_positions ? row_positions[r % period] : 0;
      const std::int64_t first = window_start(last, window, chunked);
      const auto sees = [&](std::int64_t c) {
        return !row_positions || (col_positions[c] <= last && col_positions[c] >= first);
      };
      float most = -kInfinity;
      for (std::int64_t c = t.index(); c < cols; c += kThreads)
        if (sees(c)) most = larger(most, scale * to_float(from[c]));
      most = Row::max(t, most);
      float sum = 0;
      for (std::int64_t c = t.index(); c < cols; c += kThreads)
        if (sees(c)) sum += expf(scale * to_float(from[c]) - most);
      sum = Row::sum(t, sum);
      for (std::int64_t c = t.index(); c < cols; c += kThreads)
        to[c] = from_float<T>(sees(c) ? expf(scale * to_float(from[c]) - most) / sum : 0.0f);
    }
  }
};

/// dx = scale·y·(dy − Σ y·dy).
template <class T>
struct SoftmaxSlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  std::int64_t rows, cols, y_stride, dy_stride, dx_stride;
  const T *y, *dy;
  T* dx;
  float scale;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T *p = y + r * y_stride, *d = dy + r * dy_stride;
      float sum = 0;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) sum += to_float(p[c]) * to_float(d[c]);
      sum = RowAccess<T>::sum(t, sum);
      for (std::int64_t c = t.index(); c < cols; c += kThreads)
        dx[r * dx_stride + c] = from_float<T>(scale * to_float(p[c]) * (to_float(d[c]) - sum));
    }
  }
};

constexpr std::int32_t kNoTarget = -100;

/// lse[r] = ln Σ exp(x[r,:]), losses[r] = lse − x[target], 0 where the target is kNoTarget.
template <class T>
struct CrossEntropyKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  std::int64_t rows, classes;
  bool wide;
  const T* logits;
  const std::int32_t* targets;
  Numbers lse;
  float* losses;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    using Row = RowAccess<T>;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* x = logits + r * classes;
      float most = -kInfinity, sum = 0;
      Row::each(t, x, classes, wide, [&](std::int64_t, float v) { most = larger(most, v); });
      most = Row::max(t, most);
      Row::each(t, x, classes, wide, [&](std::int64_t, float v) { sum += expf(v - most); });
      sum = Row::sum(t, sum);
      if (t.index() != 0) continue;
      const float all = most + logf(sum);
      lse.set(r, all);
      losses[r] = targets[r] == kNoTarget ? 0.0f : all - to_float(x[targets[r]]);
    }
  }
};

/// dx[r,:] = weight·(exp(x − lse) − onehot(target)); see CrossEntropyBackward of the plan for negative targets.
template <class T>
struct CrossEntropySlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = false;
  std::int64_t rows, classes;
  float weight;
  const T* logits;
  const std::int32_t* targets;
  Numbers lse;
  T* dlogits;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* x = logits + r * classes;
      const std::int32_t target = targets[r];
      const float factor = target == kNoTarget ? 0.0f : weight, all = lse.get(r);
      for (std::int64_t c = t.index(); c < classes; c += kThreads) {
        const float p = factor == 0 ? 0.0f : factor * expf(to_float(x[c]) - all);
        dlogits[r * classes + c] = from_float<T>(c == target ? p - factor : p);
      }
    }
  }
};

/// One of the passes of a loss that runs op by op: x −= most[r], with out[rows + r] = x[target], 0 for negative
/// targets; x = exp(x); x /= sums[r]; x = weight·(x − onehot(target)), zeros without a target.
enum class LossStep : std::uint8_t { Subtract, Exponentiate, Divide, Scale };

template <class T>
struct LossStepKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = false;
  LossStep step;
  std::int64_t rows, classes;
  float weight;
  T* x;
  const std::int32_t* targets;
  Numbers most, sums;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      T* row = x + r * classes;
      const std::int32_t target = targets[r];
      const float base = step == LossStep::Subtract ? most.get(r) : 0.0f;
      const float factor = step == LossStep::Divide  ? 1.0f / sums.get(r)
                           : step != LossStep::Scale ? 1.0f
                           : target == kNoTarget     ? 0.0f
                                                     : weight;
      if (step == LossStep::Subtract && target < 0 && t.index() == 0) sums.set(rows + r, 0.0f);
      for (std::int64_t c = t.index(); c < classes; c += kThreads) {
        float v = to_float(row[c]) - base;
        if (step == LossStep::Subtract && c == target) sums.set(rows + r, v);
        if (step == LossStep::Exponentiate) v = expf(v);
        if (step == LossStep::Scale && c == target) v -= 1.0f;
        row[c] = from_float<T>(v * factor);
      }
    }
  }
};

/// What one number per row can be.
enum class RowValue : std::uint8_t { Max, Sum, Dot, NormSums, CrossEntropySums };

/// max: out[r] = max x.  sum: out[r] = Σ x.  dot: out[r] = Σ x·b.  norm sums: out[r] = Σ x (0 without `layer`),
/// out[rows + r] = Σ x². cross-entropy sums: out[r] = Σ exp(x − most[r]), out[rows + r] = x[target] − most[r], 0 for
/// negative targets.
template <class T>
struct RowValueKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  RowValue what;
  bool layer;
  std::int64_t rows, cols, x_stride, b_stride;
  const T *x, *b;
  const std::int32_t* targets;
  Numbers most, out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    using Row = RowAccess<T>;
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const T* row = x + r * x_stride;
      float first = what == RowValue::Max ? -kInfinity : 0.0f, second = 0;
      const float base = most.there() ? most.get(r) : 0.0f;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        const float v = to_float(row[c]);
        if (what == RowValue::Max) first = larger(first, v);
        if (what == RowValue::Sum) first += v;
        if (what == RowValue::Dot) first += v * to_float(b[r * b_stride + c]);
        if (what == RowValue::CrossEntropySums) first += expf(v - base);
        if (what == RowValue::NormSums) first += layer ? v : 0.0f, second += v * v;
      }
      first = what == RowValue::Max ? Row::max(t, first) : Row::sum(t, first);
      if (what == RowValue::NormSums) second = Row::sum(t, second);
      if (t.index() != 0) continue;
      out.set(r, first);
      if (what == RowValue::CrossEntropySums) second = targets[r] < 0 ? 0.0f : to_float(row[targets[r]]) - base;
      if (what == RowValue::NormSums || what == RowValue::CrossEntropySums) out.set(rows + r, second);
    }
  }
};

/// y, mean and rstd of a norm from sums over the columns of all ranks; see NormApply of the plan.
template <class T>
struct NormApplyKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = false;
  bool layer;
  std::int64_t rows, cols, total, x_stride, y_stride;
  const T *x, *gamma, *beta;
  T* y;
  Numbers sums, mean, rstd;
  float epsilon, offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const float share = 1.0f / static_cast<float>(total);
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const float m = layer ? sums.get(r) * share : 0.0f;
      const float s = 1.0f / sqrtf(larger(0.0f, sums.get(rows + r) * share - m * m) + epsilon);
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        const float v = (to_float(x[r * x_stride + c]) - m) * s * norm_factor(gamma, c, offset);
        y[r * y_stride + c] = from_float<T>(beta ? v + to_float(beta[c]) : v);
      }
      if (t.index() == 0 && mean.there()) mean.set(r, m);
      if (t.index() == 0 && rstd.there()) rstd.set(r, s);
    }
  }
};

/// sums[r] = Σ dy·γ (0 without `layer`), sums[rows + r] = Σ dy·γ·x̂.
template <class T>
struct NormSlopeSumsKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer;
  std::int64_t rows, cols, x_stride, dy_stride;
  const T *x, *gamma, *dy;
  Numbers mean, rstd, sums;
  float offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block(); r < rows; r += t.blocks()) {
      const float m = layer ? mean.get(r) : 0.0f, s = rstd.get(r);
      float sum = 0, product = 0;
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        const float g = to_float(dy[r * dy_stride + c]) * norm_factor(gamma, c, offset);
        sum += layer ? g : 0.0f;
        product += g * (to_float(x[r * x_stride + c]) - m) * s;
      }
      sum = RowAccess<T>::sum(t, sum);
      product = RowAccess<T>::sum(t, product);
      if (t.index() != 0) continue;
      sums.set(r, sum);
      sums.set(rows + r, product);
    }
  }
};

template <class T>
using RowKernels = KernelList<NormKernel<T>, NormSlopeKernel<T>, SoftmaxKernel<T>, SoftmaxSlopeKernel<T>,
                              CrossEntropyKernel<T>, CrossEntropySlopeKernel<T>, LossStepKernel<T>, RowValueKernel<T>,
                              NormApplyKernel<T>, NormSlopeSumsKernel<T>>;

}  // namespace orrery::kernels::cuda
