// SPDX-License-Identifier: Apache-2.0
// Networks from the columns of a table, as configurations that the families of sim/model read.
#include <fmt/format.h>

#include <cmath>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr std::string_view kLayers = "num_hidden_layers", kPairLayers = "num_layers";
constexpr std::int64_t kGptVocabulary = 51200;  // of GPT-3's, padded; where a row has none
constexpr std::int64_t kHeadless = 64;          // stands for no vocabulary: encoders whose states are the result

/// BERT predicts the words that are masked, and submissions to MLPerf compute no other logits: as much work as a
/// vocabulary of that share costs over all tokens.
constexpr double kMasked = 0.15;

/// NeuSight's passes that infer with BERT sort sequences into two classes (AutoModelForSequenceClassification in its
/// neusight/Tracing/trace.py).
constexpr std::int64_t kClasses = 2;

/// Collects keys of a configuration.
class Config {
 public:
  Config(std::string_view type, std::string_view architecture) : node_{Node::map()} {
    set("model_type", type);
    Node list = Node::list();
    list.items.push_back(Node::of(architecture));
    node_.fields.emplace_back("architectures", std::move(list));
  }
  void set(std::string_view key, std::string_view value) {
    node_.fields.emplace_back(std::string{key}, Node::of(value));
  }
  void set(std::string_view key, std::int64_t value) { set(key, std::to_string(value)); }
  void set_null(std::string_view key) { node_.fields.emplace_back(std::string{key}, Node{}); }
  Node take() { return std::move(node_); }

 private:
  Node node_;
};

/// The sizes that all networks have.
struct Columns {
  std::int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, sequence;
};

/// Of "24+24" (encoder and decoder) those of one half.
std::int64_t layers_of(const CsvRow& row) {
  const std::vector<double> n = counts_in(row["layers"]);
  return n.empty() ? 0 : static_cast<std::int64_t>(n.front());
}

/// The positions that a row needs: of a sequence, or of a prompt and the tokens behind it.
std::int64_t sequence_of(const CsvRow& row) {
  if (const auto prompt = row.has("isl") ? row.integer("isl") : std::nullopt)
    return *prompt + row.integer("osl").value_or(0);
  const std::vector<double> n = counts_in(row[row.has("seq_len") ? "seq_len" : "seq"]);
  return n.empty() ? 0 : static_cast<std::int64_t>(n.front());
}

/// Networks whose feed-forward layers are four times as wide as the rest where a row does not say, with GPT-3's
/// vocabulary: those without gates, experts and a second half.
bool is_gpt(const CsvRow& row) {
  const std::string model = lower_case(row["model"]);
  const bool is_other = contains(model, "llama") || contains(model, "t5") || row.has("n_experts");
  return !is_other && !contains(lower_case(row["ffn_type"]), "swiglu");
}

/// Blocks that no network here has.
std::string_view unknown_blocks(const CsvRow& row) {
  const std::string model = lower_case(row["model"]);
  const auto is = [&](std::string_view part) { return contains(model, part); };
  if (contains(row["extra"], "hybrid_override_pattern") || is("mamba") || is("nemotron_3") || is("nemotron-h") ||
      is("nemotronh") || is("nemotron_h"))
    return "layers of Mamba";
  if (is("deepseek") && (is("v3.2") || is("v3_2") || is("v4"))) return "sparse attention";
  if (is("qwen3-next") || is("qwen3_next") || is("qwen3.5")) return "layers of linear attention";
  const bool is_pair = contains(row["layers"], "+") && !is("t5");
  return is_pair ? "encoder and decoder of another kind than T5" : std::string_view{};
}

