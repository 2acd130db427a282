// SPDX-License-Identifier: Apache-2.0
// Llama and Mistral.
#include "sim/model/decoder.hpp"

namespace orrery {

void build_llama(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DecoderSettings s;
  read_decoder(c, s);
  s.qkv_bias = s.out_bias = c.boolean("attention_bias", false);
  s.mlp_bias = c.boolean("mlp_bias", false);
  read_windows(c, WindowRule::Never, {}, s);
  read_ropes(c, s);
  build_grouped_decoder(input, s, model);
}

void build_mistral(const BuildInput& input, Model& model) {
  ConfigReader& c = input.config;
  DecoderSettings s{.intermediate = 14336, .kv_heads = 8, .max_positions = 131072};
  read_decoder(c, s);
  read_windows(c, WindowRule::WhenGiven, 4096, s);
  read_ropes(c, s);
  build_grouped_decoder(input, s, model);
}

}  // namespace orrery
