// SPDX-License-Identifier: Apache-2.0
// BertForMaskedLM (no pooler, masked-language head) and BertModel (pooler, no head).
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

struct BertSettings {
  std::int64_t vocab, hidden, layers, heads, intermediate, positions, types;
  double epsilon, deviation;
  ActivationKind activation;
  bool tied;
};

BertSettings bert_settings(ConfigReader& c) {
  BertSettings s{};
  s.vocab = c.integer("vocab_size", 30522);
  s.hidden = c.integer("hidden_size", 768);
  s.layers = c.layers("num_hidden_layers", 12);
  s.heads = c.integer("num_attention_heads", 12, 1, ModelLimits::kHeads);
  s.intermediate = c.integer("intermediate_size", 3072);
  s.positions = c.integer("max_position_embeddings", 512);
  s.types = c.integer("type_vocab_size", 2);
  s.epsilon = c.real("layer_norm_eps", 1e-12, 0, 1);
  s.deviation = c.real("initializer_range", 0.02, 0, 10);
  s.activation = read_activation(c, "hidden_act", "gelu");
  s.tied = c.boolean("tie_word_embeddings", true);
  if (const std::string kind = c.text("position_embedding_type", "absolute"); kind != "absolute")
    c.problem("position_embedding_type", fmt::format("position_embedding_type '{}' is not supported", kind),
              "absolute");
  c.check_divides("num_attention_heads", s.heads, "hidden_size", s.hidden);
  c.finish();
  return s;
}

Attention build_attention(const BertSettings& s, const std::string& prefix, ParameterSet& p) {
  const std::int64_t head_dim = s.hidden / s.heads;
  const LinearOptions with_bias{.bias = true};
  Attention a{.heads = s.heads, .kv_heads = s.heads, .qk_dim = head_dim, .v_dim = head_dim, .causal = false};
  a.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  StandardAttention projections;
  projections.q = p.linear(prefix + "self.query", s.hidden, s.hidden, with_bias);
  projections.k = p.linear(prefix + "self.key", s.hidden, s.hidden, with_bias);
  projections.v = p.linear(prefix + "self.value", s.hidden, s.hidden, with_bias);
  a.out = p.linear(prefix + "output.dense", s.hidden, s.hidden, with_bias);
  a.projections = projections;
  return a;
}

Block build_block(const BertSettings& s, std::int64_t layer, const std::string& root, ParameterSet& p) {
  const std::string prefix = fmt::format("{}encoder.layer.{}.", root, layer);
  p.enter_block(layer);
  Block block{.pre_norm = false};
  block.attention = build_attention(s, prefix + "attention.", p);
  block.attention_norm = p.layer_norm(prefix + "attention.output.LayerNorm", s.hidden, s.epsilon);
  Mlp mlp{.activation = s.activation};
  mlp.up = p.linear(prefix + "intermediate.dense", s.hidden, s.intermediate, {.bias = true});
  mlp.down = p.linear(prefix + "output.dense", s.intermediate, s.hidden, {.bias = true});
  block.ffn = mlp;
  block.ffn_norm = p.layer_norm(prefix + "output.LayerNorm", s.hidden, s.epsilon);
  p.leave_block();
  return block;
}

void build_masked_head(const BertSettings& s, Transformer& t, ParameterSet& p) {
  t.head = Head::MaskedLanguageModel;
  t.tied = s.tied;
  t.output = {.in = s.hidden, .out = s.vocab};
  t.output.bias = p.vector("cls.predictions.bias", s.vocab, Init::Zeros);
  t.transform = p.linear("cls.predictions.transform.dense", s.hidden, s.hidden, {.bias = true});
  t.transform_norm = p.layer_norm("cls.predictions.transform.LayerNorm", s.hidden, s.epsilon);
  t.transform_activation = s.activation;
  t.output.weight = s.tied ? t.tokens->table : p.matrix("cls.predictions.decoder.weight", {s.vocab, s.hidden});
}

}  // namespace

void build_bert(const BuildInput& input, Model& model) {
  const BertSettings s = bert_settings(input.config);
  const bool is_bare = input.architecture == "BertModel";
  const std::string root = is_bare ? "" : "bert.";
  ParameterSet p{model, input.config.config(), s.deviation};
  Transformer t{.hidden = s.hidden, .max_positions = s.positions};
  t.tokens = p.embedding(root + "embeddings.word_embeddings", s.vocab, s.hidden);
  t.positions = p.embedding(root + "embeddings.position_embeddings", s.positions, s.hidden).table;
  t.token_types = p.embedding(root + "embeddings.token_type_embeddings", s.types, s.hidden).table;
  t.embedding_norm = p.layer_norm(root + "embeddings.LayerNorm", s.hidden, s.epsilon);
  for (std::int64_t i = 0; i < s.layers; ++i) t.encoder.push_back(build_block(s, i, root, p));
  if (is_bare) {
    t.head = Head::None;
    t.pooler = p.linear("pooler.dense", s.hidden, s.hidden, {.bias = true});
  } else {
    build_masked_head(s, t, p);
  }
  model.network = std::move(t);
}

}  // namespace orrery
