// SPDX-License-Identifier: Apache-2.0
#include "sim/model/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "sim/model/families.hpp"

namespace orrery {
namespace {

/// One supported family. `architectures` are the accepted classes, separated by spaces; the first is the default.
struct FamilyEntry {
  std::string_view name;
  std::string_view architectures;
  std::string_view summary;
  void (*build)(const BuildInput&, Model&);
};

constexpr FamilyEntry kFamilies[] = {
    {"gpt2", "GPT2LMHeadModel", "GPT-2 and GPT-3: learned positions, pre-norm, GELU", build_gpt2},
    {"kraken", "KrakenLMHeadModel", "Kraken: GPT-2 with sub-layers side by side (our own configuration keys)",
     build_kraken},
    {"opt", "OPTForCausalLM", "OPT: learned positions, ReLU", build_opt},
    {"bert", "BertForMaskedLM BertModel", "BERT: bidirectional encoder, post-norm", build_bert},
    {"t5", "T5ForConditionalGeneration T5WithLMHeadModel", "T5 1.0 and 1.1: encoder-decoder, relative positions",
     build_t5},
    {"switch_transformers", "SwitchTransformersForConditionalGeneration",
     "Switch Transformers: T5 with one expert per token in every n-th block", build_switch},
    {"llama", "LlamaForCausalLM LLaMAForCausalLM", "Llama 1, 2 and 3: rotary positions, RMSNorm, SwiGLU", build_llama},
    {"llama4_text", "Llama4ForCausalLM", "the language model of Llama 4: experts that weigh what they read, chunks",
     build_llama4},
    {"gemma", "GemmaForCausalLM", "Gemma: Llama with GELU gates, scaled embeddings and factors of 1 + w in norms",
     build_gemma},
    {"gemma2", "Gemma2ForCausalLM", "Gemma 2: bounded scores and logits, a window in every second layer", build_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", "the language model of Gemma 3: five layers with a window to one without",
     build_gemma3},
    {"granite", "GraniteForCausalLM", "Granite 3: Llama with factors on embeddings, scores, residuals and logits",
     build_granite},
    {"mistral", "MistralForCausalLM", "Mistral: Llama with a sliding window", build_mistral},
    {"qwen2", "Qwen2ForCausalLM", "Qwen 2 and 2.5: Llama with biases on q, k and v", build_qwen2},
    {"qwen3", "Qwen3ForCausalLM", "Qwen 3: Llama with norms on q and k", build_qwen3},
    {"starcoder2", "Starcoder2ForCausalLM", "StarCoder 2: Mistral with layer norms, biases and no gates",
     build_starcoder2},
    {"mixtral", "MixtralForCausalLM", "Mixtral: Mistral with a mixture of experts", build_mixtral},
    {"qwen2_moe", "Qwen2MoeForCausalLM", "Qwen 2 mixture of experts with a gated shared expert", build_qwen2_moe},
    {"qwen3_moe", "Qwen3MoeForCausalLM", "Qwen 3 mixture of experts", build_qwen3_moe},
    {"deepseek_v2", "DeepseekV2ForCausalLM", "DeepSeek-V2: latent attention, shared experts", build_deepseek_v2},
    {"deepseek_v3", "DeepseekV3ForCausalLM", "DeepSeek-V3 and R1, without the multi-token prediction layer",
     build_deepseek_v3},
    {"vit", "ViTForImageClassification ViTModel", "vision transformer", build_vit},
    {"swin", "SwinForImageClassification", "Swin: shifted-window vision transformer", build_swin},
    {"dlrm", "DLRM", "deep learning recommendation model (our own configuration keys)", build_dlrm},
};

/// A key that changes what a network computes and that only some families here read, or none, unless it has the neutral
/// value or is off. Keys as in the configurations of transformers; families separated by spaces.
struct ForeignKey {
  std::string_view key, neutral, meaning, families = {};
};

constexpr ForeignKey kForeignKeys[] = {
    {"index_topk", "", "attention to the tokens that an indexer chooses (DeepSeek-V3.2)"},
    {"interleave_moe_layer_step", "1", "layers of experts between dense ones (Llama 4)", "llama4_text"},
    {"attention_chunk_size", "", "attention within chunks of the sequence (Llama 4)", "llama4_text"},
    {"no_rope_layers", "", "layers without positions (Llama 4, SmolLM 3)", "llama4_text"},
    {"attn_logit_softcapping", "", "bounded scores of attention (Gemma 2)", "gemma2"},
    {"final_logit_softcapping", "", "bounded logits (Gemma 2)", "gemma2 gemma3_text"},
    {"query_pre_attn_scalar", "", "scores of attention with a scale of their own (Gemma 2)", "gemma2 gemma3_text"},
    {"rope_local_base_freq", "", "two bases of rotary positions (Gemma 3)", "gemma3_text"},
    {"use_bidirectional_attention", "", "attention to what follows (EmbeddingGemma)"},
    {"embedding_multiplier", "1", "scaled embeddings (Granite)", "granite"},
    {"attention_multiplier", "", "scores of attention with a scale of their own (Granite)", "granite"},
    {"residual_multiplier", "1", "scaled residuals (Granite)", "granite"},
    {"logits_scaling", "1", "scaled logits (Granite)", "granite"},
    {"linear_num_key_heads", "", "layers of linear attention (Qwen3-Next)"},
};

bool is_off(const Node& value, std::string_view neutral) {
  if (value.kind == Node::Kind::List) return value.items.empty();
  if (value.kind != Node::Kind::Scalar) return value.kind == Node::Kind::Null;
  const auto number = parse_number(value.scalar);
  return value.scalar == "false" || (number && (*number == 0 || (!neutral.empty() && number == parse_number(neutral))));
}

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

bool is_among(std::string_view word, std::string_view list) {
  const auto all = words(list);
  return std::find(all.begin(), all.end(), word) != all.end();
}

/// Refuses networks that would be read as others, whatever family they say they are of.
void check_keys(const Node& config) {
  const Node* type = config.find("model_type");
  std::vector<Diagnostic> problems;
  for (const ForeignKey& k : kForeignKeys) {
    if (type != nullptr && is_among(type->scalar, k.families)) continue;
    if (const Node* value = config.find(k.key); value != nullptr && !is_off(*value, k.neutral))
      problems.push_back(at_key(*value, fmt::format("{}: no {} here has {}", k.key,
                                                    k.families.empty() ? "network" : "other network", k.meaning)));
  }
  if (!problems.empty()) throw UserError{in_file_order(std::move(problems))};
}

bool accepts(const FamilyEntry& family, std::string_view architecture) {
  return is_among(architecture, family.architectures);
}

/// `architectures[0]`; empty when there is none.
std::string first_architecture(const Node& config) {
  const Node* list = config.find("architectures");
  if (!list || list->kind == Node::Kind::Null) return {};
  if (list->kind != Node::Kind::List || list->items.empty() || list->items[0].kind != Node::Kind::Scalar)
    throw UserError{at(*list, "architectures must be a list of class names", "[\"LlamaForCausalLM\"]")};
  return list->items[0].scalar;
}

const FamilyEntry* family_named(std::string_view model_type) {
  for (const FamilyEntry& f : kFamilies)
    if (f.name == model_type) return &f;
  return nullptr;
}

const FamilyEntry* family_of_architecture(std::string_view architecture) {
  for (const FamilyEntry& f : kFamilies)
    if (accepts(f, architecture)) return &f;
  return nullptr;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const FamilyEntry& f : kFamilies) names.emplace_back(f.name);
  return names;
}

UserError unknown_family(const Node& where, const std::string& model_type) {
  Diagnostic d = unknown_name("model_type", model_type, family_names()).diagnostics().front();
  return UserError{at(where, d.message, d.hint)};
}

/// The family that `model_type` names; without that key the family of `architectures[0]`.
const FamilyEntry& find_family(const Node& config, const std::string& architecture) {
  const Node* type = config.find("model_type");
  if (type && type->kind == Node::Kind::Scalar) {
    if (const FamilyEntry* f = family_named(type->scalar)) return *f;
    throw unknown_family(*type, type->scalar);
  }
  if (const FamilyEntry* f = family_of_architecture(architecture)) return *f;
  throw UserError{at(config, "the configuration has no model_type",
                     fmt::format("known values: {}", fmt::join(family_names(), ", ")))};
}

/// The part that describes the language model: the document itself, or its `text_config`.
const Node& language_part(const Node& config) {
  const Node* text = config.find("text_config");
  if (!text || text->kind != Node::Kind::Map) return config;
  const Node* type = config.find("model_type");
  const bool is_known = type && type->kind == Node::Kind::Scalar && family_named(type->scalar);
  return is_known ? config : *text;
}

std::string model_name(const std::filesystem::path& file) {
  if (file.filename() != "config.json") return file.stem().string();
  const auto folder = std::filesystem::absolute(file).parent_path().filename().string();
  return folder.empty() ? "model" : folder;
}

}  // namespace

