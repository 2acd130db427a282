// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"

namespace orrery::kernels {

enum class GateScore { Softmax, Sigmoid };
enum class GroupScore { Max, SumOfTop2 };  ///< DeepSeek-V2 and DeepSeek-V3

/// Top-k gate: s = softmax(logits) or sigmoid(logits) per token; experts are chosen by c = s + selection_bias (which
/// never enters the weights): first the best `top_groups` of `groups` equal groups, then the best top_k experts in
/// those, in descending order, ties to the lower index. weights = factor·s[chosen] / (normalise ? Σ s[chosen] + 1e−20 :
/// 1).
template <class T>
struct GateArgs {
  std::int64_t tokens = 0, experts = 0, top_k = 1;
  GateScore score = GateScore::Softmax;
  std::int64_t groups = 1, top_groups = 1;
  GroupScore group_score = GroupScore::Max;
  bool normalise = false;
  T factor = 1;
  const T* logits = nullptr;          ///< [tokens,experts]
  const T* selection_bias = nullptr;  ///< [experts] or null
  T* scores = nullptr;                ///< [tokens,experts]
  std::int32_t* indices = nullptr;    ///< [tokens,top_k]
  T* weights = nullptr;               ///< [tokens,top_k]
  void* workspace = nullptr;          ///< gate_workspace(experts, groups, sizeof(T)) bytes
};

std::size_t gate_workspace(std::int64_t experts, std::int64_t groups, std::size_t element_size);

template <class T>
void gate(const GateArgs<T>& args);

/// dlogits from dweights and an optional gradient on all scores (auxiliary losses); the choice has no gradient.
/// With σ = Σ s[chosen]: ds_i = factor·(dw_i − Σ_j dw_j·s_j/σ)/σ if normalised, else factor·dw_i; plus dscores.
/// Softmax: dlogits = s·(ds − Σ ds·s); sigmoid: dlogits = ds·s·(1 − s).
template <class T>
struct GateBackwardArgs {
  std::int64_t tokens = 0, experts = 0, top_k = 1;
  GateScore score = GateScore::Softmax;
  bool normalise = false;
  T factor = 1;
  const T* scores = nullptr;
  const std::int32_t* indices = nullptr;
  const T* dweights = nullptr;
  const T* dscores = nullptr;  ///< [tokens,experts] or null
  T* dlogits = nullptr;        ///< must not be dscores
};

template <class T>
void gate_backward(const GateBackwardArgs<T>& args);

}  // namespace orrery::kernels
