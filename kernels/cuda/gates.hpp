// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: which of them a token goes to. Meanings as in kernels/host/moe_gate.hpp.
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

template <class T>
using GateKernels = KernelList<TopKGateKernel<T>, TopKGateSlopeKernel<T>>;

}  // namespace orrery::kernels::cuda