Model model_from_config(const Node& document, std::string_view name) {
  if (document.kind != Node::Kind::Map) throw UserError{at(document, "a model configuration must be a map of keys")};
  const Node& config = language_part(document);
  check_keys(config);
  std::string architecture = first_architecture(config);
  const FamilyEntry& family = find_family(config, architecture);
  if (architecture.empty()) architecture = words(family.architectures).front();
  if (!accepts(family, architecture))
    throw UserError{at(*config.find("architectures"),
                       fmt::format("architecture '{}' is not supported for model_type '{}'", architecture, family.name),
                       fmt::format("known architectures: {}", fmt::join(words(family.architectures), ", ")))};
  Model model;
  model.name = name;
  model.family = family.name;
  ConfigReader reader{config}, whole{document};
  model.dtype = (reader.find("dtype|torch_dtype") ? reader : whole).dtype();
  whole.hand_over(reader);
  family.build({reader, architecture}, model);
  return model;
}

std::string config_file(const std::string& path) {
  std::error_code ignored;
  const std::filesystem::path file{path};
  return std::filesystem::is_directory(file, ignored) ? (file / "config.json").string() : path;
}

Model load_model(const std::string& path) {
  const std::string file = config_file(path);
  return model_from_config(read_json(file), model_name(file));
}

std::vector<ModelFamily> model_families() {
  std::vector<ModelFamily> out;
  for (const FamilyEntry& f : kFamilies) out.push_back({f.name, f.summary});
  return out;
}

}  // namespace orrery
