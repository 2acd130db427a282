// SPDX-License-Identifier: Apache-2.0
// ViTForImageClassification (no pooler, classifier) and ViTModel (pooler, no classifier).
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

struct VitSettings {
  std::int64_t hidden, layers, heads, intermediate, image, patch, channels, labels;
  double epsilon, deviation;
  ActivationKind activation;
  bool qkv_bias;

  std::int64_t patches() const { return (image / patch) * (image / patch); }
};

VitSettings vit_settings(ConfigReader& c) {
  VitSettings s{};
  s.hidden = c.integer("hidden_size", 768);
  s.layers = c.layers("num_hidden_layers", 12);
  s.heads = c.integer("num_attention_heads", 12, 1, ModelLimits::kHeads);
  s.intermediate = c.integer("intermediate_size", 3072);
  s.image = c.integer("image_size", 224, 1, 1 << 16);
  s.patch = c.integer("patch_size", 16, 1, 1 << 12);
  s.channels = c.integer("num_channels", 3, 1, 1 << 16);
  s.labels = read_labels(c);
  s.epsilon = c.real("layer_norm_eps", 1e-12, 0, 1);
  s.deviation = c.real("initializer_range", 0.02, 0, 10);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.qkv_bias = c.boolean("qkv_bias", true);
  c.check_divides("num_attention_heads", s.heads, "hidden_size", s.hidden);
  c.check_divides("patch_size", s.patch, "image_size", s.image);
  c.finish();
  return s;
}

Attention build_attention(const VitSettings& s, const std::string& prefix, ParameterSet& p) {
  const std::int64_t head_dim = s.hidden / s.heads;
  Attention a{.heads = s.heads, .kv_heads = s.heads, .qk_dim = head_dim, .v_dim = head_dim, .causal = false};
  a.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  StandardAttention projections;
  projections.q = p.linear(prefix + "attention.query", s.hidden, s.hidden, {.bias = s.qkv_bias});
  projections.k = p.linear(prefix + "attention.key", s.hidden, s.hidden, {.bias = s.qkv_bias});
  projections.v = p.linear(prefix + "attention.value", s.hidden, s.hidden, {.bias = s.qkv_bias});
  a.out = p.linear(prefix + "output.dense", s.hidden, s.hidden, {.bias = true});
  a.projections = projections;
  return a;
}

Block build_block(const VitSettings& s, std::int64_t layer, const std::string& root, ParameterSet& p) {
  const std::string prefix = fmt::format("{}encoder.layer.{}.", root, layer);
  p.enter_block(layer);
  Block block;
  block.attention = build_attention(s, prefix + "attention.", p);
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "intermediate.dense", s.hidden, s.intermediate, {.bias = true});
  mlp.down = p.linear(prefix + "output.dense", s.intermediate, s.hidden, {.bias = true});
  block.ffn = mlp;
  block.attention_norm = p.layer_norm(prefix + "layernorm_before", s.hidden, s.epsilon);
  block.ffn_norm = p.layer_norm(prefix + "layernorm_after", s.hidden, s.epsilon);
  p.leave_block();
  return block;
}

}  // namespace

void build_vit(const BuildInput& input, Model& model) {
  const VitSettings s = vit_settings(input.config);
  const bool is_bare = input.architecture == "ViTModel";
  const std::string root = is_bare ? "" : "vit.";
  ParameterSet p{model, input.config.config(), s.deviation};
  Transformer t{.hidden = s.hidden, .max_positions = s.patches() + 1};
  t.image_size = s.image, t.patch_size = s.patch, t.channels = s.channels;
  t.class_token = p.matrix(root + "embeddings.cls_token", {1, 1, s.hidden});
  t.positions = p.matrix(root + "embeddings.position_embeddings", {1, s.patches() + 1, s.hidden});
  t.patches = p.patches(root + "embeddings.patch_embeddings.projection", s.channels, s.patch, s.hidden);
  for (std::int64_t i = 0; i < s.layers; ++i) t.encoder.push_back(build_block(s, i, root, p));
  t.encoder_norm = p.layer_norm(root + "layernorm", s.hidden, s.epsilon);
  if (is_bare) {
    t.head = Head::None;
    t.pooler = p.linear("pooler.dense", s.hidden, s.hidden, {.bias = true});
  } else {
    t.head = Head::Classifier;
    t.output = p.linear("classifier", s.hidden, s.labels, {.bias = true});
  }
  model.network = std::move(t);
}

}  // namespace orrery
