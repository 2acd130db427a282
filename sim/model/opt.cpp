// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kPositionOffset = 2;  // OPT's position table starts with two rows that are never used
constexpr double kEpsilon = 1e-5;            // the default of torch's LayerNorm

struct OptSettings {
  std::int64_t vocab, hidden, layers, ffn, positions, heads, embedding_dim;
  double deviation;
  ActivationKind activation;
  bool pre_norm, final_norm, bias, tied;
};

OptSettings opt_settings(ConfigReader& c) {
  OptSettings s{};
  s.vocab = c.integer("vocab_size", 50272);
  s.hidden = c.integer("hidden_size", 768);
  s.layers = c.layers("num_hidden_layers", 12);
  s.ffn = c.integer("ffn_dim", 3072);
  s.positions = c.integer("max_position_embeddings", 2048);
  s.heads = c.integer("num_attention_heads", 12, 1, ModelLimits::kHeads);
  s.embedding_dim = c.integer("word_embed_proj_dim", s.hidden);
  s.deviation = c.real("init_std", 0.02, 0, 10);
  s.activation = read_activation(c, "activation_function", "relu");
  s.pre_norm = c.boolean("do_layer_norm_before", true);
  s.final_norm = s.pre_norm && !c.boolean("_remove_final_layer_norm", false);
  s.bias = c.boolean("enable_bias", true);
  s.tied = c.boolean("tie_word_embeddings", true);
  if (!c.boolean("layer_norm_elementwise_affine", true))
    c.problem("layer_norm_elementwise_affine", "norms without weights are not supported");
  c.check_divides("num_attention_heads", s.heads, "hidden_size", s.hidden);
  c.finish();
  return s;
}

Attention build_attention(const OptSettings& s, const std::string& prefix, ParameterSet& p) {
  const std::int64_t head_dim = s.hidden / s.heads;
  Attention a{.heads = s.heads, .kv_heads = s.heads, .qk_dim = head_dim, .v_dim = head_dim};
  a.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  StandardAttention projections;
  projections.k = p.linear(prefix + "k_proj", s.hidden, s.hidden, {.bias = s.bias});
  projections.v = p.linear(prefix + "v_proj", s.hidden, s.hidden, {.bias = s.bias});
  projections.q = p.linear(prefix + "q_proj", s.hidden, s.hidden, {.bias = s.bias});
  a.out = p.linear(prefix + "out_proj", s.hidden, s.hidden, {.bias = s.bias});
  a.projections = projections;
  return a;
}

Block build_block(const OptSettings& s, std::int64_t layer, ParameterSet& p) {
  const std::string prefix = fmt::format("model.decoder.layers.{}.", layer);
  p.enter_block(layer);
  Block block{.pre_norm = s.pre_norm};
  block.attention = build_attention(s, prefix + "self_attn.", p);
  block.attention_norm = p.layer_norm(prefix + "self_attn_layer_norm", s.hidden, kEpsilon);
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "fc1", s.hidden, s.ffn, {.bias = s.bias});
  mlp.down = p.linear(prefix + "fc2", s.ffn, s.hidden, {.bias = s.bias});
  block.ffn = mlp;
  block.ffn_norm = p.layer_norm(prefix + "final_layer_norm", s.hidden, kEpsilon);
  p.leave_block();
  return block;
}

}  // namespace

void build_opt(const BuildInput& input, Model& model) {
  const OptSettings s = opt_settings(input.config);
  ParameterSet p{model, input.config.config(), s.deviation};
  Transformer t{.hidden = s.hidden, .max_positions = s.positions, .position_offset = kPositionOffset};
  t.tokens = p.embedding("model.decoder.embed_tokens", s.vocab, s.embedding_dim);
  t.positions = p.embedding("model.decoder.embed_positions", s.positions + kPositionOffset, s.hidden).table;
  if (s.embedding_dim != s.hidden) {
    t.project_out = p.linear("model.decoder.project_out", s.hidden, s.embedding_dim);
    t.project_in = p.linear("model.decoder.project_in", s.embedding_dim, s.hidden);
  }
  if (s.final_norm) t.decoder_norm = p.layer_norm("model.decoder.final_layer_norm", s.hidden, kEpsilon);
  for (std::int64_t i = 0; i < s.layers; ++i) t.decoder.push_back(build_block(s, i, p));
  t.tied = s.tied;
  t.output = s.tied ? Linear{.weight = t.tokens->table, .in = s.embedding_dim, .out = s.vocab}
                    : p.linear("lm_head", s.embedding_dim, s.vocab);
  model.network = std::move(t);
}

}  // namespace orrery
