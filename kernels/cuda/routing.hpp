// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: where rows go, and their ways there and back. Meanings as in kernels/host/moe_permute.hpp.
#pragma once

#include "kernels/cuda/hopper.hpp"

namespace orrery::kernels::cuda {

constexpr int kRouteThreads = 128;

/// counts[e] = choices of expert e: a block per expert, which looks at all choices.
struct CountChoicesKernel {
  static constexpr int kThreads = kRouteThreads;
  static constexpr bool kCooperates = true;
  std::int64_t choices, experts;
  const std::int32_t* indices;
  std::int32_t* counts;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t e = t.block(); e < experts; e += t.blocks()) {
      std::int32_t n = 0;
      for (std::int64_t c = t.index(); c < choices; c += kThreads) n += indices[c] == e ? 1 : 0;
      n = block_reduce<kThreads / kWarp>(t, n, t.template shared<std::int32_t>(), SumOf{});
      if (t.index() == 0) counts[e] = n;
    }
  }
};

/// offsets[e] = first row of expert e: after the choices of those before it, or after their room. One thread.
struct RouteOffsetsKernel {
  static constexpr int kThreads = kWarp;
  static constexpr bool kCooperates = false;
  std::int64_t experts, room;  // room 0: as many rows as choices
  const std::int32_t* counts;
  std::int32_t* offsets;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    if (t.block() > 0 || t.index() > 0) return;
    std::int32_t at = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      offsets[e] = at;
      at += room > 0 ? static_cast<std::int32_t>(room) : counts[e];
    }
    offsets[experts] = at;
  }
};

/// Rows of the choices of an expert in a run of tokens, in their order: a block per expert and run. Threads count
/// stretches of the choices, then give their own rows. Rows that no choice gets must have source −1 before.
struct PlaceChoicesKernel {
  static constexpr int kThreads = kRouteThreads;
  static constexpr bool kCooperates = true;
  std::int64_t choices, experts, top_k, groups, capacity;  // capacity 0: no limit
  const std::int32_t *indices, *offsets;
  std::int32_t *source, *row;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    std::int32_t* before = t.template shared<std::int32_t>();
    for (std::int64_t b = t.block(); b < experts * groups; b += t.blocks()) {
      const std::int64_t e = b / groups, g = b % groups;
      const std::int64_t begin = choices * g / groups, end = choices * (g + 1) / groups;
      const std::int64_t each = blocks_of<std::int64_t>(end - begin, kThreads);
      const std::int64_t first = begin + t.index() * each, last = smaller_of(end, first + each);
      std::int32_t own = 0;
      for (std::int64_t c = first; c < last; ++c) own += indices[c] == e ? 1 : 0;
      before[t.index()] = own;
      t.sync();
      if (t.index() == 0) accumulate(before);
      t.sync();
      place(e, g, first, last, before[t.index()]);
      t.sync();
    }
  }

 private:
  static KERNELS_GPU_INLINE void accumulate(std::int32_t* counts) {
    std::int32_t sum = 0;
    for (int i = 0; i < kThreads; ++i) {
      const std::int32_t n = counts[i];
      counts[i] = sum;
      sum += n;
    }
  }
  KERNELS_GPU_INLINE void place(std::int64_t e, std::int64_t g, std::int64_t first, std::int64_t last,
                                std::int32_t rank) const {
    for (std::int64_t c = first; c < last; ++c) {
      if (indices[c] < 0 && e == 0) row[c] = -1;
      if (indices[c] != e) continue;
      const bool fits = capacity == 0 || rank < capacity;
      const auto at = static_cast<std::int32_t>(offsets[e] + g * capacity + rank++);
      row[c] = fits ? at : -1;
      if (fits) source[at] = static_cast<std::int32_t>(c / top_k);
    }
  }
};

