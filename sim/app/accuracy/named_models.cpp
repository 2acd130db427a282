// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/named_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/accuracy/server_defaults.hpp"
#include "sim/base/units.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

/// The first part that a name has in small letters decides. An empty file: a model that is none of those here, though
/// its name has the part of one behind it.
struct Named {
  std::string_view part, file;
};
constexpr Named kModels[] = {{"distill-llama-8b", "llama-3-8b"},
                             {"distill-llama-70b", "llama-3-70b"},
                             {"distill", ""},
                             {"deepseek-v3.2", ""},  // sparse attention
                             {"deepseek-v3", "deepseek-v3"},
                             {"deepseek-r1", "deepseek-v3"},
                             {"kimi-k2", "kimi-k2"},
                             {"qwen3-235b", "qwen3-235b-a22b"},
                             {"qwen3-30b", "qwen3-30b-a3b"},
                             {"qwen3-32b", "qwen3-32b"},
                             {"qwen3-8b", "qwen3-8b"},
                             {"qwen2.5-7b", "qwen2.5-7b"},
                             {"mixtral-8x7b", "mixtral-8x7b"},
                             {"mistral-7b", "mistral-7b"},
                             {"llama-2-7b", "llama-2-7b"},
                             {"llama-2-70b", "llama-2-70b"},
                             {"llama-3-8b", "llama-3-8b"},
                             {"llama-3.1-8b", "llama-3-8b"},
                             {"llama-3-70b", "llama-3-70b"},
                             {"llama-3.1-70b", "llama-3-70b"},
                             {"llama-3.3-70b", "llama-3-70b"},
                             {"llama-3.1-405b", "llama-3.1-405b"},
                             {"llama-4-scout", "llama-4-scout"},
                             {"llama-4-maverick", "llama-4-maverick"}};

/// By the model card of gpt-oss (OpenAI 2025): 36 layers of 128 experts (120b) or 24 of 32 (20b), 4 of them chosen, 64
/// heads of 64 over 8, every second layer with a window of 128 tokens. Left out: sinks and biases.
Node gpt_oss(std::int64_t layers, std::int64_t experts) {
  return parse_yaml(
      fmt::format("{{model_type: qwen3_moe, architectures: [Qwen3MoeForCausalLM], vocab_size: 201088, hidden_size: "
                  "2880, intermediate_size: 2880, moe_intermediate_size: 2880, num_hidden_layers: {}, "
                  "num_attention_heads: 64, num_key_value_heads: 8, head_dim: 64, num_experts: {}, "
                  "num_experts_per_tok: 4, norm_topk_prob: true, max_position_embeddings: 131072, "
                  "tie_word_embeddings: false}}",
                  layers, experts),
      "gpt-oss");
}

Model model_of(Node config, std::int64_t tp, std::string_view name) {
  replicate_keys(config, tp);
  Model m = model_from_config(config, name);
  auto& t = std::get<Transformer>(m.network);
  t.max_positions = std::max(t.max_positions, kLongContext);
  return m;
}

Model model_of_oss(Node config, std::int64_t tp) {
  Model m = model_of(std::move(config), tp, "gpt-oss");
  auto& t = std::get<Transformer>(m.network);
  for (std::size_t i = 0; i < t.decoder.size(); i += 2) t.decoder[i].attention.window = 128;
  return m;
}

}  // namespace

void replicate_keys(Node& config, std::int64_t tp) {
  if (Node* language = config.find("text_config")) return replicate_keys(*language, tp);
  Node* of_keys = config.find("num_key_value_heads");
  const Node* all = config.find("num_attention_heads");
  if (!of_keys || !all) return;
  const auto keys = parse_number(of_keys->scalar), heads = parse_number(all->scalar);
  if (!keys || !heads || *keys < 1 || double(tp) <= *keys) return;
  if (std::fmod(double(tp), *keys) == 0 && std::fmod(*heads, double(tp)) == 0) of_keys->scalar = std::to_string(tp);
}

std::shared_ptr<const Model> named_model(std::string_view name, std::int64_t tp, const Locations& locations) {
  const std::string low = lower_case(name);
  if (contains(low, "gpt-oss-120b")) return std::make_shared<const Model>(model_of_oss(gpt_oss(36, 128), tp));
  if (contains(low, "gpt-oss-20b")) return std::make_shared<const Model>(model_of_oss(gpt_oss(24, 32), tp));
  const auto named =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const Named& n) { return contains(low, n.part); });
  if (named == std::end(kModels) || named->file.empty()) return nullptr;
  const std::string path = locations.find_model(std::string{named->file});
  return std::make_shared<const Model>(model_of(parse_json(read_file(path), path), tp, named->file));
}

std::shared_ptr<const Model> NamedModels::find(std::string_view name, std::int64_t tp) {
  const std::lock_guard lock{mutex_};
  const auto [known, is_new] = made_.try_emplace({std::string{name}, tp});
  if (is_new) known->second = named_model(name, tp, locations_);
  return known->second;
}

}  // namespace orrery