std::variant<Columns, Skip> read_columns(const CsvRow& row) {
  Columns c{};
  c.layers = layers_of(row);
  c.sequence = sequence_of(row);
  const auto missing = [](std::string_view what) {
    return Skip{SkipReason::Incomplete, fmt::format("{} is empty", what)};
  };
  if (!row.has("layers") && !row.has("hidden")) return Skip{SkipReason::UnknownModel, "no size of it is in the row"};
  if (c.layers <= 0) return missing("layers");
  const std::pair<std::string_view, std::int64_t*> sizes[] = {
      {"hidden", &c.hidden}, {"heads", &c.heads}, {"ffn", &c.ffn}, {"vocab", &c.vocab}};
  for (const auto& [name, to] : sizes) {
    auto value = row.integer(name);
    const bool is_encoder = row["osl"] == "0";
    const bool is_default = !value && !row.has(name) && is_gpt(row);
    if (is_default && name == "ffn") value = 4 * c.hidden;
    if (is_default && name == "vocab") value = kGptVocabulary;
    if (name == "ffn" && !value) value = row.integer("moe_ffn");  // layers of experts only
    if (!row.has(name) && name == "vocab" && is_encoder) value = kHeadless;
    if (!value || *value <= 0) return missing(name);
    *to = *value;
  }
  if (contains(row["benchmark"], "bert")) c.vocab = std::llround(kMasked * double(c.vocab));
  if (contains(lower_case(row["model"]), "bert") && contains(row["mode"], "inference")) c.vocab = kClasses;
  c.kv_heads = row.integer("kv_heads").value_or(c.heads);
  c.head_dim = row.integer("head_dim").value_or(c.hidden / c.heads);
  return c;
}

void set_decoder(Config& c, const Columns& s) {
  c.set("vocab_size", s.vocab);
  c.set("hidden_size", s.hidden);
  c.set("intermediate_size", s.ffn);
  c.set("num_attention_heads", s.heads);
  c.set("num_key_value_heads", s.kv_heads);
  c.set("max_position_embeddings", std::max<std::int64_t>(s.sequence, 1));
  c.set("tie_word_embeddings", "false");
}

Node gpt(const Columns& s, bool is_opt) {
  Config c{"gpt2", "GPT2LMHeadModel"};
  c.set("vocab_size", s.vocab);
  c.set("n_positions", std::max<std::int64_t>(s.sequence, 1));
  c.set("hidden_size", s.hidden);
  c.set("num_attention_heads", s.heads);
  c.set("n_inner", s.ffn);
  if (is_opt) c.set("activation_function", "relu");
  return c.take();
}

Node bert(const Columns& s) {
  Config c{"bert", "BertForMaskedLM"};
  c.set("vocab_size", s.vocab);
  c.set("max_position_embeddings", std::max<std::int64_t>(s.sequence, 1));
  c.set("hidden_size", s.hidden);
  c.set("num_attention_heads", s.heads);
  c.set("intermediate_size", s.ffn);
  return c.take();
}

Node t5(const Columns& s) {
  Config c{"t5", "T5ForConditionalGeneration"};
  c.set("vocab_size", s.vocab);
  c.set("d_model", s.hidden);
  c.set("d_kv", s.head_dim);
  c.set("d_ff", s.ffn);
  c.set("num_heads", s.heads);
  c.set("feed_forward_proj", "gated-gelu");
  return c.take();
}

Node llama(const Columns& s) {
  Config c{"llama", "LlamaForCausalLM"};
  set_decoder(c, s);
  c.set("head_dim", s.head_dim);
  return c.take();
}

/// Nemotron: rotary positions, grouped-query attention and feed-forward layers without a gate, as StarCoder 2 has them.
/// ReLU stands for its square, which is as much work, and all of a head is turned in place of half.
Node starcoder(const Columns& s) {
  Config c{"starcoder2", "Starcoder2ForCausalLM"};
  set_decoder(c, s);
  c.set("hidden_act", "relu");
  c.set("use_bias", "false");
  c.set_null("sliding_window");
  c.set("head_dim", s.head_dim);
  return c.take();
}

/// DeepSeek-V2 and V3, and those that are built like them.
bool has_latents(const CsvRow& row) {
  const std::string model = lower_case(row["model"]);
  const bool is_named = contains(model, "deepseek") || contains(model, "kimi") || contains(model, "moonlight");
  return is_named || contains(row["extra"], "kv_lora_rank");
}

