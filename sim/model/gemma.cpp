// SPDX-License-Identifier: Apache-2.0
// Gemma 1, 2 and 3 (the language model), as transformers' GemmaForCausalLM, Gemma2ForCausalLM and Gemma3ForCausalLM
// compute them.
#include <cmath>

#include "sim/model/decoder.hpp"

namespace orrery {
namespace {

/// What all of them have. Gates were trained with the approximated GELU, whatever `hidden_act` says. Transformers
/// rounds √hidden to the type of the weights (√3584 = 59.87 to 60 in bf16); here it is as exact as the plan computes.
void read_gemma(ConfigReader& c, DecoderSettings& s) {
  s.norm = NormKind::RmsOnePlus;
  read_decoder(c, s);
  s.activation = read_activation(c, "hidden_activation", "gelu_pytorch_tanh");
  s.qkv_bias = s.out_bias = c.boolean("attention_bias", false);
  s.embedding_scale = std::sqrt(static_cast<double>(s.hidden));
}

/// Defaults of transformers for the second and the third generation: the sizes of Gemma 2 2B.
DecoderSettings sizes_of_2b() {
  return {.hidden = 2304, .intermediate = 9216, .layers = 26, .heads = 8, .kv_heads = 4, .head_dim = 256, .tied = true};
}

/// What came with the second generation.
void read_gemma2(ConfigReader& c, DecoderSettings& s) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  s.block_norms = BlockNorms::BeforeAndBehind;
  read_gemma(c, s);
  s.score_scale = 1 / std::sqrt(c.real("query_pre_attn_scalar", 256, kLeast, kMost));
  s.logit_cap = c.nullable_real("final_logit_softcapping", s.logit_cap, kLeast, kMost);
  s.score_cap = c.nullable_real("attn_logit_softcapping", s.score_cap, kLeast, kMost);
  read_windows(c, WindowRule::AllButEveryNth, 4096, s);
  read_ropes(c, s);
}

}  // namespace

void build_gemma(const BuildInput& input, Model& model) {
  DecoderSettings s{.vocab = 256000,
                    .hidden = 3072,
                    .intermediate = 24576,
                    .layers = 28,
                    .heads = 16,
                    .kv_heads = 16,
                    .head_dim = 256,
                    .max_positions = 8192,
                    .tied = true};
  read_gemma(input.config, s);
  read_windows(input.config, WindowRule::Never, {}, s);
  read_ropes(input.config, s);
  build_grouped_decoder(input, s, model);
}

void build_gemma2(const BuildInput& input, Model& model) {
  DecoderSettings s = sizes_of_2b();
  s.vocab = 256000, s.max_positions = 8192;
  s.score_cap = 50, s.logit_cap = 30;
  s.window_period = 2;
  read_gemma2(input.config, s);
  build_grouped_decoder(input, s, model);
}

void build_gemma3(const BuildInput& input, Model& model) {
  DecoderSettings s = sizes_of_2b();
  s.vocab = 262208, s.max_positions = 131072;
  s.qk_norm = true;
  s.window_period = 6;
  s.theta = 1e6, s.theta_of_windows = 1e4;
  read_gemma2(input.config, s);
  build_grouped_decoder(input, s, model);
}

}  // namespace orrery
