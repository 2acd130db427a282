// SPDX-License-Identifier: Apache-2.0
// SwinForImageClassification. Parameter::layer counts the blocks through all stages; patch merging stands outside of
// them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMaxStages = 8;

struct SwinSettings {
  std::int64_t image, patch, channels, dim, window, labels;
  std::vector<std::int64_t> depths, heads;
  double mlp_ratio, epsilon, deviation;
  ActivationKind activation;
  bool qkv_bias;
};

/// Every stage halves the resolution, so it must stay whole and even up to the last merge; windows must tile it.
void check_stages(ConfigReader& c, const SwinSettings& s) {
  if (s.depths.size() != s.heads.size() || s.depths.empty()) {
    c.problem("depths", fmt::format("depths has {} stages, num_heads has {}", s.depths.size(), s.heads.size()));
    return;
  }
  if (!c.check_divides("patch_size", s.patch, "image_size", s.image)) return;
  std::int64_t resolution = s.image / s.patch, dim = s.dim;
  for (std::size_t i = 0; i < s.depths.size(); ++i) {
    if (dim % s.heads[i] != 0)
      c.problem("num_heads", fmt::format("{} heads of stage {} do not divide its width {}", s.heads[i], i, dim));
    if (resolution > s.window && resolution % s.window != 0)
      c.problem("window_size", fmt::format("window_size {} does not divide the {} patches per side of stage {}",
                                           s.window, resolution, i));
    const bool merges = i + 1 < s.depths.size();
    if (merges && resolution % 2 != 0)
      c.problem("image_size", fmt::format("stage {} has {} patches per side, which cannot be halved", i, resolution));
    resolution = std::max<std::int64_t>(resolution / 2, 1);
    dim *= 2;
  }
}

SwinSettings swin_settings(ConfigReader& c) {
  SwinSettings s{};
  s.image = c.integer("image_size", 224, 1, 1 << 16);
  s.patch = c.integer("patch_size", 4, 1, 1 << 12);
  s.channels = c.integer("num_channels", 3, 1, 1 << 16);
  s.dim = c.integer("embed_dim", 96, 1, 1 << 20);
  s.depths = c.integers("depths", {2, 2, 6, 2}, kMaxStages, 1, ModelLimits::kLayers / 8);
  s.heads = c.integers("num_heads", {3, 6, 12, 24}, kMaxStages, 1, ModelLimits::kHeads);
  s.window = c.integer("window_size", 7, 1, 1 << 12);
  s.labels = read_labels(c);
  s.mlp_ratio = c.real("mlp_ratio", 4.0, 1e-3, 1e3);
  s.epsilon = c.real("layer_norm_eps", 1e-5, 0, 1);
  s.deviation = c.real("initializer_range", 0.02, 0, 10);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.qkv_bias = c.boolean("qkv_bias", true);
  if (c.boolean("use_absolute_embeddings", false))
    c.problem("use_absolute_embeddings", "absolute position embeddings are not supported", "false");
  check_stages(c, s);
  c.finish();
  return s;
}

Attention build_attention(const SwinSettings& s, const SwinStage& stage, const std::string& prefix, ParameterSet& p) {
  const std::int64_t dim = stage.dim, head_dim = dim / stage.heads;
  const std::int64_t offsets = (2 * s.window - 1) * (2 * s.window - 1);
  Attention a{.heads = stage.heads, .kv_heads = stage.heads, .qk_dim = head_dim, .v_dim = head_dim, .causal = false};
  a.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  const ParameterId table = p.matrix(prefix + "self.relative_position_bias_table", {offsets, stage.heads});
  a.relative_bias = RelativeBias{.table = table, .buckets = offsets, .max_distance = s.window - 1};
  StandardAttention projections;
  projections.q = p.linear(prefix + "self.query", dim, dim, {.bias = s.qkv_bias});
  projections.k = p.linear(prefix + "self.key", dim, dim, {.bias = s.qkv_bias});
  projections.v = p.linear(prefix + "self.value", dim, dim, {.bias = s.qkv_bias});
  a.out = p.linear(prefix + "output.dense", dim, dim, {.bias = true});
  a.projections = projections;
  return a;
}

Block build_block(const SwinSettings& s, const SwinStage& stage, const std::string& prefix, ParameterSet& p) {
  const auto inner = static_cast<std::int64_t>(s.mlp_ratio * static_cast<double>(stage.dim));
  Block block;
  block.attention_norm = p.layer_norm(prefix + "layernorm_before", stage.dim, s.epsilon);
  block.attention = build_attention(s, stage, prefix + "attention.", p);
  block.ffn_norm = p.layer_norm(prefix + "layernorm_after", stage.dim, s.epsilon);
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "intermediate.dense", stage.dim, inner, {.bias = true});
  mlp.down = p.linear(prefix + "output.dense", inner, stage.dim, {.bias = true});
  block.ffn = mlp;
  return block;
}

SwinStage build_stage(const SwinSettings& s, std::size_t index, std::int64_t first_block, ParameterSet& p) {
  const std::int64_t shrink = std::int64_t{1} << index;
  const std::string prefix = fmt::format("swin.encoder.layers.{}.", index);
  SwinStage stage{.dim = s.dim * shrink, .heads = s.heads[index]};
  stage.resolution = std::max<std::int64_t>(s.image / s.patch / shrink, 1);
  for (std::int64_t b = 0; b < s.depths[index]; ++b) {
    p.enter_block(first_block + b);
    stage.blocks.push_back(build_block(s, stage, fmt::format("{}blocks.{}.", prefix, b), p));
  }
  p.leave_block();
  if (index + 1 < s.depths.size()) {
    stage.merge = p.linear(prefix + "downsample.reduction", 4 * stage.dim, 2 * stage.dim);
    stage.merge_norm = p.layer_norm(prefix + "downsample.norm", 4 * stage.dim, s.epsilon);
  }
  return stage;
}

}  // namespace

void build_swin(const BuildInput& input, Model& model) {
  const SwinSettings s = swin_settings(input.config);
  ParameterSet p{model, input.config.config(), s.deviation};
  Swin swin{.image_size = s.image, .patch_size = s.patch, .channels = s.channels, .window = s.window};
  swin.patches = p.patches("swin.embeddings.patch_embeddings.projection", s.channels, s.patch, s.dim);
  swin.patch_norm = p.layer_norm("swin.embeddings.norm", s.dim, s.epsilon);
  std::int64_t block = 0;
  for (std::size_t i = 0; i < s.depths.size(); ++i) {
    swin.stages.push_back(build_stage(s, i, block, p));
    block += s.depths[i];
  }
  const std::int64_t width = swin.stages.back().dim;
  swin.final_norm = p.layer_norm("swin.layernorm", width, s.epsilon);
  swin.classifier = p.linear("classifier", width, s.labels, {.bias = true});
  model.network = std::move(swin);
}

}  // namespace orrery
