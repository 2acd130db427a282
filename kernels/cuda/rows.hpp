// SPDX-License-Identifier: Apache-2.0
// Kernels that reduce the rows of a matrix, sums in a fixed order. Statistics of rows may have a type of their own.
#pragma once

#include "kernels/cuda/row_teams.hpp"

namespace orrery::kernels::cuda {

/// Σ exp(x − most) beside the largest x so far: one look at each number gives both.
struct ExponentialSum {
  float most = -kInfinity, sum = 0;

  /// What numbers are counted from: never −∞, from which −∞ has no difference.
  KERNELS_GPU_INLINE float base() const { return most == -kInfinity ? 0.0f : most; }
  template <int N>
  KERNELS_GPU_INLINE void add(const float (&x)[N]) {
    const float before = most;
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) most = larger(most, x[j]);
    if (most != before) sum *= expf(before - base());
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) sum += expf(x[j] - base());
  }
};
struct JoinExponentialSums {
  KERNELS_GPU_INLINE ExponentialSum operator()(ExponentialSum a, ExponentialSum b) const {
    ExponentialSum all{larger(a.most, b.most), 0};
    all.sum = a.sum * expf(a.most - all.base()) + b.sum * expf(b.most - all.base());
    return all;
  }
};

/// y[r,:] = softmax(scale·x[r,:]); causal: columns whose position is past that of row r mod period, or before its
/// window, are 0.
template <class T>
struct SoftmaxKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  RowTeams teams;
  std::int64_t x_stride, y_stride, period;
  const T* x;
  T* y;
  float scale;
  const std::int32_t *row_positions, *col_positions;  // or null
  std::int64_t window = 0;                            // 0: none
  bool chunked = false;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = x + r * x_stride; };
    each_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const std::int64_t last = row_positions ? row_positions[share.row % period] : 0;
      const std::int64_t first = window_start(last, window, chunked);
      ExponentialSum own;
      row.each([&](int, auto c, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        float scaled[N];
        scale_seen(v[0], c, first, last, scaled);
        own.add(scaled);
      });
      const ExponentialSum all = team_reduce(t, share, own, JoinExponentialSums{});
      const float share_of_one = 1.0f / all.sum;
      row.each([&](int, auto c, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        float out[N];
        scale_seen(v[0], c, first, last, out);
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) out[j] = out[j] == -kInfinity ? 0.0f : expf(out[j] - all.base()) * share_of_one;
        store<T, N>(y + share.row * y_stride + c, out);
      });
    });
  }

 private:
  /// scale·x of columns that are seen, −∞ of others.
  template <int N>
  KERNELS_GPU_INLINE void scale_seen(const float (&v)[N], std::int64_t c, std::int64_t first, std::int64_t last,
                                     float (&to)[N]) const {
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) to[j] = scale * v[j];
    if (!row_positions) return;
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) {
      const std::int64_t at = col_positions[c + j];
      if (at > last || at < first) to[j] = -kInfinity;
    }
  }
};

/// dx = scale·y·(dy − Σ y·dy).
template <class T>
struct SoftmaxSlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  RowTeams teams;
  std::int64_t y_stride, dy_stride, dx_stride;
  const T *y, *dy;
  T* dx;
  float scale;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[2]) {
      at[0] = y + r * y_stride;
      at[1] = dy + r * dy_stride;
    };
    each_row<T, 2>(t, teams, from, [&](const auto& rows, const RowShare& share) {
      float sum = 0;
      rows.each([&](int, auto, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) sum += v[0][j] * v[1][j];
      });
      sum = team_reduce(t, share, sum, SumOf{});
      rows.each([&](int, auto c, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        float out[N];
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) out[j] = scale * v[0][j] * (v[1][j] - sum);
        store<T, N>(dx + share.row * dx_stride + c, out);
      });
    });
  }
};

constexpr std::int32_t kNoTarget = -100;

/// lse[r] = ln Σ exp(x[r,:]), losses[r] = lse − x[target], 0 where the target is kNoTarget.
template <class T>
struct CrossEntropyKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  RowTeams teams;
  const T* logits;
  const std::int32_t* targets;
  Numbers lse;
  float* losses;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = logits + r * teams.cols; };
    each_read_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const std::int32_t target = targets[share.row];
      const float hit = target < 0 ? 0.0f : to_float(logits[share.row * teams.cols + target]);
      ExponentialSum own;
      row.each([&](int, auto, const auto& v) { own.add(v[0]); });
      const ExponentialSum sum = team_reduce(t, share, own, JoinExponentialSums{});
      if (!share.leads) return;
      const float all = sum.most + logf(sum.sum);
      lse.set(share.row, all);
      losses[share.row] = target == kNoTarget ? 0.0f : all - hit;
    });
  }
};

