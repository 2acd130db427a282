// SPDX-License-Identifier: Apache-2.0
// StarCoder 2: a Llama-like decoder with LayerNorm and feed-forward networks without a gate.
#include "sim/model/decoder.hpp"

namespace orrery {
namespace {

Mlp build_mlp(const DecoderSettings& s, const std::string& prefix, ParameterSet& p) {
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "c_fc", s.hidden, s.intermediate, {.bias = s.mlp_bias});
  mlp.down = p.linear(prefix + "c_proj", s.intermediate, s.hidden, {.bias = s.mlp_bias});
  return mlp;
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
                    .tied = true,
                    .norm = NormKind::Layer};
  read_decoder(c, s);
  s.epsilon = c.real("norm_epsilon", 1e-5, 0, 1);
  s.activation = read_activation(c, "hidden_act", "gelu_pytorch_tanh");
  s.qkv_bias = s.out_bias = s.mlp_bias = c.boolean("use_bias", true);
  read_windows(c, WindowRule::WhenGiven, {}, s);
  read_ropes(c, s);
  c.finish();
  ParameterSet p{model, c.config(), s.deviation};
  DecoderParts parts = with_grouped_attention(s, p);
  parts.ffn = [&](std::int64_t, const std::string& prefix) { return build_mlp(s, prefix + "mlp.", p); };
  model.network = build_decoder(s, parts, p);
}

}  // namespace orrery
