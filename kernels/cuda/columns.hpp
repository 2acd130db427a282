// SPDX-License-Identifier: Apache-2.0
// Sums over rows and over whole arrays, in two kernels: parts in a fixed order, then the parts in a fixed order.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

constexpr std::int64_t kRowsOfPart = 64;
/// Parts of a sum over so many rows; scratch of a column sum is parts · period · cols floats per result.
constexpr std::int64_t column_parts(std::int64_t rows) { return blocks_of(rows, kRowsOfPart); }

/// parts[p, c] = Σ f(r, c) over the rows of part p. With x: dγ (dy·x̂) and dβ (dy) of a norm; without: Σ dy. Rows are
/// those of one residue r0 modulo `period`, taken one after another, a few at once.
template <class T>
struct ColumnPartsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, cols, period, dy_stride, x_stride;
  const T *dy, *x;  // x may be null
  Numbers mean, rstd;
  float *product, *plain;  // [parts, period, cols]; either may be null
  bool wide;               // rows of dy and x are whole packs

  /// Stretches of columns that a block takes.
  constexpr std::int64_t tiles() const { return blocks_of<std::int64_t>(cols, kThreads * (wide ? kPack<T> : 1)); }
  constexpr std::int64_t blocks() const { return column_parts(rows / period) * period * tiles(); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t b = t.block(); b < blocks(); b += t.blocks()) {
      if (wide)
        part<kPack<T>>(t, b);
      else
        part<1>(t, b);
    }
  }

 private:
  template <int N, class Thread>
  KERNELS_GPU_INLINE void part(const Thread& t, std::int64_t b) const {
    constexpr int kRows = N == 8 ? 2 : 4;
    const std::int64_t c = (b % tiles() * kThreads + t.index()) * N, residue = b / tiles() % period;
    const std::int64_t slice = b / tiles() / period;
    if (c >= cols) return;
    const std::int64_t end = smaller_of<std::int64_t>((slice + 1) * kRowsOfPart, rows / period);
    float sum[N] = {}, with_x[N] = {};
    for (std::int64_t i = slice * kRowsOfPart; i < end; i += kRows) {
      float d[kRows][N] = {}, v[kRows][N] = {}, m[kRows] = {}, s[kRows] = {};
      KERNELS_UNROLL
      for (int k = 0; k < kRows; ++k) {
        if (i + k >= end) continue;
        const std::int64_t r = (i + k) * period + residue;
        load<T, N>(dy + r * dy_stride + c, d[k]);
        if (!x) continue;
        load<T, N>(x + r * x_stride + c, v[k]);
        m[k] = mean.there() ? mean.get(r) : 0.0f;
        s[k] = rstd.get(r);
      }
      KERNELS_UNROLL
      for (int k = 0; k < kRows; ++k) {
        KERNELS_UNROLL
        for (int j = 0; j < N; ++j) {
          sum[j] += d[k][j];
          with_x[j] += d[k][j] * (v[k][j] - m[k]) * s[k];
        }
      }
    }
    const std::int64_t at = (slice * period + residue) * cols + c;
    for (int j = 0; j < N; ++j) {
      if (plain) plain[at + j] = sum[j];
      if (product) product[at + j] = with_x[j];
    }
  }
};

/// Calls f(x) for count numbers that lie `stride` apart, in their order, and takes several at once from memory.
template <class V, class F>
KERNELS_GPU_INLINE void each_of(const V* from, std::int64_t count, std::int64_t stride, F&& f) {
  constexpr int kAtOnce = 8;
  for (std::int64_t i = 0; i < count; i += kAtOnce) {
    V x[kAtOnce];
    KERNELS_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k < count) x[k] = from[(i + k) * stride];
    KERNELS_UNROLL
    for (int k = 0; k < kAtOnce; ++k)
      if (i + k < count) f(x[k]);
  }
}

/// out[c] (+)= Σ_p parts[p, c]: a lane per column, the parts of warp w being w, w + 8, …
template <class T>
struct SumPartsKernel {
  static constexpr int kThreads = 256, kWarps = kThreads / kWarp;
  static constexpr bool kCooperates = true;
  static constexpr std::size_t kShared = kThreads * sizeof(float);
  std::int64_t parts, cols;
  const float* from;
  T* out;
  bool adds;

