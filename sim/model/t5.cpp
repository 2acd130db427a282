// SPDX-License-Identifier: Apache-2.0
// T5 1.0 (ReLU, tied head) and 1.1 (gated GELU, own head), and Switch Transformers: T5 with one expert per token in
// every n-th block. The relative position table stands in the first block of a
// stack and serves all of them. Blocks of the decoder are numbered on from those of the encoder in Parameter::layer.
#include <fmt/format.h>

#include <cmath>

#include "sim/model/families.hpp"
#include "sim/model/parameters.hpp"

namespace orrery {
namespace {

struct T5Settings {
  std::int64_t vocab, hidden, head_dim, ffn, encoder_layers, decoder_layers, heads, buckets, max_distance, positions;
  double epsilon, factor;
  ActivationKind activation;
  bool gated, tied;
  std::int64_t experts = 0, sparse_encoder = 0, sparse_decoder = 0;  // 0: no experts; blocks that have them
};

/// "relu", "gated-gelu": the part behind the dash is the activation; a gated "gelu" is the tanh form, as in
/// transformers.
void read_feed_forward(ConfigReader& c, T5Settings& s) {
  constexpr std::string_view kKey = "feed_forward_proj";
  constexpr std::string_view kGated = "gated-";
  std::string name = c.text(kKey, "relu");
  s.gated = name.rfind(kGated, 0) == 0;
  if (s.gated) name.erase(0, kGated.size());
  if (s.gated && name == "gelu") name = "gelu_new";
  s.activation = activation_named(c, kKey, name);
}

enum class Experts : std::uint8_t { None, Switch };

T5Settings t5_settings(ConfigReader& c, Experts experts) {
  T5Settings s{};
  s.vocab = c.integer("vocab_size", 32128);
  s.hidden = c.integer("d_model", 512);
  s.head_dim = c.integer("d_kv", 64, 1, ModelLimits::kHeadDimension);
  s.ffn = c.integer("d_ff", 2048);
  s.encoder_layers = c.layers("num_layers", 6);
  s.decoder_layers = c.layers("num_decoder_layers", s.encoder_layers);
  s.heads = c.integer("num_heads", 8, 1, ModelLimits::kHeads);
  s.buckets = c.integer("relative_attention_num_buckets", 32, 2);
  s.max_distance = c.integer("relative_attention_max_distance", 128);
  s.positions = c.integer("n_positions", 512);
  s.epsilon = c.real("layer_norm_epsilon", 1e-6, 0, 1);
  s.factor = c.real("initializer_factor", 1.0, 0, 1e3);
  s.tied = c.boolean("tie_word_embeddings", true);
  read_feed_forward(c, s);
  if (experts == Experts::Switch) {
    s.experts = c.integer("num_experts", 8, 1, ModelLimits::kExpertLayers);
    s.sparse_encoder = c.integer("num_sparse_encoder_layers", 3, 0, s.encoder_layers);
    s.sparse_decoder = c.integer("num_sparse_decoder_layers", 3, 0, s.decoder_layers);
  }
  c.finish();
  return s;
}

/// Builds the blocks of one stack; the bias table that the first one makes is kept for the others.
class StackBuilder {
 public:
  StackBuilder(const T5Settings& s, ParameterSet& p, bool is_decoder) : s_{s}, p_{p}, is_decoder_{is_decoder} {}

  Block block(std::int64_t index) {
    p_.enter_block(is_decoder_ ? s_.encoder_layers + index : index);
    const std::string prefix = fmt::format("{}.block.{}.layer.", stack(), index);
    Block b;
    b.attention = attention(prefix + "0.SelfAttention.");
    b.attention.causal = is_decoder_;
    if (!table_.is_none() || index == 0) b.attention.relative_bias = bias(prefix + "0.SelfAttention.");
    b.attention_norm = p_.rms_norm(prefix + "0.layer_norm", s_.hidden, s_.epsilon);
    if (is_decoder_) {
      b.cross = attention(prefix + "1.EncDecAttention.");
      b.cross_norm = p_.rms_norm(prefix + "1.layer_norm", s_.hidden, s_.epsilon);
    }
    const std::string ffn = prefix + (is_decoder_ ? "2." : "1.");
    if (is_sparse(index))
      b.ffn = experts(ffn + "mlp.");
    else
      b.ffn = feed_forward(ffn + (s_.experts > 0 ? "mlp." : "DenseReluDense."));
    b.ffn_norm = p_.rms_norm(ffn + "layer_norm", s_.hidden, s_.epsilon);
    p_.leave_block();
    return b;
  }

  Norm final_norm() { return p_.rms_norm(stack() + ".final_layer_norm", s_.hidden, s_.epsilon); }

