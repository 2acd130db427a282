// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: gates, where rows go, and their ways there and back. Meanings as in kernels/host/moe_gate.hpp and
// moe_permute.hpp.
#pragma once

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

enum class Score : std::uint8_t { Softmax, Sigmoid };

constexpr int kGateThreads = 128, kGateWarps = kGateThreads / kWarp;

/// A number and where it stands; of equals the first is the larger.
struct Ranked {
  float value;
  std::int32_t at;
};
struct FirstLargest {
  KERNELS_GPU_INLINE Ranked operator()(Ranked a, Ranked b) const {
    return a.value > b.value || (a.value == b.value && a.at < b.at) ? a : b;
  }
};

/// Scores of all experts, the top_k of them by score + bias (of the best groups only) and their weights: a block per
/// token. Choices are made in float, before scores are rounded.
template <class T>
struct TopKGateKernel {
  static constexpr int kThreads = kGateThreads;
  static constexpr bool kCooperates = true;
  std::int64_t tokens, experts, top_k, groups, top_groups;
  Score score;
  bool normalise, sums_two;  // groups are ranked by their two best experts, or by the best
  float factor;
  const T *logits, *bias;  // bias: or null
  T *scores, *weights;
  std::int32_t* indices;

  static constexpr std::size_t shared_bytes(std::int64_t experts, std::int64_t groups) {
    return sizeof(Ranked) * kGateWarps + sizeof(float) * static_cast<std::size_t>(2 * experts + groups);
  }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    Ranked* slots = t.template shared<Ranked>();
    float* s = t.template shared<float>(sizeof(Ranked) * kGateWarps);
    float *choice = s + experts, *of_group = choice + experts;
    for (std::int64_t token = t.block(); token < tokens; token += t.blocks()) {
      fill_scores(t, logits + token * experts, s, reinterpret_cast<float*>(slots));
      for (std::int64_t e = t.index(); e < experts; e += kThreads) {
        scores[token * experts + e] = from_float<T>(s[e]);
        choice[e] = s[e] + (bias ? to_float(bias[e]) : 0.0f);
      }
      t.sync();
      if (groups > 1) limit_groups(t, choice, of_group);
      choose(t, token, s, choice, slots);
    }
  }

 private:
  template <class Thread>
  KERNELS_GPU void fill_scores(const Thread& t, const T* x, float* s, float* slots) const {
    if (score == Score::Sigmoid) {
      for (std::int64_t e = t.index(); e < experts; e += kThreads) s[e] = 1.0f / (1.0f + expf(-to_float(x[e])));
      return t.sync();
    }
    float most = -kInfinity, sum = 0;
    for (std::int64_t e = t.index(); e < experts; e += kThreads) most = larger(most, to_float(x[e]));
    most = block_reduce<kGateWarps>(t, most, slots, LargerOf{});
    for (std::int64_t e = t.index(); e < experts; e += kThreads) sum += s[e] = expf(to_float(x[e]) - most);
    sum = block_reduce<kGateWarps>(t, sum, slots, SumOf{});
    for (std::int64_t e = t.index(); e < experts; e += kThreads) s[e] /= sum;
    t.sync();
  }
  KERNELS_GPU_INLINE float group_value(const float* x, std::int64_t n) const {
    float first = -kInfinity, second = -kInfinity;
    for (std::int64_t i = 0; i < n; ++i) {
      second = larger(second, x[i] < first ? x[i] : first);
      first = larger(first, x[i]);
    }
    return !sums_two || n < 2 ? first : first + second;
  }
  /// Hides the experts of all but the best groups.
  template <class Thread>
  KERNELS_GPU void limit_groups(const Thread& t, float* choice, float* of_group) const {
    const std::int64_t size = experts / groups;
    for (std::int64_t g = t.index(); g < groups; g += kThreads) of_group[g] = group_value(choice + g * size, size);
    t.sync();
    if (t.index() == 0)
      for (std::int64_t i = 0; i < top_groups; ++i) {
        std::int64_t best = 0;
        for (std::int64_t g = 1; g < groups; ++g) best = of_group[g] > of_group[best] ? g : best;
        of_group[best] = -kInfinity;
      }
    t.sync();
    for (std::int64_t e = t.index(); e < experts; e += kThreads)
      if (of_group[e / size] != -kInfinity) choice[e] = -kInfinity;
    t.sync();
  }
  template <class Thread>
  KERNELS_GPU void choose(const Thread& t, std::int64_t token, const float* s, float* choice, Ranked* slots) const {
    float sum = 0;
    for (std::int64_t j = 0; j < top_k; ++j) {
      Ranked best{-kInfinity, static_cast<std::int32_t>(experts)};
      for (std::int64_t e = t.index(); e < experts; e += kThreads)
        best = FirstLargest{}(best, {choice[e], static_cast<std::int32_t>(e)});
      best = block_reduce<kGateWarps>(t, best, slots, FirstLargest{});
      if (t.index() == 0) {
        choice[best.at] = -kInfinity;
        indices[token * top_k + j] = best.at;
        sum += s[best.at];
      }
      t.sync();
    }
    if (t.index() == 0) {
      const float scale = normalise ? factor / (sum + 1e-20f) : factor;
      for (std::int64_t j = 0; j < top_k; ++j)
        weights[token * top_k + j] = from_float<T>(scale * s[indices[token * top_k + j]]);
    }
    t.sync();
  }
};

