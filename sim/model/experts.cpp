// SPDX-License-Identifier: Apache-2.0
#include "sim/model/experts.hpp"

#include <fmt/format.h>

namespace orrery {
namespace {

MoE router_settings(const ExpertSettings& e) {
  return {.top_k = e.top_k,
          .score = e.score,
          .normalise = e.normalise,
          .scaling = e.scaling,
          .groups = e.groups,
          .top_groups = e.top_groups};
}

void add_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix, ParameterSet& p,
                 MoE& moe) {
  moe.experts.reserve(static_cast<std::size_t>(e.experts));
  for (std::int64_t i = 0; i < e.experts; ++i)
    moe.experts.push_back(build_gated_mlp(s, e.inner, fmt::format("{}experts.{}.", prefix, i), p));
}

}  // namespace

void read_experts(ConfigReader& c, std::int64_t sparse_layers, ExpertSettings& e) {
  constexpr std::string_view kExperts = "num_local_experts|num_experts|n_routed_experts";
  constexpr std::string_view kTopK = "num_experts_per_tok";
  e.experts = c.integer(kExperts, e.experts, 1, ModelLimits::kExpertLayers);
  e.top_k = c.integer(kTopK, e.top_k, 1, ModelLimits::kExpertLayers);
  e.inner = c.integer("moe_intermediate_size", e.inner);
  if (e.top_k > e.experts) c.problem(kTopK, fmt::format("a token cannot visit {} experts of {}", e.top_k, e.experts));
  if (e.experts * sparse_layers > ModelLimits::kExpertLayers)
    c.problem(kExperts, fmt::format("{} experts in {} layers are more than {} in all", e.experts, sparse_layers,
                                    ModelLimits::kExpertLayers));
}

MoE build_mixtral_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix,
                          ParameterSet& p) {
  MoE moe = router_settings(e);
  moe.router = p.linear(prefix + "gate", s.hidden, e.experts);
  moe.experts.reserve(static_cast<std::size_t>(e.experts));
  for (std::int64_t i = 0; i < e.experts; ++i) {
    const std::string expert = fmt::format("{}experts.{}.", prefix, i);
    Mlp mlp{.activation = s.activation};
    mlp.gate = p.linear(expert + "w1", s.hidden, e.inner);
    mlp.down = p.linear(expert + "w2", e.inner, s.hidden);
    mlp.up = p.linear(expert + "w3", s.hidden, e.inner);
    moe.experts.push_back(mlp);
  }
  return moe;
}

MoE build_qwen_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix, ParameterSet& p) {
  MoE moe = router_settings(e);
  moe.router = p.linear(prefix + "gate", s.hidden, e.experts);
  add_experts(s, e, prefix, p, moe);
  if (e.shared_inner == 0) return moe;
  moe.shared = build_gated_mlp(s, e.shared_inner, prefix + "shared_expert.", p);
  moe.shared_gate = p.linear(prefix + "shared_expert_gate", s.hidden, 1);
  return moe;
}

MoE build_deepseek_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix,
                           ParameterSet& p) {
  MoE moe = router_settings(e);
  add_experts(s, e, prefix, p, moe);
  moe.router = p.linear(prefix + "gate", s.hidden, e.experts);
  if (e.selection_bias) moe.selection_bias = p.vector(prefix + "gate.e_score_correction_bias", e.experts, Init::Zeros);
  if (e.shared_inner > 0) moe.shared = build_gated_mlp(s, e.shared_inner, prefix + "shared_experts.", p);
  return moe;
}

MoE build_llama4_experts(const DecoderSettings& s, const ExpertSettings& e, const std::string& prefix,
                         ParameterSet& p) {
  MoE moe = router_settings(e);
  moe.weighs_input = true;
  add_experts(s, e, prefix, p, moe);
  moe.router = p.linear(prefix + "router", s.hidden, e.experts);
  moe.shared = build_gated_mlp(s, e.shared_inner, prefix + "shared_expert.", p);
  return moe;
}

}  // namespace orrery
