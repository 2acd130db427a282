// SPDX-License-Identifier: Apache-2.0
// Networks for tests, as small as they are told to be, by the configuration of their family.
#pragma once

#include <fmt/format.h>

#include <string>

#include "sim/base/yaml.hpp"
#include "sim/model/load.hpp"

namespace orrery::testing {

inline Model model_of_config(const std::string& config, const std::string& name) {
  return model_from_config(parse_json(config, name), name);
}

/// Sizes of a network; `inner` (GPT-2: four times `hidden`), `kv_heads`, `tied` and experts where the family has them.
struct SmallSizes {
  int hidden = 16, inner = 28, layers = 4, heads = 2, kv_heads = 2, vocab = 61, positions = 32;
  bool tied = false;
  int experts = 4, chosen = 2;
};

inline Model gpt2_of(const SmallSizes& s) {
  return model_of_config(
      fmt::format(
          R"({{"model_type": "gpt2", "n_embd": {}, "n_layer": {}, "n_head": {}, "n_positions": {}, "vocab_size": {}}})",
          s.hidden, s.layers, s.heads, s.positions, s.vocab),
      "gpt2");
}

inline std::string llama_keys(const SmallSizes& s) {
  return fmt::format(
      R"("hidden_size": {}, "intermediate_size": {}, "num_hidden_layers": {}, "num_attention_heads": {},
      "num_key_value_heads": {}, "vocab_size": {}, "max_position_embeddings": {}, "rms_norm_eps": 1e-5,
      "rope_theta": 10000.0, "tie_word_embeddings": {})",
      s.hidden, s.inner, s.layers, s.heads, s.kv_heads, s.vocab, s.positions, s.tied);
}

inline Model llama_of(const SmallSizes& s) {
  return model_of_config(R"({"model_type": "llama", )" + llama_keys(s) + "}", s.tied ? "tied" : "llama");
}

inline Model mixtral_of(const SmallSizes& s) {
  return model_of_config(
      fmt::format(R"({{"model_type": "mixtral", {}, "num_local_experts": {}, "num_experts_per_tok": {}}})",
                  llama_keys(s), s.experts, s.chosen),
      "mixtral");
}

}  // namespace orrery::testing
