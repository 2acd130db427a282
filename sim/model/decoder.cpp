// SPDX-License-Identifier: Apache-2.0
#include "sim/model/decoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/model/rope.hpp"

namespace orrery {
namespace {

constexpr std::string_view kWindowed = "sliding_attention";

/// Whether each layer attends within a window: from `layer_types` when it is there, else by the rule of the family.
std::vector<bool> windowed_layers(ConfigReader& c, WindowRule rule, std::int64_t first, const DecoderSettings& s) {
  const auto count = static_cast<std::size_t>(s.layers);
  std::vector<bool> windowed(count, rule == WindowRule::WhenGiven);
  if (rule == WindowRule::AllButEveryNth) {
    const auto period = static_cast<std::size_t>(
        c.integer("sliding_window_pattern|_sliding_window_pattern", s.window_period, 1, ModelLimits::kLayers));
    for (std::size_t i = 0; i < count; ++i) windowed[i] = (i + 1) % period != 0;
  }
  if (rule == WindowRule::WhenSwitchedOn)
    for (auto i = static_cast<std::size_t>(first); i < count; ++i) windowed[i] = true;
  const Node* types = c.find("layer_types");
  if (!types) return windowed;
  if (types->kind != Node::Kind::List || types->items.size() != count) {
    c.problem("layer_types",
              fmt::format("layer_types must be a list with one entry for each of the {} layers", s.layers));
    return windowed;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Node& type = types->items[i];
    windowed[i] = type.scalar == kWindowed;
    if (!windowed[i] && type.scalar != "full_attention")
      c.problem("layer_types", fmt::format("layer type '{}' of layer {} is not supported", type.scalar, i),
                "known types: full_attention, sliding_attention");
  }
  return windowed;
}

Norm build_norm(const DecoderSettings& s, const std::string& prefix, ParameterSet& p) {
  return s.norm == NormKind::Layer ? p.layer_norm(prefix, s.hidden, s.epsilon)
                                   : p.rms_norm(prefix, s.hidden, s.epsilon, s.norm);
}

Block build_block(const DecoderSettings& s, std::int64_t layer, const DecoderParts& parts, ParameterSet& p) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  p.enter_block(layer);
  Block block;
  block.attention = parts.attention(layer, prefix);
  block.ffn = parts.ffn(layer, prefix);
  block.attention_norm = build_norm(s, prefix + "input_layernorm", p);
  if (s.block_norms == BlockNorms::Before) {
    block.ffn_norm = build_norm(s, prefix + "post_attention_layernorm", p);
  } else {
    block.attention_out_norm = build_norm(s, prefix + "post_attention_layernorm", p);
    block.ffn_norm = build_norm(s, prefix + "pre_feedforward_layernorm", p);
    block.ffn_out_norm = build_norm(s, prefix + "post_feedforward_layernorm", p);
  }
  block.residual_scale = s.residual_scale;
  p.leave_block();
  return block;
}

}  // namespace

void read_decoder(ConfigReader& c, DecoderSettings& s) {
  s.vocab = c.integer("vocab_size", s.vocab);
  s.hidden = c.integer("hidden_size", s.hidden);
  s.intermediate = c.integer("intermediate_size", s.intermediate);
  s.layers = c.layers("num_hidden_layers", s.layers);
  s.heads = c.integer("num_attention_heads", s.heads, 1, ModelLimits::kHeads);
  s.kv_heads = c.nullable_integer("num_key_value_heads", s.kv_heads, 1, ModelLimits::kHeads).value_or(s.heads);
  s.head_dim = c.nullable_integer("head_dim", s.head_dim, 1, ModelLimits::kHeadDimension);
  s.max_positions = c.integer("max_position_embeddings", s.max_positions);
  s.epsilon = c.real("rms_norm_eps", s.epsilon, 0, 1);
  s.deviation = c.real("initializer_range", s.deviation, 0, 10);
  s.tied = c.boolean("tie_word_embeddings", s.tied);
  s.activation = read_activation(c, "hidden_act", "silu");
  c.check_divides("num_key_value_heads", *s.kv_heads, "num_attention_heads", s.heads);
  if (s.head_dim) return;
  c.check_divides("num_attention_heads", s.heads, "hidden_size", s.hidden);
  s.head_dim = s.hidden / s.heads;
  if (*s.head_dim > ModelLimits::kHeadDimension)
    c.problem("hidden_size",
              fmt::format("{} dimensions per head are more than {}", *s.head_dim, ModelLimits::kHeadDimension));
}

void read_windows(ConfigReader& c, WindowRule rule, std::optional<std::int64_t> fallback, DecoderSettings& s) {
  s.windows.assign(static_cast<std::size_t>(s.layers), std::nullopt);
  if (rule == WindowRule::Never) return;
  const auto window = c.nullable_integer("sliding_window", fallback);
  const std::int64_t first = c.integer("max_window_layers", 28, 0);
  const bool on = rule != WindowRule::WhenSwitchedOn || c.boolean("use_sliding_window", false);
  const std::vector<bool> windowed = windowed_layers(c, rule, first, s);
  for (std::size_t i = 0; i < windowed.size(); ++i)
    if (on && windowed[i]) s.windows[i] = window;
}

