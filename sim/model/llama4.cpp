// SPDX-License-Identifier: Apache-2.0
// The language model of Llama 4 (Scout, Maverick), as transformers' Llama4ForCausalLM computes it.
#include <fmt/format.h>

#include <algorithm>

#include "sim/model/decoder.hpp"
#include "sim/model/experts.hpp"

namespace orrery {
namespace {

/// Layers with rotary positions: those that `no_rope_layers` marks by 1, else all but every n-th.
std::vector<bool> rotary_layers(ConfigReader& c, std::int64_t layers) {
  const std::int64_t interval = c.integer("no_rope_layer_interval", 4);
  const auto marks = c.integers("no_rope_layers", {}, ModelLimits::kLayers, 0, 1);
  if (!marks.empty() && std::ssize(marks) != layers)
    c.problem("no_rope_layers", fmt::format("no_rope_layers has {} entries for {} layers", marks.size(), layers));
  std::vector<bool> rotary;
  for (std::int64_t i = 0; i < layers; ++i)
    rotary.push_back(i < std::ssize(marks) ? marks[static_cast<std::size_t>(i)] == 1 : (i + 1) % interval != 0);
  return rotary;
}

/// Layers that attend within chunks: by `layer_types`, else those with rotary positions.
std::vector<bool> chunked_layers(ConfigReader& c, const std::vector<bool>& rotary) {
  const Node* types = c.find("layer_types");
  if (!types) return rotary;
  std::vector<bool> chunked;
  for (const Node& type : types->items) {
    chunked.push_back(type.scalar == "chunked_attention");
    if (!chunked.back() && type.scalar != "full_attention")
      c.problem("layer_types", fmt::format("layer type '{}' is not supported", type.scalar),
                "known types: full_attention, chunked_attention");
  }
  if (chunked.size() != rotary.size())
    c.problem("layer_types", fmt::format("layer_types has {} entries for {} layers", chunked.size(), rotary.size()));
  return chunked;
}

/// Layers with experts: those in `moe_layers`, else every n-th.
std::vector<bool> interleaved_layers(ConfigReader& c, std::int64_t layers) {
  const std::int64_t step = c.integer("interleave_moe_layer_step", 1);
  const bool listed = c.find("moe_layers") != nullptr;
  const auto list = c.integers("moe_layers", {}, ModelLimits::kLayers, 0, layers - 1);
  std::vector<bool> sparse;
  for (std::int64_t i = 0; i < layers; ++i)
    sparse.push_back(listed ? std::find(list.begin(), list.end(), i) != list.end() : (i + 1) % step == 0);
  return sparse;
}

/// A switch that old configurations give as a number.
bool is_on(ConfigReader& c, std::string_view key) {
  const Node* value = c.find(key);
  if (value && value->kind == Node::Kind::Scalar && value->scalar != "true" && value->scalar != "false")
    return c.integer(key, 1, 0) > 0;
  return c.boolean(key, true);
}

struct Llama4Settings {
  DecoderSettings decoder{.vocab = 202048,
                          .hidden = 5120,
                          .intermediate = 8192,
                          .layers = 48,
                          .heads = 40,
                          .kv_heads = 8,
                          .head_dim = 128,
                          .max_positions = 131072,
                          .epsilon = 1e-5,
                          .theta = 500000};
  ExpertSettings experts{.experts = 16, .top_k = 1, .score = RouterScore::Sigmoid, .normalise = false};
  std::int64_t dense = 16384;  // width of the layers without experts
  std::vector<bool> rotary, chunked, sparse;
  std::optional<std::int64_t> chunk;
  bool qk_norm = true;
  std::optional<ScoreGrowth> growth;
};

Llama4Settings read_llama4(ConfigReader& c) {
  Llama4Settings s;
  DecoderSettings& d = s.decoder;
  read_decoder(c, d);
  d.qkv_bias = d.out_bias = c.boolean("attention_bias", false);
  s.dense = c.integer("intermediate_size_mlp", s.dense);
  s.rotary = rotary_layers(c, d.layers);
  s.chunked = chunked_layers(c, s.rotary);
  s.chunk = c.nullable_integer("attention_chunk_size", 8192);
  s.sparse = interleaved_layers(c, d.layers);
  s.qk_norm = c.boolean("use_qk_norm", true);
  const ScoreGrowth growth{c.real("attn_scale", 0.1, 0, 1e3), double(c.integer("floor_scale", 8192))};
  if (is_on(c, "attn_temperature_tuning")) s.growth = growth;
  s.experts.inner = s.experts.shared_inner = d.intermediate;
  read_experts(c, std::count(s.sparse.begin(), s.sparse.end(), true), s.experts);
  d.windows.assign(static_cast<std::size_t>(d.layers), std::nullopt);
  read_ropes(c, d);
  c.finish();
  return s;
}

/// Rotations keep lengths, so that the norms of q and k, which transformers takes behind them, are taken before.
Attention build_attention(const Llama4Settings& s, std::int64_t layer, const std::string& prefix, ParameterSet& p) {
  const DecoderSettings& d = s.decoder;
  const auto index = static_cast<std::size_t>(layer);
  Attention a = build_grouped_attention(d, layer, prefix, p);
  if (s.chunked[index]) a.window = s.chunk;
  a.chunked = a.window.has_value();
  if (!s.rotary[index]) {
    a.rope.reset();
    a.growth = s.growth;
    return a;
  }
  a.rope->interleaved = true;
  auto& projections = std::get<StandardAttention>(a.projections);
  if (s.qk_norm)
    projections.q_norm = projections.k_norm = Norm{.kind = NormKind::Rms, .dim = *d.head_dim, .epsilon = d.epsilon};
  return a;
}

}  // namespace

void build_llama4(const BuildInput& input, Model& model) {
  const Llama4Settings s = read_llama4(input.config);
  ParameterSet p{model, input.config.config(), s.decoder.deviation};
  DecoderParts parts;
  parts.attention = [&](std::int64_t layer, const std::string& prefix) {
    return build_attention(s, layer, prefix + "self_attn.", p);
  };
  parts.ffn = [&](std::int64_t layer, const std::string& prefix) -> std::variant<Mlp, MoE> {
    if (!s.sparse[static_cast<std::size_t>(layer)])
      return build_gated_mlp(s.decoder, s.dense, prefix + "feed_forward.", p);
    return build_llama4_experts(s.decoder, s.experts, prefix + "feed_forward.", p);
  };
  model.network = build_decoder(s.decoder, parts, p);
}

}  // namespace orrery