/// dx[r,:] = weight·(exp(x − lse) − onehot(target)); see CrossEntropyBackward of the plan for negative targets.
template <class T>
struct CrossEntropySlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = false;
  RowTeams teams;
  float weight;
  const T* logits;
  const std::int32_t* targets;
  Numbers lse;
  T* dlogits;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = logits + r * teams.cols; };
    each_read_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const std::int32_t target = targets[share.row];
      const float factor = target == kNoTarget ? 0.0f : weight, all = lse.get(share.row);
      row.each([&](int, auto c, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        float out[N];
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) {
          const float p = factor == 0 ? 0.0f : factor * expf(v[0][j] - all);
          out[j] = c + j == target ? p - factor : p;
        }
        store<T, N>(dlogits + share.row * teams.cols + c, out);
      });
    });
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
  RowTeams teams;
  float weight;
  T* x;
  const std::int32_t* targets;
  Numbers most, sums;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = x + r * teams.cols; };
    each_read_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const std::int64_t r = share.row;
      const std::int32_t target = targets[r];
      const float base = step == LossStep::Subtract ? most.get(r) : 0.0f;
      const float factor = step == LossStep::Divide  ? 1.0f / sums.get(r)
                           : step != LossStep::Scale ? 1.0f
                           : target == kNoTarget     ? 0.0f
                                                     : weight;
      if (step == LossStep::Subtract && target < 0 && share.leads) sums.set(teams.rows + r, 0.0f);
      row.each([&](int, auto c, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        float out[N];
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) out[j] = v[0][j] - base;
        if (step == LossStep::Exponentiate) {
          KERNELS_UNROLL
          for (int j = 0; j < N; ++j) out[j] = expf(out[j]);
        }
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) {
          if (step == LossStep::Subtract && c + j == target) sums.set(teams.rows + r, out[j]);
          if (step == LossStep::Scale && c + j == target) out[j] -= 1.0f;
          out[j] *= factor;
        }
        store<T, N>(x + r * teams.cols + c, out);
      });
    });
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
  RowTeams teams;
  std::int64_t x_stride, b_stride;
  const T *x, *b;
  const std::int32_t* targets;
  Numbers most, out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    if (what == RowValue::Dot)
      over<2>(t);
    else
      over<1>(t);
  }

 private:
  template <int IN, class Thread>
  KERNELS_GPU_INLINE void over(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[IN]) {
      at[0] = x + r * x_stride;
      if constexpr (IN == 2) at[1] = b + r * b_stride;
    };
    each_read_row<T, IN>(t, teams, from, [&](const auto& rows, const RowShare& share) {
      const std::int64_t r = share.row;
      const float base = most.there() ? most.get(r) : 0.0f;
      TwoSums own{what == RowValue::Max ? -kInfinity : 0.0f, 0};
      rows.each([&](int, auto, const auto& v) {
        constexpr int N = sizeof(v[0]) / sizeof(float);
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) {
          const float one = v[0][j];
          if (what == RowValue::Max) own.first = larger(own.first, one);
          if (what == RowValue::Sum) own.first += one;
          if (what == RowValue::Dot) own.first += one * v[IN - 1][j];
          if (what == RowValue::CrossEntropySums) own.first += expf(one - base);
          if (what == RowValue::NormSums) own.first += layer ? one : 0.0f, own.second += one * one;
        }
      });
      if (what == RowValue::Max)
        own.first = team_reduce(t, share, own.first, LargerOf{});
      else
        own = team_reduce(t, share, own, JoinTwoSums{});
      if (!share.leads) return;
      out.set(r, own.first);
      if (what == RowValue::CrossEntropySums)
        own.second = targets[r] < 0 ? 0.0f : to_float(x[r * x_stride + targets[r]]) - base;
      if (what == RowValue::NormSums || what == RowValue::CrossEntropySums) out.set(teams.rows + r, own.second);
    });
  }
};

template <class T>
using RowKernels = KernelList<SoftmaxKernel<T>, SoftmaxSlopeKernel<T>, CrossEntropyKernel<T>,
                              CrossEntropySlopeKernel<T>, LossStepKernel<T>, RowValueKernel<T>>;

}  // namespace orrery::kernels::cuda
