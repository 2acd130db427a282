// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mixtures of experts, under the names that their families give them.

#include <string>

#include "sim/model/decoder.hpp"

namespace orrery {

/// The values of a mixture of experts. A family fills in its defaults before they are read.
struct ExpertSettings {
  std::int64_t experts = 8, top_k = 2, inner = 0;
  std::int64_t shared_inner = 0;  // of the shared expert; 0 without one
  RouterScore score = RouterScore::Softmax;
  bool normalise = true, selection_bias = false;
  double scaling = 1.0;
  std::int64_t groups = 1, top_groups = 1;
};

/// Reads number, choice and width of the experts over the defaults in `e`, for `sparse_layers` layers that have them.
void read_experts(ConfigReader& config, std::int64_t sparse_layers, ExpertSettings& e);

/// Mixtral: gate, experts.N.{w1, w2, w3}.
MoE build_mixtral_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix,
                          ParameterSet& p);
/// Qwen: gate, experts.N.{gate,up,down}_proj, shared_expert, shared_expert_gate.
MoE build_qwen_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix, ParameterSet& p);
/// DeepSeek: experts.N.{gate,up,down}_proj, gate (with e_score_correction_bias), shared_experts.
MoE build_deepseek_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix,
                           ParameterSet& p);
/// Llama 4: experts.N.{gate,up,down}_proj, which its checkpoints stack as gate_up_proj and down_proj of all experts,
/// router, shared_expert.
MoE build_llama4_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix, ParameterSet& p);

}  // namespace orrery
