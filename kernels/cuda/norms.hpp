// SPDX-License-Identifier: Apache-2.0
// Norms and their gradients, whole and in pieces.
#pragma once

#include "kernels/cuda/columns.hpp"
#include "kernels/cuda/row_teams.hpp"

namespace orrery::kernels::cuda {

/// What a norm multiplies by, N numbers from column c on: γ, counted from `offset`; ones without γ.
template <class T, int N>
KERNELS_GPU_INLINE void norm_factors(const T* gamma, std::int64_t c, float offset, float (&to)[N]) {
  if (gamma) load<T, N>(gamma + c, to);
  KERNELS_UNROLL
  for (int j = 0; j < N; ++j) to[j] = gamma ? to[j] + offset : 1.0f;
}

/// y = (x − m)·s·γ + β of a row; without γ ones, without β none added.
template <class T, class Rows>
KERNELS_GPU_INLINE void write_norm(const Rows& row, float m, float s, const T* gamma, const T* beta, float offset,
                                   T* y) {
  row.each([&](int, auto c, const auto& x) {
    constexpr int N = sizeof(x[0]) / sizeof(float);
    float factor[N], shift[N] = {}, v[N];
    norm_factors<T, N>(gamma, c, offset, factor);
    if (beta) load<T, N>(beta + c, shift);
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) v[j] = (x[0][j] - m) * s * factor[j] + shift[j];
    store<T, N>(y + c, v);
  });
}

/// y = (x − mean)·rstd·γ + β; without `layer` no mean. The variance is that of the differences to the mean.
template <class T>
struct NormKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer;
  RowTeams teams;
  std::int64_t x_stride, y_stride;
  const T *x, *gamma, *beta;
  T* y;
  Numbers mean, rstd;
  float epsilon, offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = x + r * x_stride; };
    each_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const auto cols = static_cast<float>(teams.cols);
      float m = 0, squares = 0;
      if (layer) {
        float sum = 0;
        row.each([&](int, auto, const auto& v) {
          for (const float one : v[0]) sum += one;
        });
        m = team_reduce(t, share, sum, SumOf{}) / cols;
      }
      row.each([&](int, auto, const auto& v) {
        for (const float one : v[0]) squares += (one - m) * (one - m);
      });
      const float s = 1.0f / sqrtf(team_reduce(t, share, squares, SumOf{}) / cols + epsilon);
      write_norm(row, m, s, gamma, beta, offset, y + share.row * y_stride);
      if (share.leads && mean.there()) mean.set(share.row, m);
      if (share.leads && rstd.there()) rstd.set(share.row, s);
    });
  }
};

/// Blocks that take the gradients of rows when those of γ and β are summed on the way: two for each processor of an
/// H100.
constexpr std::int64_t kNormBlocks = 264;
/// Columns whose sums the memory of a block holds.
constexpr std::int64_t kNormColumns = 16384;
/// Parts of the sums for γ and β; scratch is two floats for each and column.
constexpr std::int64_t norm_parts(std::int64_t rows) {
  const std::int64_t least = rows < kNormBlocks ? rows : kNormBlocks;
  return column_parts(rows) < least ? least : column_parts(rows);
}

/// What one row adds to Σg and Σ(g·x̂), g = dy·γ, x̂ = (x − mean)·rstd, over a thread's columns. Rows: x, dy.
template <class T, class Rows>
KERNELS_GPU_INLINE TwoSums slope_sums(const Rows& rows, float m, float s, const T* gamma, float offset) {
  TwoSums sums{0, 0};
  rows.each([&](int, auto c, const auto& v) {
    constexpr int N = sizeof(v[0]) / sizeof(float);
    float factor[N];
    norm_factors<T, N>(gamma, c, offset, factor);
    KERNELS_UNROLL
    for (int j = 0; j < N; ++j) {
      const float g = v[1][j] * factor[j];
      sums.first += g;
      sums.second += g * (v[0][j] - m) * s;
    }
  });
  return sums;
}

