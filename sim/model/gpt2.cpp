// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

struct Gpt2Settings {
  std::int64_t vocab, positions, hidden, layers, heads, inner;
  double epsilon, deviation;
  ActivationKind activation;
  bool scale_by_head, scale_by_layer, tied;
};

Gpt2Settings gpt2_settings(ConfigReader& c) {
  Gpt2Settings s{};
  s.vocab = c.integer("vocab_size", 50257);
  s.positions = c.integer("n_positions|n_ctx", 1024);
  s.hidden = c.integer("n_embd|hidden_size", 768);
  s.layers = c.layers("n_layer|num_hidden_layers", 12);
  s.heads = c.integer("n_head|num_attention_heads", 12, 1, ModelLimits::kHeads);
  s.inner = c.maybe_integer("n_inner").value_or(4 * s.hidden);
  s.epsilon = c.real("layer_norm_epsilon", 1e-5, 0, 1);
  s.deviation = c.real("initializer_range", 0.02, 0, 10);
  s.activation = read_activation(c, "activation_function", "gelu_new");
  s.scale_by_head = c.boolean("scale_attn_weights", true);
  s.scale_by_layer = c.boolean("scale_attn_by_inverse_layer_idx", false);
  s.tied = c.boolean("tie_word_embeddings", true);
  if (c.boolean("add_cross_attention", false))
    c.problem("add_cross_attention", "cross-attention is not supported in this family");
  c.check_divides("n_head|num_attention_heads", s.heads, "n_embd|hidden_size", s.hidden);
  c.finish();
  return s;
}

/// Residual projections start smaller, by 1/sqrt(2·layers): each block adds two of them to the stream.
Block build_block(const Gpt2Settings& s, std::int64_t layer, ParameterSet& p) {
  const std::string at = fmt::format("transformer.h.{}.", layer);
  const LinearOptions plain{.bias = true, .layout = WeightLayout::InOut};
  LinearOptions residual = plain;
  residual.deviation = s.deviation / std::sqrt(2.0 * static_cast<double>(s.layers));
  const std::int64_t head_dim = s.hidden / s.heads;

  p.enter_block(layer);
  Block block;
  block.attention_norm = p.layer_norm(at + "ln_1", s.hidden, s.epsilon);
  block.attention = {.heads = s.heads, .kv_heads = s.heads, .qk_dim = head_dim, .v_dim = head_dim};
  if (s.scale_by_head) block.attention.scale /= std::sqrt(static_cast<double>(head_dim));
  if (s.scale_by_layer) block.attention.scale /= static_cast<double>(layer + 1);
  StandardAttention projections{.fused = true};
  projections.qkv = p.linear(at + "attn.c_attn", s.hidden, 3 * s.hidden, plain);
  block.attention.projections = projections;
  block.attention.out = p.linear(at + "attn.c_proj", s.hidden, s.hidden, residual);
  block.ffn_norm = p.layer_norm(at + "ln_2", s.hidden, s.epsilon);
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(at + "mlp.c_fc", s.hidden, s.inner, plain);
  mlp.down = p.linear(at + "mlp.c_proj", s.inner, s.hidden, residual);
  block.ffn = mlp;
  p.leave_block();
  return block;
}

}  // namespace

void build_gpt2(const BuildInput& input, Model& model) {
  const Gpt2Settings s = gpt2_settings(input.config);
  ParameterSet p{model, input.config.config(), s.deviation};
  Transformer t{.hidden = s.hidden, .max_positions = s.positions};
  t.tokens = p.embedding("transformer.wte", s.vocab, s.hidden);
  t.positions = p.embedding("transformer.wpe", s.positions, s.hidden).table;
  for (std::int64_t i = 0; i < s.layers; ++i) t.decoder.push_back(build_block(s, i, p));
  t.decoder_norm = p.layer_norm("transformer.ln_f", s.hidden, s.epsilon);
  t.tied = s.tied;
  t.output = s.tied ? Linear{.weight = t.tokens->table, .in = s.hidden, .out = s.vocab}
                    : p.linear("lm_head", s.hidden, s.vocab);
  model.network = std::move(t);
}

}  // namespace orrery
