// SPDX-License-Identifier: Apache-2.0
// Images, prefixes, means over tokens and biases by relative position.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// rows[b, i, j, c, y, x] = image[b, c, i·patch + y, j·patch + x]: a thread per element of the rows.
template <class T>
struct PatchifyKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t batch, channels, side, patch;
  const T* image;
  T* rows;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t across = side / patch, all = batch * channels * side * side;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t x = w % patch, y = w / patch % patch, c = w / patch / patch % channels;
      const std::int64_t tile = w / patch / patch / channels, j = tile % across, i = tile / across % across;
      const std::int64_t b = tile / across / across;
      rows[w] = image[((b * channels + c) * side + i * patch + y) * side + j * patch + x];
    }
  }
};

/// out[b, 0] = prefix, out[b, 1 + r] = x[b, r].
template <class T>
struct ConcatPrefixKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t batch, rows, cols;
  const T *x, *prefix;
  T* out;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t all = batch * (rows + 1) * cols;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < all; w += t.blocks() * kThreads) {
      const std::int64_t c = w % cols, r = w / cols % (rows + 1), b = w / cols / (rows + 1);
      out[w] = r == 0 ? prefix[c] : x[(b * rows + r - 1) * cols + c];
    }
  }
};

/// dx[b, r] = dy[b, 1 + r], dprefix (+)= Σ_b dy[b, 0] in order of b.
template <class T>
struct ConcatPrefixSlopeKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t batch, rows, cols;
  const T* dy;
  T *dx, *dprefix;
  bool adds;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const std::int64_t body = batch * rows * cols, each = (rows + 1) * cols;
    for (std::int64_t w = t.block() * kThreads + t.index(); w < body + cols; w += t.blocks() * kThreads) {
      if (w < body) {
        dx[w] = dy[w / (rows * cols) * each + cols + w % (rows * cols)];
        continue;
      }
      const std::int64_t c = w - body;
      float sum = adds ? to_float(dprefix[c]) : 0.0f;
      for (std::int64_t b = 0; b < batch; ++b) sum += to_float(dy[b * each + c]);
      dprefix[c] = from_float<T>(sum);
    }
  }
};

/// y[b,:] = mean of x[b, r,:] over r; with `spreads` x[b, r,:] = y[b,:] / rows, its gradient.
template <class T>
struct MeanRowsKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t batch, rows, cols;
  T *x, *y;
  bool spreads;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    const float share = 1.0f / static_cast<float>(rows);
    for (std::int64_t w = t.block() * kThreads + t.index(); w < batch * cols; w += t.blocks() * kThreads) {
      T* column = x + w / cols * rows * cols + w % cols;
      float sum = 0;
      for (std::int64_t r = 0; !spreads && r < rows; ++r) sum += to_float(column[r * cols]);
      if (!spreads) y[w] = from_float<T>(sum * share);
      for (std::int64_t r = 0; spreads && r < rows; ++r) column[r * cols] = from_float<T>(to_float(y[w]) * share);
    }
  }
};

/// bias[h, pair] = table[index[pair], h].
template <class T>
struct RelativeBiasKernel {
  static constexpr int kThreads = 256;
  static constexpr bool kCooperates = false;
  std::int64_t heads, pairs;
  const std::int32_t* index;
  const T* table;
  T* bias;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block() * kThreads + t.index(); w < heads * pairs; w += t.blocks() * kThreads)
      bias[w] = table[index[w % pairs] * heads + w / pairs];
  }
};

/// dtable[bucket, h] += Σ dbias[h, pair] over the pairs of the bucket: a block per number of the table.
template <class T>
struct RelativeBiasSlopeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  std::int64_t heads, pairs, buckets;
  const std::int32_t* index;
  const T* dbias;
  T* dtable;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t w = t.block(); w < buckets * heads; w += t.blocks()) {
      float sum = 0;
      for (std::int64_t p = t.index(); p < pairs; p += kThreads)
        if (index[p] == w / heads) sum += to_float(dbias[w % heads * pairs + p]);
      sum = block_reduce<kThreads / kWarp>(t, sum, t.template shared<float>(), SumOf{});
      if (t.index() == 0) dtable[w] = from_float<T>(to_float(dtable[w]) + sum);
    }
  }
};

template <class T>
using ShapeKernels = KernelList<PatchifyKernel<T>, ConcatPrefixKernel<T>, ConcatPrefixSlopeKernel<T>, MeanRowsKernel<T>,
                                RelativeBiasKernel<T>, RelativeBiasSlopeKernel<T>>;

}  // namespace orrery::kernels::cuda
