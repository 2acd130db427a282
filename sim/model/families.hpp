// SPDX-License-Identifier: Apache-2.0
#pragma once

// The builders of the families, one file each. A builder reads the keys of a configuration with the defaults of its
// Hugging Face class and fills `parameters` and `network`; name, family and dtype are set by the caller.

#include <string_view>

#include "sim/model/config_reader.hpp"
#include "sim/model/model.hpp"

namespace orrery {

/// What a builder works from: the reader of the configuration and the class that `architectures[0]` names.
struct BuildInput {
  ConfigReader& config;
  std::string_view architecture;
};

void build_gpt2(const BuildInput& input, Model& model);
void build_kraken(const BuildInput& input, Model& model);
void build_opt(const BuildInput& input, Model& model);
void build_bert(const BuildInput& input, Model& model);
void build_t5(const BuildInput& input, Model& model);
void build_switch(const BuildInput& input, Model& model);
void build_llama(const BuildInput& input, Model& model);
void build_mistral(const BuildInput& input, Model& model);
void build_llama4(const BuildInput& input, Model& model);
void build_gemma(const BuildInput& input, Model& model);
void build_gemma2(const BuildInput& input, Model& model);
void build_gemma3(const BuildInput& input, Model& model);
void build_granite(const BuildInput& input, Model& model);
void build_qwen2(const BuildInput& input, Model& model);
void build_qwen3(const BuildInput& input, Model& model);
void build_starcoder2(const BuildInput& input, Model& model);
void build_mixtral(const BuildInput& input, Model& model);
void build_qwen2_moe(const BuildInput& input, Model& model);
void build_qwen3_moe(const BuildInput& input, Model& model);
void build_deepseek_v2(const BuildInput& input, Model& model);
void build_deepseek_v3(const BuildInput& input, Model& model);
void build_vit(const BuildInput& input, Model& model);
void build_swin(const BuildInput& input, Model& model);
void build_dlrm(const BuildInput& input, Model& model);

/// The activation that a configuration names ("gelu_new", "silu" …).
ActivationKind read_activation(ConfigReader& config, std::string_view keys, std::string_view fallback);
/// The same from a name that stands at `keys`.
ActivationKind activation_named(ConfigReader& config, std::string_view keys, std::string_view name);

/// The number of classes: `num_labels`, or the entries of `id2label`, or two.
std::int64_t read_labels(ConfigReader& config);

}  // namespace orrery
