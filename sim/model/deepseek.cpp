// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and V3: multi-head latent attention and shared experts. The multi-token prediction layers behind the main
// model
// (`num_nextn_predict_layers`) are not built: they serve training and speculation, and the published 671 B do not count
// them.
#include <fmt/format.h>

#include <cmath>

#include "sim/model/decoder.hpp"
#include "sim/model/experts.hpp"
#include "sim/model/rope.hpp"

namespace orrery {
namespace {

struct LatentSettings {
  std::optional<std::int64_t> q_rank = 1536;
  std::int64_t kv_rank = 512, nope_dim = 128, rope_dim = 64, v_dim = 128;
  bool bias = false;
  RopeReading rope;
};

struct DeepseekSettings {
  DecoderSettings decoder;
  LatentSettings latent;
  ExpertSettings experts;
  std::int64_t first_sparse = 0, sparse_step = 1;

  bool is_sparse(std::int64_t layer) const { return layer >= first_sparse && layer % sparse_step == 0; }
};

void read_latent(ConfigReader& c, const DecoderSettings& s, LatentSettings& l) {
  constexpr std::int64_t kHead = ModelLimits::kHeadDimension;
  l.q_rank = c.nullable_integer("q_lora_rank", l.q_rank);
  l.kv_rank = c.integer("kv_lora_rank", l.kv_rank);
  l.nope_dim = c.integer("qk_nope_head_dim", l.nope_dim, 1, kHead);
  l.rope_dim = c.integer("qk_rope_head_dim", l.rope_dim, 2, kHead);
  l.v_dim = c.integer("v_head_dim", l.v_dim, 1, kHead);
  l.bias = c.boolean("attention_bias", false);
  l.rope = read_rope(c, {.head_dim = l.rope_dim, .theta = s.theta, .max_positions = s.max_positions});
  l.rope.rope.interleaved = c.boolean("rope_interleave", true);
}

/// Width of the decoder's own attention heads is not used here, so it is not checked either.
void read_base(ConfigReader& c, DecoderSettings& s) {
  s.head_dim = 1;  // "head_dim" of newer configurations repeats the rotary part
  read_decoder(c, s);
}

void read_sparse(ConfigReader& c, DeepseekSettings& d) {
  ExpertSettings& e = d.experts;
  d.first_sparse = c.integer("first_k_dense_replace", d.first_sparse, 0);
  d.sparse_step = c.integer("moe_layer_freq", 1);
  std::int64_t sparse = 0;
  for (std::int64_t i = 0; i < d.decoder.layers; ++i) sparse += d.is_sparse(i) ? 1 : 0;
  read_experts(c, sparse, e);
  const std::int64_t shared = c.nullable_integer("n_shared_experts", e.shared_inner, 0, 1024).value_or(0);
  e.shared_inner = shared * e.inner;
  e.normalise = c.boolean("norm_topk_prob", e.normalise);
  e.scaling = c.real("routed_scaling_factor", e.scaling, 0, 1e6);
  e.groups = c.nullable_integer("n_group", e.groups).value_or(1);
  e.top_groups = c.nullable_integer("topk_group", e.top_groups).value_or(1);
  if (c.check_divides("n_group", e.groups, "num_local_experts|num_experts|n_routed_experts", e.experts) &&
      (e.top_groups > e.groups || e.top_groups * (e.experts / e.groups) < e.top_k))
    c.problem("topk_group", fmt::format("{} of {} groups cannot give {} experts", e.top_groups, e.groups, e.top_k));
}

Attention build_latent_attention(const DeepseekSettings& d, const std::string& prefix, ParameterSet& p) {
  const DecoderSettings& s = d.decoder;
  const LatentSettings& l = d.latent;
  const std::int64_t qk_dim = l.nope_dim + l.rope_dim;
  Attention a{.heads = s.heads, .kv_heads = s.heads, .qk_dim = qk_dim, .v_dim = l.v_dim};
  a.scale = l.rope.score_factor / std::sqrt(static_cast<double>(qk_dim));
  a.rope = l.rope.rope;
  LatentAttention m{.kv_rank = l.kv_rank, .nope_dim = l.nope_dim, .rope_dim = l.rope_dim};
  if (l.q_rank) {
    m.q_down = p.linear(prefix + "q_a_proj", s.hidden, *l.q_rank, {.bias = l.bias});
    m.q_norm = p.rms_norm(prefix + "q_a_layernorm", *l.q_rank, 1e-6);
    m.q_up = p.linear(prefix + "q_b_proj", *l.q_rank, s.heads * qk_dim);
  } else {
    m.q_up = p.linear(prefix + "q_proj", s.hidden, s.heads * qk_dim);
  }
  m.kv_down = p.linear(prefix + "kv_a_proj_with_mqa", s.hidden, l.kv_rank + l.rope_dim, {.bias = l.bias});
  m.kv_norm = p.rms_norm(prefix + "kv_a_layernorm", l.kv_rank, 1e-6);
  m.kv_up = p.linear(prefix + "kv_b_proj", l.kv_rank, s.heads * (l.nope_dim + l.v_dim));
  a.out = p.linear(prefix + "o_proj", s.heads * l.v_dim, s.hidden, {.bias = l.bias});
  a.projections = m;
  return a;
}

void build_deepseek(const BuildInput& input, const DeepseekSettings& d, Model& model) {
  input.config.finish();
  const DecoderSettings& s = d.decoder;
  ParameterSet p{model, input.config.config(), s.deviation};
  DecoderParts parts;
  parts.attention = [&](std::int64_t, const std::string& prefix) {
    return build_latent_attention(d, prefix + "self_attn.", p);
  };
  parts.ffn = [&](std::int64_t layer, const std::string& prefix) -> std::variant<Mlp, MoE> {
    if (!d.is_sparse(layer)) return build_gated_mlp(s, s.intermediate, prefix + "mlp.", p);
    return build_deepseek_experts(s, d.experts, prefix + "mlp.", p);
  };
  model.network = build_decoder(s, parts, p);
}

}  // namespace

void build_deepseek_v2(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DeepseekSettings d;
  read_base(c, d.decoder);
  read_latent(c, d.decoder, d.latent);
  d.experts = {.experts = 64, .top_k = 6, .inner = 1407, .shared_inner = 2, .normalise = false};
  const std::string method = c.text("topk_method", "greedy");
  read_sparse(c, d);
  if (method == "greedy") {
    d.experts.groups = d.experts.top_groups = 1;
  } else if (method != "group_limited_greedy") {
    c.problem("topk_method", fmt::format("topk_method '{}' is not supported", method),
              "known methods: greedy, group_limited_greedy");
  }
  build_deepseek(input, d, model);
}

void build_deepseek_v3(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DeepseekSettings d;
  d.decoder = {.vocab = 129280,
               .hidden = 7168,
               .intermediate = 18432,
               .layers = 61,
               .heads = 128,
               .kv_heads = 128,
               .max_positions = 4096};
  read_base(c, d.decoder);
  read_latent(c, d.decoder, d.latent);
  d.experts = {.experts = 256,
               .top_k = 8,
               .inner = 2048,
               .shared_inner = 1,
               .score = RouterScore::Sigmoid,
               .selection_bias = true,
               .scaling = 2.5,
               .groups = 8,
               .top_groups = 4};
  d.first_sparse = 3;
  read_sparse(c, d);
  build_deepseek(input, d, model);
}

}  // namespace orrery