/// Experts in every second layer; those between are as wide as `ffn` says, else as a layer's experts of two: 16384
/// beside 8192. Chunks of 8192 tokens, every fourth layer without positions.
Node maverick(const Columns& s, std::int64_t count, std::int64_t top, std::int64_t inner) {
  Config c{"llama4_text", "Llama4ForCausalLM"};
  Columns as_experts = s;
  as_experts.ffn = inner;
  set_decoder(c, as_experts);
  c.set("head_dim", s.head_dim);
  c.set("intermediate_size_mlp", s.ffn > inner ? s.ffn : 2 * inner);
  c.set("interleave_moe_layer_step", std::int64_t{2});
  c.set("num_local_experts", count);
  c.set("num_experts_per_tok", top);
  c.set("use_qk_norm", "false");
  return c.take();
}

/// Layers of experts only: dense ones in front do as much work per token. But for Llama 4 Maverick.
NetworkOfRow experts(const CsvRow& row, const Columns& s) {
  const auto count = row.integer("n_experts"), top = row.integer("moe_topk"), inner = row.integer("moe_ffn");
  if (!count || !top || !inner || *count < 1 || *top < 1 || *inner < 1)
    return Skip{SkipReason::Incomplete, "n_experts, moe_topk or moe_ffn is empty"};
  if (contains(lower_case(row["model"]), "maverick")) return RowNetwork{maverick(s, *count, *top, *inner), s.layers};
  const bool latent = has_latents(row);
  const std::int64_t shared = row.integer("n_shared_experts").value_or(0);
  Config c = latent       ? Config{"deepseek_v3", "DeepseekV3ForCausalLM"}
             : shared > 0 ? Config{"qwen2_moe", "Qwen2MoeForCausalLM"}
                          : Config{"qwen3_moe", "Qwen3MoeForCausalLM"};
  set_decoder(c, s);
  c.set("moe_intermediate_size", *inner);
  c.set("num_experts_per_tok", *top);
  c.set("norm_topk_prob", "true");
  if (latent) {
    c.set("n_routed_experts", *count);
    c.set("n_shared_experts", shared);
    c.set("first_k_dense_replace", std::int64_t{0});
    if (s.hidden > 4096)
      c.set("q_lora_rank", std::int64_t{1536});
    else
      c.set_null("q_lora_rank");  // DeepSeek-V2-Lite and Moonlight
    c.set("kv_lora_rank", std::int64_t{512});
    c.set("qk_nope_head_dim", std::int64_t{128});
    c.set("qk_rope_head_dim", std::int64_t{64});
    c.set("v_head_dim", std::int64_t{128});
    c.set("n_group", std::int64_t{1});
    c.set("topk_group", std::int64_t{1});
  } else {
    c.set("num_experts", *count);
    c.set("head_dim", s.head_dim);
    if (shared > 0) c.set("qkv_bias", "false"), c.set("shared_expert_intermediate_size", shared * *inner);
  }
  return RowNetwork{c.take(), s.layers};
}

}  // namespace

Model RowNetwork::model(std::int64_t n) const {
  Node with_layers = config;
  const bool is_pair = config.find("d_kv") != nullptr;  // of both halves
  with_layers.fields.emplace_back(std::string{is_pair ? kPairLayers : kLayers}, Node::of(std::to_string(n)));
  return model_from_config(with_layers, "row");
}

NetworkOfRow read_network(const CsvRow& row) {
  if (const std::string_view blocks = unknown_blocks(row); !blocks.empty())
    return Skip{SkipReason::UnknownModel, std::string{blocks}};
  const auto read = read_columns(row);
  if (const auto* skip = std::get_if<Skip>(&read)) return *skip;
  const Columns& s = std::get<Columns>(read);
  const std::string model = lower_case(row["model"]), ffn = lower_case(row["ffn_type"]);
  if (row.has("n_experts")) return experts(row, s);
  if (contains(ffn, "swiglu") || contains(model, "llama")) return RowNetwork{llama(s), s.layers};
  if (contains(ffn, "relu2")) return RowNetwork{starcoder(s), s.layers};
  if (contains(model, "t5")) return RowNetwork{t5(s), s.layers};
  if (s.hidden % s.heads != 0) return Skip{SkipReason::UnknownModel, "heads do not divide the hidden size"};
  return RowNetwork{contains(model, "bert") ? bert(s) : gpt(s, contains(model, "opt")), s.layers};
}

}  // namespace orrery