 private:
  std::string stack() const { return is_decoder_ ? "decoder" : "encoder"; }
  double deviation(double fan) const { return s_.factor / std::sqrt(fan); }

  /// T5 does not scale the scores: its q starts smaller by 1/sqrt(head_dim) instead.
  Attention attention(const std::string& prefix) {
    const std::int64_t width = s_.heads * s_.head_dim;
    const double from_hidden = deviation(static_cast<double>(s_.hidden));
    Attention a{.heads = s_.heads, .kv_heads = s_.heads, .qk_dim = s_.head_dim, .v_dim = s_.head_dim, .causal = false};
    StandardAttention projections;
    const double q_deviation = from_hidden / std::sqrt(static_cast<double>(s_.head_dim));
    projections.q = p_.linear(prefix + "q", s_.hidden, width, {.deviation = q_deviation});
    projections.k = p_.linear(prefix + "k", s_.hidden, width, {.deviation = from_hidden});
    projections.v = p_.linear(prefix + "v", s_.hidden, width, {.deviation = from_hidden});
    a.out = p_.linear(prefix + "o", width, s_.hidden, {.deviation = deviation(static_cast<double>(width))});
    a.projections = projections;
    return a;
  }

  RelativeBias bias(const std::string& prefix) {
    if (table_.is_none())
      table_ = p_.matrix(prefix + "relative_attention_bias.weight", {s_.buckets, s_.heads},
                         deviation(static_cast<double>(s_.hidden)));
    return {.table = table_, .buckets = s_.buckets, .max_distance = s_.max_distance, .bidirectional = !is_decoder_};
  }

  /// Every n-th block, from the second on.
  bool is_sparse(std::int64_t index) const {
    const std::int64_t sparse = is_decoder_ ? s_.sparse_decoder : s_.sparse_encoder;
    const std::int64_t step = sparse > 0 ? (is_decoder_ ? s_.decoder_layers : s_.encoder_layers) / sparse : 0;
    return s_.experts > 0 && step > 0 && (step == 1 || index % step == 1);
  }

  /// A token visits the one expert of the largest probability, which weighs what comes out of it.
  MoE experts(const std::string& prefix) {
    MoE moe{.top_k = 1, .normalise = false};
    moe.router = p_.linear(prefix + "router.classifier", s_.hidden, s_.experts,
                           {.deviation = deviation(static_cast<double>(s_.hidden))});
    for (std::int64_t i = 0; i < s_.experts; ++i)
      moe.experts.push_back(feed_forward(fmt::format("{}experts.expert_{}.", prefix, i)));
    return moe;
  }

  Mlp feed_forward(const std::string& prefix) {
    const LinearOptions in{.deviation = deviation(static_cast<double>(s_.hidden))};
    Mlp mlp{.activation = s_.activation};
    if (s_.gated) mlp.gate = p_.linear(prefix + "wi_0", s_.hidden, s_.ffn, in);
    mlp.up = p_.linear(prefix + (s_.gated ? "wi_1" : "wi"), s_.hidden, s_.ffn, in);
    mlp.down = p_.linear(prefix + "wo", s_.ffn, s_.hidden, {.deviation = deviation(static_cast<double>(s_.ffn))});
    return mlp;
  }

  const T5Settings& s_;
  ParameterSet& p_;
  bool is_decoder_;
  ParameterId table_;
};

}  // namespace

namespace {

void build_stacks(const BuildInput& input, const T5Settings& s, Model& model) {
  ParameterSet p{model, input.config.config(), s.factor};
  Transformer t{.hidden = s.hidden, .max_positions = s.positions};
  t.tokens = p.embedding("shared", s.vocab, s.hidden);
  StackBuilder encoder{s, p, false}, decoder{s, p, true};
  for (std::int64_t i = 0; i < s.encoder_layers; ++i) t.encoder.push_back(encoder.block(i));
  t.encoder_norm = encoder.final_norm();
  for (std::int64_t i = 0; i < s.decoder_layers; ++i) t.decoder.push_back(decoder.block(i));
  t.decoder_norm = decoder.final_norm();
  t.tied = s.tied;
  t.output = s.tied ? Linear{.weight = t.tokens->table, .in = s.hidden, .out = s.vocab}
                    : p.linear("lm_head", s.hidden, s.vocab);
  if (s.tied) t.output_scale = 1.0 / std::sqrt(static_cast<double>(s.hidden));
  model.network = std::move(t);
}

}  // namespace

void build_t5(const BuildInput& input, Model& model) {
  build_stacks(input, t5_settings(input.config, Experts::None), model);
}

void build_switch(const BuildInput& input, Model& model) {
  build_stacks(input, t5_settings(input.config, Experts::Switch), model);
}

}  // namespace orrery
