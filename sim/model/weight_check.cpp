// SPDX-License-Identifier: Apache-2.0
// Matching the tensors of a checkpoint with the parameters of a model.
#include <fmt/format.h>

#include <algorithm>

#include "sim/model/safetensors.hpp"

namespace orrery {
namespace {

/// Prefixes that a checkpoint of the base model lacks, or that one of the whole network has.
constexpr std::string_view kPrefixes[] = {"transformer.", "bert.", "model.", "vit.", "swin."};

/// Parts of names of tensors that are no weights: masks, index tables, frequencies, copies of tied tables, scales of
/// quantised weights.
constexpr std::string_view kBuffers[] = {".attn.bias",
                                         ".attn.masked_bias",
                                         ".rotary_emb.inv_freq",
                                         ".relative_position_index",
                                         "embeddings.position_ids",
                                         "coder.embed_tokens.weight",
                                         ".EncDecAttention.relative_attention_bias.weight",
                                         ".weight_scale_inv"};

/// Heads that a checkpoint may have besides the one of the model.
constexpr std::string_view kOtherHeads[] = {"cls.seq_relationship.", "pooler.", "cls.predictions.decoder.bias"};

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Old BERT checkpoints call weight and bias of a norm gamma and beta.
std::string old_norm_name(std::string name) {
  if (ends_with(name, "LayerNorm.weight")) return name.replace(name.size() - 6, 6, "gamma");
  if (ends_with(name, "LayerNorm.bias")) return name.replace(name.size() - 4, 4, "beta");
  return name;
}

const StoredTensor* find_spelled(const Weights& weights, const std::string& name) {
  if (const StoredTensor* t = weights.find(name)) return t;
  return weights.find(old_norm_name(name));
}

const StoredTensor* find_parameter(const Weights& weights, const std::string& name) {
  if (const StoredTensor* t = find_spelled(weights, name)) return t;
  for (const std::string_view prefix : kPrefixes) {
    const bool has = name.rfind(prefix, 0) == 0;
    const StoredTensor* t =
        has ? find_spelled(weights, name.substr(prefix.size())) : find_spelled(weights, std::string{prefix} + name);
    if (t) return t;
  }
  return nullptr;
}

bool is_tied(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t && t->tied;
}

/// The layer number in "model.layers.61.…": DeepSeek-V3's multi-token prediction stands behind the last layer.
bool is_behind_last_layer(const Model& model, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || model.family.rfind("deepseek", 0) != 0 || name.rfind(kLayers, 0) != 0) return false;
  return name.rfind(fmt::format("{}{}.", kLayers, t->decoder.size()), 0) == 0;
}

bool is_ignored(const Model& model, std::string_view name) {
  const auto ends = [&](std::string_view end) { return ends_with(name, end); };
  const auto has = [&](std::string_view part) { return contains(name, part); };
  if (std::any_of(std::begin(kBuffers), std::end(kBuffers), ends)) return true;
  if (std::any_of(std::begin(kOtherHeads), std::end(kOtherHeads), has)) return true;
  if (is_tied(model) && (name == "lm_head.weight" || name == "cls.predictions.decoder.weight")) return true;
  return is_behind_last_layer(model, name);
}

}  // namespace

WeightCheck check_against(const Model& model, const Weights& weights) {
  WeightCheck check;
  std::vector<bool> used(weights.tensors().size(), false);
  for (const Parameter& p : model.parameters) {
    const StoredTensor* t = find_parameter(weights, p.name);
    check.found.push_back(t);
    if (!t) {
      check.missing.push_back(p.name);
      continue;
    }
    used[static_cast<std::size_t>(t - weights.tensors().data())] = true;
    if (t->shape != p.shape)
      check.misshapen.push_back(
          fmt::format("{}: [{}] instead of [{}]", p.name, fmt::join(t->shape, ", "), fmt::join(p.shape, ", ")));
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const std::string& name = weights.tensors()[i].name;
    if (!used[i]) (is_ignored(model, name) ? check.ignored : check.extra).push_back(name);
  }
  return check;
}

}  // namespace orrery
