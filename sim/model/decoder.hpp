// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the Llama-like families have in common: a decoder of pre-norm blocks, of RMSNorm but for StarCoder 2, under the
// names of LlamaForCausalLM.

#include <functional>
#include <string>

#include "sim/model/families.hpp"
#include "sim/model/model.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {

/// Where a block has norms: before each half, or on what the half adds to the residual, too.
enum class BlockNorms : std::uint8_t { Before, BeforeAndBehind };

/// The values of a Llama-like configuration. A family fills in its defaults before they are read.
struct DecoderSettings {
  std::int64_t vocab = 32000, hidden = 4096, intermediate = 11008, layers = 32, heads = 32;
  std::optional<std::int64_t> kv_heads;  // absent: as many as heads
  std::optional<std::int64_t> head_dim;  // absent: hidden / heads
  std::int64_t max_positions = 2048;
  double epsilon = 1e-6, deviation = 0.02, theta = 10000;
  bool tied = false, qkv_bias = false, out_bias = false, mlp_bias = false, qk_norm = false;
  ActivationKind activation = ActivationKind::Silu;
  NormKind norm = NormKind::Rms;
  BlockNorms block_norms = BlockNorms::Before;
  std::optional<double> score_scale;  // absent: head_dim^-0.5
  std::optional<double> score_cap, logit_cap;
  double embedding_scale = 1, residual_scale = 1, output_scale = 1;
  std::int64_t window_period = 1;                    // under WindowRule::AllButEveryNth, without a key
  std::optional<double> theta_of_windows;            // of layers with a window; absent: theta
  std::vector<std::optional<std::int64_t>> windows;  // per layer
  std::vector<Rope> ropes;                           // per layer
};

/// Which layers attend within a window only.
enum class WindowRule : std::uint8_t {
  Never,           // Llama
  WhenGiven,       // Mistral, Mixtral: every layer, when `sliding_window` is not null
  WhenSwitchedOn,  // Qwen: `use_sliding_window`, from layer `max_window_layers` on
  AllButEveryNth   // Gemma 2 and 3: every layer but the last of each `sliding_window_pattern`
};

/// Reads the keys of Llama over the defaults in `s`.
void read_decoder(ConfigReader& config, DecoderSettings& s);
/// Fills `s.windows` from `sliding_window` (of which `fallback` is the default) and `layer_types`.
void read_windows(ConfigReader& config, WindowRule rule, std::optional<std::int64_t> fallback, DecoderSettings& s);
/// Fills `s.ropes`; behind `read_windows`, because transformers v5 may give each type of layer its own frequencies.
void read_ropes(ConfigReader& config, DecoderSettings& s);

/// Grouped-query attention under `prefix` ("model.layers.0.self_attn.").
Attention build_grouped_attention(const DecoderSettings& s, std::int64_t layer, const std::string& prefix,
                                  ParameterSet& p);

/// A gated feed-forward network whose matrices are called gate_proj, up_proj and down_proj.
Mlp build_gated_mlp(const DecoderSettings& s, std::int64_t inner, const std::string& prefix, ParameterSet& p);

/// The parts that the families vary, each given the layer and the prefix "model.layers.N.".
struct DecoderParts {
  std::function<Attention(std::int64_t, const std::string&)> attention;
  std::function<std::variant<Mlp, MoE>(std::int64_t, const std::string&)> ffn;
};

/// Grouped-query attention in every layer; the caller adds `ffn`. Refers to both arguments.
DecoderParts with_grouped_attention(const DecoderSettings& s, ParameterSet& p);

/// Embedding, blocks, final norm and head.
Transformer build_decoder(const DecoderSettings& s, const DecoderParts& parts, ParameterSet& p);

/// A decoder of grouped-query attention and the given feed-forward networks, put into the model.
void build_grouped_decoder(const BuildInput& input, const DecoderSettings& s, Model& model);

}  // namespace orrery