  constexpr std::int64_t blocks() const { return blocks_of<std::int64_t>(cols, kWarp); }

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    auto* sums = t.template shared<float>();
    const int warp = t.index() / kWarp, lane = t.index() % kWarp;
    for (std::int64_t b = t.block(); b < blocks(); b += t.blocks()) {
      const std::int64_t c = b * kWarp + lane;
      float own = 0;
      if (c < cols && warp < parts)
        each_of(from + warp * cols + c, blocks_of<std::int64_t>(parts - warp, kWarps), kWarps * cols,
                [&](float x) { own += x; });
      sums[t.index()] = own;
      t.sync();
      if (warp == 0 && c < cols) {
        float sum = adds ? to_float(out[c]) : 0.0f;
        for (int w = 0; w < kWarps; ++w) sum += sums[w * kWarp + lane];
        out[c] = from_float<T>(sum);
      }
      t.sync();
    }
  }
};

constexpr std::int64_t kSumBlocks = 512;

/// parts[b] = Σ g² over a slice of the elements, in double.
template <class T>
struct SquaresKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = true;
  std::int64_t elements;
  const T* g;
  double* parts;
  bool wide;  // g begins at a multiple of 16 bytes

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    constexpr int N = kPack<T>;
    const std::int64_t first = t.block() * kThreads + t.index(), step = t.blocks() * kThreads;
    const std::int64_t packs = wide ? elements / N : 0;
    double sum = 0;
    const auto add = [&](float v) { sum += static_cast<double>(v) * static_cast<double>(v); };
    if (first < packs)
      each_of(reinterpret_cast<const Pack<T, N>*>(g) + first, blocks_of(packs - first, step), step,
              [&](const Pack<T, N>& pack) {
                KERNELS_UNROLL
                for (int j = 0; j < N; ++j) add(to_float(pack.value[j]));
              });
    for (std::int64_t i = packs * N + first; i < elements; i += step) add(to_float(g[i]));
    sum = block_reduce<kThreads / kWarp>(t, sum, t.template shared<double>(), SumOf{});
    if (t.index() == 0) parts[t.block()] = sum;
  }
};

/// out[0] += weight·Σ parts, one block. V is the type of the parts.
template <class V>
struct TotalKernel {
  static constexpr int kThreads = 1024;
  static constexpr bool kCooperates = true;
  std::int64_t parts;
  const V* from;
  double weight;
  Numbers out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    double sum = 0;
    if (t.index() < parts)
      each_of(from + t.index(), blocks_of<std::int64_t>(parts - t.index(), kThreads), kThreads,
              [&](V x) { sum += static_cast<double>(x); });
    sum = block_reduce<kThreads / kWarp>(t, sum, t.template shared<double>(), SumOf{});
    if (t.index() == 0) out.set(0, out.exact(0) + weight * sum);
  }
};
constexpr std::size_t kTotalShared = TotalKernel<float>::kThreads / kWarp * sizeof(double);

/// lse = max + ln sums[0]; losses[r] = ln sums[0] − sums[1], 0 where the target is −100.
struct CrossEntropyFinishKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows;
  const std::int32_t* targets;
  Numbers max, sums, lse;
  float* losses;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t r = t.block() * kThreads + t.index(); r < rows; r += t.blocks() * kThreads) {
      const float log_sum = logf(sums.get(r));
      lse.set(r, max.get(r) + log_sum);
      losses[r] = targets[r] == -100 ? 0.0f : log_sum - sums.get(rows + r);
    }
  }
};

/// dx[r,:] = Σ_h dy[r,h,:]; added to when `adds`.
template <class T>
struct SumHeadsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t rows, heads, cols, token_stride, head_stride, dx_stride;
  const T* dy;
  T* dx;
  bool adds;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < rows * cols; i += t.blocks() * kThreads) {
      const std::int64_t r = i / cols, c = i % cols;
      float sum = adds ? to_float(dx[r * dx_stride + c]) : 0.0f;
      for (std::int64_t h = 0; h < heads; ++h) sum += to_float(dy[r * token_stride + h * head_stride + c]);
      dx[r * dx_stride + c] = from_float<T>(sum);
    }
  }
};

template <class T>
using ColumnKernels = KernelList<ColumnPartsKernel<T>, SumPartsKernel<T>, SquaresKernel<T>, SumHeadsKernel<T>>;
using TotalKernels = KernelList<TotalKernel<float>, TotalKernel<double>, CrossEntropyFinishKernel>;

}  // namespace orrery::kernels::cuda
