// SPDX-License-Identifier: Apache-2.0
// StarCoder 2.
#include <fmt/format.h>

#include "sim/model/decoder.hpp"

namespace orrery {
namespace {

Mlp build_mlp(const DecoderSettings& s, const std::string& prefix, ParameterSet& p) {
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "c_fc", s.hidden, s.intermediate, {.bias = s.mlp_bias});
  mlp.down = p.linear(prefix + "c_proj", s.intermediate, s.hidden, {.bias = s.mlp_bias});
  return mlp;
}

Transformer build_network(const DecoderSettings& s, ParameterSet& p) {
  Transformer t{.hidden = s.hidden, .max_positions = s.max_positions};
  t.tokens = p.embedding("model.embed_tokens", s.vocab, s.hidden);
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    p.enter_block(i);
    Block block;
    block.attention = build_grouped_attention(s, i, prefix + "self_attn.", p);
    block.ffn = build_mlp(s, prefix + "mlp.", p);
    block.attention_norm = p.layer_norm(prefix + "input_layernorm", s.hidden, s.epsilon);
    block.ffn_norm = p.layer_norm(prefix + "post_attention_layernorm", s.hidden, s.epsilon);
    p.leave_block();
    t.decoder.push_back(block);
  }
  t.decoder_norm = p.layer_norm("model.norm", s.hidden, s.epsilon);
  t.tied = s.tied;
  t.output = s.tied ? Linear{.weight = t.tokens->table, .in = s.hidden, .out = s.vocab}
                    : p.linear("lm_head", s.hidden, s.vocab);
  return t;
}

}  // namespace

void build_starcoder2(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DecoderSettings s{.vocab = 49152,
                    .hidden = 3072,
                    .intermediate = 12288,
                    .layers = 30,
                    .heads = 24,
                    .kv_heads = 2,
                    .max_positions = 4096,
                    .tied = true};
  read_decoder(c, s);
  s.epsilon = c.real("norm_epsilon", 1e-5, 0, 1);
  s.activation = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
  s.qkv_bias = s.out_bias = s.mlp_bias = c.boolean("use_bias", true);
  read_windows(c, WindowRule::WhenGiven, {}, s);
  read_ropes(c, s);
  c.finish();
  ParameterSet p{model, c.config(), s.deviation};
  model.network = build_network(s, p);
}

}  // namespace orrery
