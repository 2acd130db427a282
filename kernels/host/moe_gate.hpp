// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/host/common.hpp"
#include "kernels/philox.hpp"

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

/// The noise of a global element: −ln(−ln u), with u uniform in (0, 1).
double gumbel_noise(PhiloxKey key, std::uint64_t element);

/// Threshold gate: g = softmax((logits + noise)/temperature), noise of element token·experts + expert. A token visits
/// the experts with g > threshold, or the one with the largest g (`hard`; of equals the first): in order of the
/// experts, index −1 and weight 0 in what choices are left. Scores are g, or softmax(logits) (`weighs_plain`); weights
/// are those of the visited experts. As gate_backward of softmax scores with factor 1/temperature (weighs_plain: 1)
/// gives dlogits.
template <class T>
struct ThresholdGateArgs {
  std::int64_t tokens = 0, experts = 0;
  std::int64_t choices = 0;  ///< of a token: experts, or less where no token has more
  double temperature = 1, threshold = 0;
  bool hard = false, weighs_plain = false;
  PhiloxKey key;
  std::int64_t first_token = 0;             ///< number of token 0 in the whole batch
  const std::int32_t* token_ids = nullptr;  ///< [tokens] or null: their numbers
  const T* logits = nullptr;
  T* scores = nullptr;
  std::int32_t* indices = nullptr;  ///< [tokens,choices]
  T* weights = nullptr;             ///< [tokens,choices]
  void* workspace = nullptr;        ///< gate_workspace(experts, 1, sizeof(T)) bytes
};

template <class T>
void threshold_gate(const ThresholdGateArgs<T>& args);

/// dlogits from dweights and an optional gradient on all scores (auxiliary losses); the choice has no gradient. Choices
/// of no expert (index −1) stand behind the others. With σ = Σ s[chosen]: ds_i = factor·(dw_i − Σ_j dw_j·s_j/σ)/σ if
/// normalised, else factor·dw_i; plus dscores. Softmax: dlogits = s·(ds − Σ ds·s); sigmoid: dlogits = ds·s·(1 − s).
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
