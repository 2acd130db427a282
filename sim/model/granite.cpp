// SPDX-License-Identifier: Apache-2.0
// Granite 3, dense: Llama with four factors, as transformers' GraniteForCausalLM computes it.
#include "sim/model/decoder.hpp"

namespace orrery {

/// Logits are divided by `logits_scaling`, which is done to what they are made of: as many numbers as are hidden in
/// place of the vocabulary.
void build_granite(const BuildInput& input, Model& model) {
  constexpr double kLeast = 1e-9, kMost = 1e9;
  ConfigReader& c = input.config;
  DecoderSettings s;
  read_decoder(c, s);
  s.qkv_bias = s.out_bias = c.boolean("attention_bias", false);
  s.mlp_bias = c.boolean("mlp_bias", false);
  s.embedding_scale = c.real("embedding_multiplier", 1, kLeast, kMost);
  s.score_scale = c.real("attention_multiplier", 1, kLeast, kMost);
  s.residual_scale = c.real("residual_multiplier", 1, kLeast, kMost);
  s.output_scale = 1 / c.real("logits_scaling", 1, kLeast, kMost);
  read_windows(c, WindowRule::Never, {}, s);
  read_ropes(c, s);
  build_grouped_decoder(input, s, model);
}

}  // namespace orrery