/// See SplitRoutes of the plan. A thread per part.
struct SplitRoutesKernel {
  static constexpr int kThreads = kRouteThreads;
  static constexpr bool kCooperates = false;
  std::int64_t parts;
  const std::int32_t *offsets, *part;  // five numbers each: expert, a, b, n, r
  std::int32_t* spans;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t i = t.block() * kThreads + t.index(); i < parts; i += t.blocks() * kThreads) {
      const std::int32_t* p = part + 5 * i;
      const std::int64_t first = offsets[p[0]], rows = offsets[p[0] + 1] - first;
      spans[2 * i] = static_cast<std::int32_t>(first + (rows * p[1] + p[4]) / p[3]);
      spans[2 * i + 1] = static_cast<std::int32_t>(first + (rows * p[2] + p[4]) / p[3]);
    }
  }
};

/// See MergeRoutes of the plan; rows beyond max_rows are a fault, and none comes then. One thread.
struct MergeRoutesKernel {
  static constexpr int kThreads = kWarp;
  static constexpr bool kCooperates = false;
  std::int64_t ranks, experts, max_rows;
  const std::int32_t* sent;
  std::int32_t *place, *offsets;
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    if (t.block() > 0 || t.index() > 0) return;
    std::int32_t row = 0;
    for (std::int64_t e = 0; e < experts; ++e) {
      offsets[e] = row;
      for (std::int64_t r = 0; r < ranks; ++r) {
        const std::int64_t i = 2 * (r * experts + e);
        place[i] = row;
        place[i + 1] = row += sent[i + 1] - sent[i];
      }
    }
    offsets[experts] = row;
    if (row <= max_rows) return;
    fault.raise(FaultKind::NoRoomForRows, row, max_rows);
    for (std::int64_t i = 0; i < 2 * ranks * experts; ++i) place[i] = 0;
    for (std::int64_t e = 0; e <= experts; ++e) offsets[e] = 0;
  }
};

/// y[t,:] (+)= Σ_j w[t,j]·x[row[t,j],:] in order of j, choices without a row left out; without weights they are 1. A
/// block per token; a thread takes two packs of two rows at once, so that four loads are on their way.
template <class T>
struct CollectRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t tokens, top_k, cols;
  const T *x, *weights;  // weights: or null
  const std::int32_t* row;
  T* y;
  bool adds, wide;  // wide: rows are whole 16 bytes

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t token = t.block(); token < tokens; token += t.blocks()) {
      if (wide)
        join<kPack<T>>(t, token);
      else
        join<1>(t, token);
    }
  }

 private:
  static constexpr int kPacks = 2, kRows = 2;  // of a thread at once
  template <int N, class Thread>
  KERNELS_GPU_INLINE void join(const Thread& t, std::int64_t token) const {
    constexpr std::int64_t kEach = std::int64_t{kThreads} * N;
    T* const to = y + token * cols;
    for (std::int64_t c = static_cast<std::int64_t>(t.index()) * N; c < cols; c += kPacks * kEach) {
      float sum[kPacks][N] = {};
      repeat<kPacks>([&](int p) {
        if (adds && c + p * kEach < cols) load(to + c + p * kEach, sum[p]);
      });
      for (std::int64_t j = 0; j < top_k; j += kRows) add_rows(token * top_k, j, c, kEach, sum);
      repeat<kPacks>([&](int p) {
        if (c + p * kEach < cols) store(to + c + p * kEach, sum[p]);
      });
    }
  }
  /// Choices j and j + 1 of the token whose choices begin at `first`.
  template <int N>
  KERNELS_GPU_INLINE void add_rows(std::int64_t first, std::int64_t j, std::int64_t c, std::int64_t each,
                                   float (&sum)[kPacks][N]) const {
    Pack<T, N> pack[kRows][kPacks] = {};
    float weight[kRows];
    repeat<kRows>([&](int i) {
      const std::int64_t r = j + i < top_k ? row[first + j + i] : -1;
      weight[i] = r >= 0 && weights ? to_float(weights[first + j + i]) : 1.0f;
      repeat<kPacks>([&](int p) {
        if (r >= 0 && c + p * each < cols)
          pack[i][p] = *reinterpret_cast<const Pack<T, N>*>(x + r * cols + c + p * each);
      });
    });
    repeat<kRows>([&](int i) {
      repeat<kPacks>([&](int p) { repeat<N>([&](int n) { sum[p][n] += weight[i] * to_float(pack[i][p].value[n]); }); });
    });
  }
};

