// SPDX-License-Identifier: Apache-2.0
// Qwen 2, 2.5 and 3, dense and with a mixture of experts.
#include <fmt/format.h>

#include <algorithm>

#include "sim/model/decoder.hpp"
#include "sim/model/experts.hpp"

namespace orrery {
namespace {

/// What differs between the generations: biases on q, k and v in the second, norms on q and k in the third.
enum class Generation : std::uint8_t { Second, Third };

void read_qwen(ConfigReader& c, Generation generation, DecoderSettings& s) {
  read_decoder(c, s);
  if (generation == Generation::Second) {
    s.qkv_bias = c.boolean("qkv_bias", true);
  } else {
    s.qk_norm = true;
    s.qkv_bias = s.out_bias = c.boolean("attention_bias", false);
  }
  read_windows(c, WindowRule::WhenSwitchedOn, 4096, s);
  read_ropes(c, s);
}

/// Layer i has experts unless `mlp_only_layers` names it or `decoder_sparse_step` does not divide i + 1.
std::vector<bool> sparse_layers(ConfigReader& c, std::int64_t layers) {
  const std::int64_t step = c.integer("decoder_sparse_step", 1, 0);
  const auto dense = c.integers("mlp_only_layers", {}, ModelLimits::kLayers, 0);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i)
    sparse.push_back(step > 0 && (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end());
  return sparse;
}

void build_qwen_moe(const BuildInput& input, const DecoderSettings& s, ExpertSettings e, Model& model) {
  ConfigReader& c = input.config;
  const std::vector<bool> sparse = sparse_layers(c, s.layers);
  e.normalise = c.boolean("norm_topk_prob", false);
  read_experts(c, std::count(sparse.begin(), sparse.end(), true), e);
  c.finish();
  ParameterSet p{model, c.config(), s.deviation};
  DecoderParts parts = with_grouped_attention(s, p);
  parts.ffn = [&](std::int64_t layer, const std::string& prefix) -> std::variant<Mlp, MoE> {
    if (!sparse[static_cast<std::size_t>(layer)]) return build_gated_mlp(s, s.intermediate, prefix + "mlp.", p);
    return build_qwen_experts(s, e, prefix + "mlp.", p);
  };
  model.network = build_decoder(s, parts, p);
}

}  // namespace

void build_qwen2(const BuildInput& input, Model& model) {
  DecoderSettings s{.vocab = 151936, .intermediate = 22016, .kv_heads = 32, .max_positions = 32768};
  read_qwen(input.config, Generation::Second, s);
  build_grouped_decoder(input, s, model);
}

void build_qwen3(const BuildInput& input, Model& model) {
  DecoderSettings s{.vocab = 151936, .intermediate = 22016, .kv_heads = 32, .head_dim = 128, .max_positions = 32768};
  read_qwen(input.config, Generation::Third, s);
  build_grouped_decoder(input, s, model);
}

void build_qwen2_moe(const BuildInput& input, Model& model) {
  DecoderSettings s{.vocab = 151936,
                    .hidden = 2048,
                    .intermediate = 5632,
                    .layers = 24,
                    .heads = 16,
                    .kv_heads = 16,
                    .max_positions = 32768};
  read_qwen(input.config, Generation::Second, s);
  ExpertSettings e{.experts = 60, .top_k = 4, .inner = 1408};
  e.shared_inner = input.config.integer("shared_expert_intermediate_size", 5632);
  build_qwen_moe(input, s, e, model);
}

void build_qwen3_moe(const BuildInput& input, Model& model) {
  DecoderSettings s{.vocab = 151936,
                    .hidden = 2048,
                    .intermediate = 6144,
                    .layers = 24,
                    .heads = 32,
                    .kv_heads = 4,
                    .max_positions = 32768};
  read_qwen(input.config, Generation::Third, s);
  build_qwen_moe(input, s, {.experts = 128, .top_k = 8, .inner = 768}, model);
}

}  // namespace orrery