/// dx = rstd·(g − Σg/n − x̂·Σ(g·x̂)/n); RMSNorm has no Σg. `sums`, where given, are those over the columns of all ranks,
/// and `total` their number. Of rows of whole packs, `product` and `plain` get the sums over the rows of a block for dγ
/// (dy·x̂) and dβ (dy): [blocks, cols]. Each thread adds up those of its columns in the block's memory.
template <class T>
struct NormSlopeKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer, adds;
  RowTeams teams;
  std::int64_t total, x_stride, dy_stride, dx_stride;
  const T *x, *gamma, *dy;
  T* dx;
  Numbers mean, rstd, sums;
  float offset = 0;
  float *product = nullptr, *plain = nullptr;

  /// Sums that a block keeps of each kind.
  constexpr std::int64_t kept() const { return teams.in_block() * teams.cols; }
  constexpr std::size_t shared_bytes() const {
    return kRowShared + static_cast<std::size_t>(kept()) * sizeof(float) * ((product ? 1 : 0) + (plain ? 1 : 0));
  }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    auto* products = t.template shared<float>(kRowShared);
    float* plains = products + kept();
    for (std::int64_t i = t.index(); i < kept(); i += kThreads) {
      if (product) products[i] = 0;
      if (plain) plains[i] = 0;
    }
    t.sync();
    const auto from = [&](std::int64_t r, const T*(&at)[2]) {
      at[0] = x + r * x_stride;
      at[1] = dy + r * dy_stride;
    };
    each_row<T, 2>(t, teams, from, [&](const auto& rows, const RowShare& share) {
      const std::int64_t r = share.row;
      const float m = layer ? mean.get(r) : 0.0f, s = rstd.get(r);
      const TwoSums all = sums.there() ? TwoSums{sums.get(r), sums.get(teams.rows + r)}
                                       : team_reduce(t, share, slope_sums(rows, m, s, gamma, offset), JoinTwoSums{});
      const std::int64_t own = t.index() / teams.threads * teams.cols;
      write(rows, m, s, layer ? all.first : 0.0f, all.second, dx + r * dx_stride, products + own, plains + own);
    });
    t.sync();
    if (product) write_parts(t, products, product);
    if (plain) write_parts(t, plains, plain);
  }

 private:
  /// Where the sums of column c + j lie among those of a row: so that threads side by side use different banks.
  KERNELS_GPU_INLINE int slot(int c, int j) const { return j * static_cast<int>(teams.cols / kPack<T>) + c / kPack<T>; }
  template <class Rows>
  KERNELS_GPU_INLINE void write(const Rows& rows, float m, float s, float sum, float dot, T* to, float* products,
                                float* plains) const {
    const float share = 1.0f / static_cast<float>(total);
    rows.each([&](int, auto c, const auto& v) {
      constexpr int N = sizeof(v[0]) / sizeof(float);
      float factor[N], out[N] = {};
      norm_factors<T, N>(gamma, c, offset, factor);
      if (adds) load<T, N>(to + c, out);
      KERNELS_UNROLL
      for (int j = 0; j < N; ++j) {
        const float hat = (v[0][j] - m) * s;
        out[j] += s * (v[1][j] * factor[j] - sum * share - hat * dot * share);
        if (product) products[slot(static_cast<int>(c), j)] += v[1][j] * hat;
        if (plain) plains[slot(static_cast<int>(c), j)] += v[1][j];
      }
      store<T, N>(to + c, out);
    });
  }
  /// The sums of all threads that share a column, in their order.
  template <class Thread>
  KERNELS_GPU_INLINE void write_parts(const Thread& t, const float* of_threads, float* to) const {
    for (std::int64_t c = t.index(); c < teams.cols; c += kThreads) {
      float sum = 0;
      for (std::int64_t team = 0; team < teams.in_block(); ++team)
        sum += of_threads[team * teams.cols + slot(static_cast<int>(c), static_cast<int>(c % kPack<T>))];
      to[t.block() * teams.cols + c] = sum;
    }
  }
};

/// y, mean and rstd of a norm from sums over the columns of all ranks; see NormApply of the plan.
template <class T>
struct NormApplyKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = false;
  bool layer;
  RowTeams teams;
  std::int64_t total, x_stride, y_stride;
  const T *x, *gamma, *beta;
  T* y;
  Numbers sums, mean, rstd;
  float epsilon, offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const float part = 1.0f / static_cast<float>(total);
    const auto from = [&](std::int64_t r, const T*(&at)[1]) { at[0] = x + r * x_stride; };
    each_row<T, 1>(t, teams, from, [&](const auto& row, const RowShare& share) {
      const std::int64_t r = share.row;
      const float m = layer ? sums.get(r) * part : 0.0f;
      const float s = 1.0f / sqrtf(larger(0.0f, sums.get(teams.rows + r) * part - m * m) + epsilon);
      write_norm(row, m, s, gamma, beta, offset, y + r * y_stride);
      if (share.leads && mean.there()) mean.set(r, m);
      if (share.leads && rstd.there()) rstd.set(r, s);
    });
  }
};

/// sums[r] = Σ dy·γ (0 without `layer`), sums[rows + r] = Σ dy·γ·x̂.
template <class T>
struct NormSlopeSumsKernel {
  static constexpr int kThreads = kRowThreads;
  static constexpr bool kCooperates = true;
  bool layer;
  RowTeams teams;
  std::int64_t x_stride, dy_stride;
  const T *x, *gamma, *dy;
  Numbers mean, rstd, sums;
  float offset = 0;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const auto from = [&](std::int64_t r, const T*(&at)[2]) {
      at[0] = x + r * x_stride;
      at[1] = dy + r * dy_stride;
    };
    each_row<T, 2>(t, teams, from, [&](const auto& rows, const RowShare& share) {
      const std::int64_t r = share.row;
      const float m = layer ? mean.get(r) : 0.0f;
      const TwoSums all = team_reduce(t, share, slope_sums(rows, m, rstd.get(r), gamma, offset), JoinTwoSums{});
      if (!share.leads) return;
      sums.set(r, layer ? all.first : 0.0f);
      sums.set(teams.rows + r, all.second);
    });
  }
};

template <class T>
using NormKernels = KernelList<NormKernel<T>, NormSlopeKernel<T>, NormApplyKernel<T>, NormSlopeSumsKernel<T>>;

}  // namespace orrery::kernels::cuda