/// dx[row[c],:] = w[c]·dy[c / top_k,:] and dw[c] = x[row[c],:]·dy[c / top_k,:]: a block per choice. Rows without a
/// choice are cleared before.
template <class T>
struct UnpermuteSlopeKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = true;
  std::int64_t choices, top_k, cols;
  const T *x, *weights, *dy;
  const std::int32_t* row;
  T *dx, *dweights;
  bool wide;  // rows are whole 16 bytes

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t c = t.block(); c < choices; c += t.blocks()) {
      float dot = 0;
      if (row[c] >= 0) dot = wide ? scatter<kPack<T>>(t, c, row[c]) : scatter<1>(t, c, row[c]);
      dot = block_reduce<kThreads / kWarp>(t, dot, t.template shared<float>(), SumOf{});
      if (t.index() == 0) dweights[c] = from_float<T>(dot);
    }
  }

 private:
  static constexpr int kPacks = 2;  // of a thread at once
  /// The thread's part of the product of both rows; two packs of each are on their way at once.
  template <int N, class Thread>
  KERNELS_GPU_INLINE float scatter(const Thread& t, std::int64_t c, std::int64_t r) const {
    constexpr std::int64_t kEach = std::int64_t{kThreads} * N;
    const float w = to_float(weights[c]);
    const T *slopes = dy + c / top_k * cols, *values = x + r * cols;
    T* const to = dx + r * cols;
    float dot = 0;
    for (std::int64_t i = static_cast<std::int64_t>(t.index()) * N; i < cols; i += kPacks * kEach) {
      float slope[kPacks][N] = {}, value[kPacks][N] = {};
      repeat<kPacks>([&](int p) {
        if (i + p * kEach >= cols) return;
        load(slopes + i + p * kEach, slope[p]);
        load(values + i + p * kEach, value[p]);
      });
      repeat<kPacks>([&](int p) {
        repeat<N>([&](int n) {
          dot += value[p][n] * slope[p][n];
          slope[p][n] *= w;
        });
        if (i + p * kEach < cols) store(to + i + p * kEach, slope[p]);
      });
    }
    return dot;
  }
};

/// Fetches the rows that a member of an all-to-all has for this one: parts [first, end) of `from` to parts of `to`. A
/// block per row of the largest part.
struct FetchRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t parts, words;  // of a row
  const std::uint16_t* from;
  std::uint16_t* to;
  const std::int32_t *theirs, *mine;  // [parts, 2]
  Fault fault;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t p = 0; p < parts; ++p) {
      const std::int64_t rows = theirs[2 * p + 1] - theirs[2 * p], awaited = mine[2 * p + 1] - mine[2 * p];
      if (rows != awaited) return fault.raise(FaultKind::RowsDiffer, rows, awaited);
      for (std::int64_t r = t.block(); r < rows; r += t.blocks())
        for (std::int64_t w = t.index(); w < words; w += kThreads)
          to[(mine[2 * p] + r) * words + w] = from[(theirs[2 * p] + r) * words + w];
    }
  }
};

template <class T>
using RoutingKernels = KernelList<CollectRowsKernel<T>, UnpermuteSlopeKernel<T>>;
using RouteKernels = KernelList<CountChoicesKernel, RouteOffsetsKernel, PlaceChoicesKernel, SplitRoutesKernel,
                                MergeRoutesKernel, FetchRowsKernel>;

}  // namespace orrery::kernels::cuda