/// dlogits of the chosen experts' weights: a block per token.
template <class T>
struct TopKGateSlopeKernel {
  static constexpr int kThreads = kGateThreads;
  static constexpr bool kCooperates = true;
  std::int64_t tokens, experts, top_k;
  Score score;
  bool normalise;
  float factor;
  const T *scores, *dweights;
  const std::int32_t* indices;
  T* dlogits;

  static constexpr std::size_t shared_bytes(std::int64_t experts) {
    return sizeof(float) * static_cast<std::size_t>(kGateWarps + experts);
  }
  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    float *slots = t.template shared<float>(), *ds = slots + kGateWarps;
    for (std::int64_t token = t.block(); token < tokens; token += t.blocks()) {
      const T* s = scores + token * experts;
      for (std::int64_t e = t.index(); e < experts; e += kThreads) ds[e] = 0;
      t.sync();
      if (t.index() == 0) add_chosen(s, dweights + token * top_k, indices + token * top_k, ds);
      t.sync();
      float dot = 0;
      for (std::int64_t e = t.index(); e < experts; e += kThreads) dot += ds[e] * to_float(s[e]);
      dot = score == Score::Softmax ? block_reduce<kGateWarps>(t, dot, slots, SumOf{}) : 0.0f;
      for (std::int64_t e = t.index(); e < experts; e += kThreads) {
        const float x = to_float(s[e]);
        dlogits[token * experts + e] = from_float<T>(score == Score::Softmax ? x * (ds[e] - dot) : ds[e] * x * (1 - x));
      }
      t.sync();
    }
  }

 private:
  KERNELS_GPU_INLINE void add_chosen(const T* s, const T* dw, const std::int32_t* index, float* ds) const {
    float sum = 1e-20f, dot = 0;
    for (std::int64_t j = 0; j < top_k; ++j) {
      sum += to_float(s[index[j]]);
      dot += to_float(dw[j]) * to_float(s[index[j]]);
    }
    for (std::int64_t j = 0; j < top_k; ++j)
      ds[index[j]] += normalise ? factor * (to_float(dw[j]) - dot / sum) / sum : factor * to_float(dw[j]);
  }
};

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

/// y[t,:] (+)= Σ_j w[t,j]·x[row[t,j],:] in order of j, choices without a row left out; without weights they are 1.
template <class T>
struct CollectRowsKernel {
  static constexpr int kThreads = 128;
  static constexpr bool kCooperates = false;
  std::int64_t tokens, top_k, cols;
  const T *x, *weights;  // weights: or null
  const std::int32_t* row;
  T* y;
  bool adds;

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t token = t.block(); token < tokens; token += t.blocks())
      for (std::int64_t c = t.index(); c < cols; c += kThreads) {
        float sum = adds ? to_float(y[token * cols + c]) : 0.0f;
        for (std::int64_t j = 0; j < top_k; ++j) {
          const std::int64_t r = row[token * top_k + j];
          if (r >= 0) sum += (weights ? to_float(weights[token * top_k + j]) : 1.0f) * to_float(x[r * cols + c]);
        }
        y[token * cols + c] = from_float<T>(sum);
      }
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

  template <class Thread>
  KERNELS_GPU void operator()(const Thread& t) const {
    for (std::int64_t c = t.block(); c < choices; c += t.blocks()) {
      const std::int64_t r = row[c];
      const float w = to_float(weights[c]);
      const T* from = dy + c / top_k * cols;
      float dot = 0;
      for (std::int64_t i = t.index(); r >= 0 && i < cols; i += kThreads) {
        dot += to_float(x[r * cols + i]) * to_float(from[i]);
        dx[r * cols + i] = from_float<T>(w * to_float(from[i]));
      }
      dot = block_reduce<kThreads / kWarp>(t, dot, t.template shared<float>(), SumOf{});
      if (t.index() == 0) dweights[c] = from_float<T>(dot);
    }
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
using RoutingKernels =
    KernelList<TopKGateKernel<T>, TopKGateSlopeKernel<T>, CollectRowsKernel<T>, UnpermuteSlopeKernel<T>>;
using RouteKernels =
    KernelList<CountChoicesKernel, RouteOffsetsKernel, PlaceChoicesKernel, MergeRoutesKernel, FetchRowsKernel>;

}  // namespace orrery::kernels::cuda
