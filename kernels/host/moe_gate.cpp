// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/moe_gate.hpp"

#include <algorithm>

#include "kernels/host/simd.hpp"
#include "kernels/host/softmax.hpp"

namespace orrery::kernels {
namespace {

constexpr double kTiny = 1e-20;

/// Index of the largest of n values, the lowest of equals.
template <class T>
std::int64_t largest(std::int64_t n, const T* x) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n; ++i) best = x[i] > x[best] ? i : best;
  return best;
}

template <class T>
T group_value(GroupScore kind, std::int64_t n, const T* x) {
  const T hidden = -std::numeric_limits<T>::infinity();
  T first = hidden, second = hidden;
  for (std::int64_t i = 0; i < n; ++i) {
    second = std::max(second, std::min(first, x[i]));
    first = std::max(first, x[i]);
  }
  return kind == GroupScore::Max || n < 2 ? first : first + second;
}

/// Hides the experts of all but the best top_groups groups.
template <class T>
void limit_groups(const GateArgs<T>& a, T* choice, T* value) {
  const T hidden = -std::numeric_limits<T>::infinity();
  const std::int64_t size = a.experts / a.groups;
  for (std::int64_t g = 0; g < a.groups; ++g) value[g] = group_value(a.group_score, size, choice + g * size);
  for (std::int64_t i = 0; i < a.top_groups; ++i) value[largest(a.groups, value)] = hidden;
  for (std::int64_t g = 0; g < a.groups; ++g)
    if (value[g] != hidden) std::fill(choice + g * size, choice + (g + 1) * size, hidden);
}

template <class T>
void gate_token(const GateArgs<T>& a, std::int64_t t, T* choice, T* groups) {
  const T *scores = a.scores + t * a.experts, *bias = a.selection_bias;
  if (bias)
    map(a.experts, choice, [&](auto at) { return at(scores) + at(bias); });
  else
    std::copy(scores, scores + a.experts, choice);
  if (a.groups > 1) limit_groups(a, choice, groups);
  T *weights = a.weights + t * a.top_k, sum = 0;
  for (std::int64_t j = 0; j < a.top_k; ++j) {
    const std::int64_t e = largest(a.experts, choice);
    choice[e] = -std::numeric_limits<T>::infinity();
    a.indices[t * a.top_k + j] = static_cast<std::int32_t>(e);
    weights[j] = scores[e];
    sum += scores[e];
  }
  const T factor = a.normalise ? a.factor / (sum + T(kTiny)) : a.factor;
  for (std::int64_t j = 0; j < a.top_k; ++j) weights[j] *= factor;
}

/// ds of the chosen experts is added to `ds` (dlogits is used for it).
template <class T>
void weights_gradient(const GateBackwardArgs<T>& a, std::int64_t t, T* ds) {
  const T *scores = a.scores + t * a.experts, *dw = a.dweights + t * a.top_k;
  const std::int32_t* index = a.indices + t * a.top_k;
  T sum = T(kTiny), dot = 0;
  for (std::int64_t j = 0; j < a.top_k && index[j] >= 0; ++j) {
    sum += scores[index[j]];
    dot += dw[j] * scores[index[j]];
  }
  for (std::int64_t j = 0; j < a.top_k && index[j] >= 0; ++j)
    ds[index[j]] += a.normalise ? a.factor * (dw[j] - dot / sum) / sum : a.factor * dw[j];
}

/// `g` holds the noisy softmax of the token.
template <class T>
void visit_active(const ThresholdGateArgs<T>& a, std::int64_t t, const T* g) {
  const std::int64_t best = a.hard ? largest(a.experts, g) : -1;
  std::int32_t* index = a.indices + t * a.choices;
  T* weights = a.weights + t * a.choices;
  std::int64_t j = 0;
  for (std::int64_t e = 0; e < a.experts && j < a.choices; ++e) {
    if (a.hard ? e != best : !(g[e] > T(a.threshold))) continue;
    index[j] = static_cast<std::int32_t>(e);
    weights[j++] = a.scores[t * a.experts + e];
  }
  std::fill(index + j, index + a.choices, -1);
  std::fill(weights + j, weights + a.choices, T(0));
}

}  // namespace

double gumbel_noise(PhiloxKey key, std::uint64_t element) {
  return -std::log(-std::log(philox_uniform(philox_word(key, element))));
}

std::size_t gate_workspace(std::int64_t experts, std::int64_t groups, std::size_t element_size) {
  return cache_lines(static_cast<std::size_t>(experts) * element_size) +
         cache_lines(static_cast<std::size_t>(groups) * element_size);
}

template <class T>
void gate(const GateArgs<T>& a) {
  if (a.score == GateScore::Softmax)
    softmax<T>({.rows = a.tokens, .cols = a.experts, .x = a.logits, .y = a.scores});
  else
    map(a.tokens * a.experts, a.scores, [&](auto at) { return sigmoid(at(a.logits)); });
  Arena arena{a.workspace};
  T *choice = arena.take<T>(a.experts), *groups = arena.take<T>(a.groups);
  for (std::int64_t t = 0; t < a.tokens; ++t) gate_token(a, t, choice, groups);
}

template <class T>
void threshold_gate(const ThresholdGateArgs<T>& a) {
  T* g = Arena{a.workspace}.take<T>(a.experts);
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const std::int64_t token = a.token_ids ? a.token_ids[t] : a.first_token + t;
    const T* logits = a.logits + t * a.experts;
    T* scores = a.scores + t * a.experts;
    for (std::int64_t e = 0; e < a.experts; ++e)
      g[e] = T((double(logits[e]) + gumbel_noise(a.key, static_cast<std::uint64_t>(token * a.experts + e))) /
               a.temperature);
    softmax<T>({.rows = 1, .cols = a.experts, .x = g, .y = g});
    if (a.weighs_plain)
      softmax<T>({.rows = 1, .cols = a.experts, .x = logits, .y = scores});
    else
      std::copy_n(g, a.experts, scores);
    visit_active(a, t, g);
  }
}

template <class T>
void gate_backward(const GateBackwardArgs<T>& a) {
  for (std::int64_t t = 0; t < a.tokens; ++t) {
    const T* s = a.scores + t * a.experts;
    T* d = a.dlogits + t * a.experts;
    if (a.dscores)
      std::copy_n(a.dscores + t * a.experts, a.experts, d);
    else
      std::fill_n(d, a.experts, T(0));
    weights_gradient(a, t, d);
    if (a.score == GateScore::Softmax)
      softmax_backward<T>({.rows = 1, .cols = a.experts, .y = s, .dy = d, .dx = d});
    else
      map(a.experts, d, [&](auto at) { return at(d) * at(s) * (T(1) - at(s)); });
  }
}

#define KERNELS_INSTANTIATE(T)                                  \
  template void gate<T>(const GateArgs<T>&);                    \
  template void threshold_gate<T>(const ThresholdGateArgs<T>&); \
  template void gate_backward<T>(const GateBackwardArgs<T>&);
KERNELS_INSTANTIATE(float)
KERNELS_INSTANTIATE(double)
#undef KERNELS_INSTANTIATE

}  // namespace orrery::kernels
