// SPDX-License-Identifier: Apache-2.0
// Kraken (arXiv 2408.07802): GPT-2 whose layers are n sub-layers side by side, each as wide as `n_embd`. Keys are those
// of GPT-2, `n_ways`, and `n_inner` of a sub-layer (twice its width, as released). Heads are counted over all
// sub-layers. Parameters of sub-layers lie one below another.
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

struct KrakenSettings {
  std::int64_t vocab, positions, hidden, layers, heads, inner, ways;
  double epsilon, deviation;
  ActivationKind activation;
};

KrakenSettings kraken_settings(ConfigReader& c) {
  KrakenSettings s{};
  s.vocab = c.integer("vocab_size", 50257);
  s.positions = c.integer("n_positions|n_ctx", 1024);
  s.ways = c.integer("n_ways", 4, 1, ModelLimits::kHeads);
  s.hidden = c.integer("n_embd|hidden_size", 504);
  s.layers = c.layers("n_layer|num_hidden_layers", 12);
  s.heads = c.integer("n_head|num_attention_heads", 12, 1, ModelLimits::kHeads);
  s.inner = c.maybe_integer("n_inner").value_or(2 * s.hidden);
  s.epsilon = c.real("layer_norm_epsilon", 1e-5, 0, 1);
  s.deviation = c.real("initializer_range", 0.02, 0, 10);
  s.activation = read_activation(c, "activation_function", "gelu");
  c.check_divides("n_ways", s.ways, "n_head|num_attention_heads", s.heads);
  if (s.ways > 0 && s.heads % s.ways == 0)
    c.check_divides("n_head|num_attention_heads", s.heads / s.ways, "n_embd|hidden_size", s.hidden);
  c.finish();
  return s;
}

/// One matrix per sub-layer, one below another; `in` and `out` are those of a sub-layer.
Linear stacked(ParameterSet& p, const std::string& prefix, std::int64_t ways, const Linear& sizes, bool bias,
               std::optional<double> deviation = {}) {
  Linear l = sizes;
  const bool rows_out = l.layout == WeightLayout::OutIn;
  l.weight = p.matrix(prefix + ".weight", {ways * (rows_out ? l.out : l.in), rows_out ? l.in : l.out}, deviation);
  if (bias) l.bias = p.vector(prefix + ".bias", ways * l.out, Init::Zeros);
  return l;
}

Norm stacked_norm(ParameterSet& p, const std::string& prefix, std::int64_t ways, std::int64_t dim, double epsilon) {
  Norm n = p.layer_norm(prefix, ways * dim, epsilon);
  n.dim = dim;
  return n;
}

Block build_block(const KrakenSettings& s, std::int64_t layer, ParameterSet& p) {
  const std::string at = fmt::format("transformer.h.{}.", layer);
  const double residual = s.deviation / std::sqrt(2.0 * static_cast<double>(s.layers));
  const std::int64_t heads = s.heads / s.ways, head_dim = s.hidden / heads;
  p.enter_block(layer);
  Block block;
  block.attention_norm = stacked_norm(p, at + "ln_1", s.ways, s.hidden, s.epsilon);
  block.attention = {.heads = heads, .kv_heads = heads, .qk_dim = head_dim, .v_dim = head_dim};
  block.attention.scale /= std::sqrt(static_cast<double>(head_dim));
  StandardAttention projections{.fused = true};
  projections.qkv = stacked(p, at + "attn.c_attn", s.ways, {.in = s.hidden, .out = 3 * s.hidden}, true);
  block.attention.projections = projections;
  block.attention.out = stacked(p, at + "attn.c_proj", s.ways, {.in = s.hidden, .out = s.hidden}, true, residual);
  block.ffn_norm = stacked_norm(p, at + "ln_2", s.ways, s.hidden, s.epsilon);
  Mlp mlp{.activation = s.activation};
  mlp.up = stacked(p, at + "mlp.c_fc", s.ways, {.in = s.hidden, .out = s.inner}, true);
  mlp.down = stacked(p, at + "mlp.c_proj", s.ways, {.in = s.inner, .out = s.hidden}, true, residual);
  block.ffn = mlp;
  p.leave_block();
  return block;
}

}  // namespace

void build_kraken(const BuildInput& input, Model& model) {
  const KrakenSettings s = kraken_settings(input.config);
  ParameterSet p{model, input.config.config(), s.deviation};
  Transformer t{.hidden = s.hidden, .max_positions = s.positions};
  t.tokens = p.embedding("transformer.wte", s.vocab, s.hidden);
  t.positions = p.embedding("transformer.wpe", s.positions, s.hidden).table;
  for (std::int64_t i = 0; i < s.layers; ++i) t.decoder.push_back(build_block(s, i, p));
  const Linear merge{.in = s.hidden, .out = s.hidden, .layout = WeightLayout::InOut};
  t.ways = Ways{.count = s.ways, .merge = stacked(p, "transformer.merge", s.ways, merge, false)};
  t.decoder_norm = p.layer_norm("transformer.ln_f", s.hidden, s.epsilon);
  t.tied = true;
  t.output = Linear{.weight = t.tokens->table, .in = s.hidden, .out = s.vocab};
  model.network = std::move(t);
}

}  // namespace orrery