void read_ropes(ConfigReader& c, DecoderSettings& s) {
  if (c.has_problems()) return;  // the head dimension may be one of them
  const RopeNeeds full{.head_dim = *s.head_dim, .theta = s.theta, .max_positions = s.max_positions};
  RopeNeeds windowed = full;
  windowed.layer_type = kWindowed;
  if (s.theta_of_windows) windowed.theta = *s.theta_of_windows, windowed.theta_key = "rope_local_base_freq";
  const Rope of_full = read_rope(c, full).rope;
  const bool any_window = std::any_of(s.windows.begin(), s.windows.end(), [](const auto& w) { return w.has_value(); });
  const Rope of_windowed = any_window && !c.has_problems() ? read_rope(c, windowed).rope : of_full;
  for (const auto& window : s.windows) s.ropes.push_back(window ? of_windowed : of_full);
}

Attention build_grouped_attention(const DecoderSettings& s, std::int64_t layer, const std::string& prefix,
                                  ParameterSet& p) {
  const std::int64_t head_dim = *s.head_dim, q_width = s.heads * head_dim, kv_width = *s.kv_heads * head_dim;
  const auto index = static_cast<std::size_t>(layer);
  Attention a{.heads = s.heads, .kv_heads = *s.kv_heads, .qk_dim = head_dim, .v_dim = head_dim};
  a.scale = s.score_scale.value_or(1.0 / std::sqrt(static_cast<double>(head_dim)));
  a.cap = s.score_cap;
  a.window = s.windows[index];
  a.rope = s.ropes[index];
  StandardAttention projections;
  projections.q = p.linear(prefix + "q_proj", s.hidden, q_width, {.bias = s.qkv_bias});
  projections.k = p.linear(prefix + "k_proj", s.hidden, kv_width, {.bias = s.qkv_bias});
  projections.v = p.linear(prefix + "v_proj", s.hidden, kv_width, {.bias = s.qkv_bias});
  a.out = p.linear(prefix + "o_proj", q_width, s.hidden, {.bias = s.out_bias});
  if (s.qk_norm) {
    projections.q_norm = p.rms_norm(prefix + "q_norm", head_dim, s.epsilon, s.norm);
    projections.k_norm = p.rms_norm(prefix + "k_norm", head_dim, s.epsilon, s.norm);
  }
  a.projections = projections;
  return a;
}

Mlp build_gated_mlp(const DecoderSettings& s, std::int64_t inner, const std::string& prefix, ParameterSet& p) {
  Mlp mlp{.activation = s.activation};
  mlp.gate = p.linear(prefix + "gate_proj", s.hidden, inner, {.bias = s.mlp_bias});
  mlp.up = p.linear(prefix + "up_proj", s.hidden, inner, {.bias = s.mlp_bias});
  mlp.down = p.linear(prefix + "down_proj", inner, s.hidden, {.bias = s.mlp_bias});
  return mlp;
}

DecoderParts with_grouped_attention(const DecoderSettings& s, ParameterSet& p) {
  DecoderParts parts;
  parts.attention = [&](std::int64_t layer, const std::string& prefix) {
    return build_grouped_attention(s, layer, prefix + "self_attn.", p);
  };
  return parts;
}

Transformer build_decoder(const DecoderSettings& s, const DecoderParts& parts, ParameterSet& p) {
  Transformer t{.hidden = s.hidden, .max_positions = s.max_positions};
  t.tokens = p.embedding("model.embed_tokens", s.vocab, s.hidden);
  for (std::int64_t i = 0; i < s.layers; ++i) t.decoder.push_back(build_block(s, i, parts, p));
  t.decoder_norm = build_norm(s, "model.norm", p);
  t.embedding_scale = s.embedding_scale;
  t.output_scale = s.output_scale;
  t.logit_cap = s.logit_cap;
  t.tied = s.tied;
  t.output = s.tied ? Linear{.weight = t.tokens->table, .in = s.hidden, .out = s.vocab}
                    : p.linear("lm_head", s.hidden, s.vocab);
  return t;
}

void build_grouped_decoder(const BuildInput& input, const DecoderSettings& s, Model& model) {
  input.config.finish();
  ParameterSet p{model, input.config.config(), s.deviation};
  DecoderParts parts = with_grouped_attention(s, p);
  parts.ffn = [&](std::int64_t, const std::string& prefix) -> std::variant<Mlp, MoE> {
    return build_gated_mlp(s, s.intermediate, prefix + "mlp.", p);
  };
  model.network = build_decoder(s, parts, p);
}

}  // namespace orrery
