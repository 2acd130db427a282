// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/base/ids.hpp"

namespace orrery {

struct ParameterTag;
using ParameterId = Id<ParameterTag>;

/// How a weight of a linear layer lies in memory: Hugging Face's Linear is OutIn (y = x·Wᵀ), GPT-2's Conv1D is InOut
/// (y = x·W).
enum class WeightLayout : std::uint8_t { OutIn, InOut };

/// How a parameter starts when no weights are loaded.
enum class Init : std::uint8_t { Zeros, Ones, Normal };

/// One trainable tensor, under the name it has in the Hugging Face checkpoint.
struct Parameter {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;
  Init init = Init::Normal;
  double deviation = 0.02;  // of Init::Normal
  bool decay = true;        // weight decay applies (matrices yes; norms and biases no)
  int layer = -1;           // block it belongs to, -1 outside the blocks
  std::int64_t elements() const;
};

struct Linear {
  ParameterId weight, bias;  // bias may be none
  std::int64_t in = 0, out = 0;
  WeightLayout layout = WeightLayout::OutIn;
};

/// RmsOnePlus: RMSNorm whose factors are 1 + weight (Gemma).
enum class NormKind : std::uint8_t { Layer, Rms, RmsOnePlus };
struct Norm {
  NormKind kind = NormKind::Layer;
  ParameterId weight, bias;  // bias is none for RMSNorm, which may have no weight either
  std::int64_t dim = 0;
  double epsilon = 1e-5;
};

enum class ActivationKind : std::uint8_t { Relu, GeluTanh, GeluErf, Silu, Tanh, QuickGelu, Sigmoid };

/// Rotary position embedding: the inverse frequencies (rot/2 of them, scaling already applied) and the pairing of
/// dimensions.
struct Rope {
  std::vector<double> inverse_frequencies;
  bool interleaved = false;       // pairs (2i, 2i+1) instead of (i, i + rot/2)
  double attention_factor = 1.0;  // yarn's factor on cos and sin
  bool operator==(const Rope&) const = default;
};

/// Scores of a query grow with its position p, counted from 0: by 1 + scale·ln(1 + ⌊(p + 1)/span⌋) (Llama 4, arXiv
/// 2501.19399).
struct ScoreGrowth {
  double scale = 0, span = 1;
  bool operator==(const ScoreGrowth&) const = default;
};

/// Additive attention bias read from a table by a bucket of the relative position (T5: buckets by distance, Swin: by
/// 2-D offset).
struct RelativeBias {
  ParameterId table;  // [buckets, heads]
  std::int64_t buckets = 0;
  std::int64_t max_distance = 128;  // T5
  bool bidirectional = true;        // T5 encoder
};

struct StandardAttention {
  bool fused = false;  // one qkv projection (GPT-2); else q, k and v
  Linear qkv, q, k, v;
  std::optional<Norm> q_norm, k_norm;  // per head (Qwen3; Llama 4 without weights)
};

/// Multi-head latent attention (DeepSeek-V2/V3): the cache holds kv_rank + rope_dim numbers per token.
struct LatentAttention {
  std::optional<Linear> q_down;  // absent: q_up projects from hidden
  std::optional<Norm> q_norm;
  Linear q_up;     // → heads·(nope_dim + rope_dim)
  Linear kv_down;  // → kv_rank + rope_dim
  Norm kv_norm;
  Linear kv_up;  // kv_rank → heads·(nope_dim + v_dim)
  std::int64_t kv_rank = 0, nope_dim = 0, rope_dim = 0;
};

struct Attention {
  std::variant<StandardAttention, LatentAttention> projections;
  Linear out;
  std::int64_t heads = 0, kv_heads = 0;
  std::int64_t qk_dim = 0, v_dim = 0;  // per head
  double scale = 1.0;                  // on q·k
  bool causal = true;
  std::optional<std::int64_t> window;  // sliding window, in tokens
  bool chunked = false;                // the windows lie side by side instead (Llama 4)
  std::optional<Rope> rope;
  std::optional<ScoreGrowth> growth;
  std::optional<double> cap;  // scores become cap·tanh(score/cap), before masks (Gemma 2)
  std::optional<RelativeBias> relative_bias;
};

struct Mlp {
  std::optional<Linear> gate;  // present: y = down(act(gate(x)) · up(x))
  Linear up, down;
  ActivationKind activation = ActivationKind::GeluTanh;
};

enum class RouterScore : std::uint8_t { Softmax, Sigmoid };
struct MoE {
  Linear router;               // hidden → experts
  ParameterId selection_bias;  // DeepSeek-V3's e_score_correction_bias; may be none
  std::vector<Mlp> experts;    // all of one shape
  std::optional<Mlp> shared;
  std::optional<Linear> shared_gate;  // Qwen2-MoE: sigmoid gate on the shared expert
  std::int64_t top_k = 2;
  RouterScore score = RouterScore::Softmax;
  bool normalise = true;      // the chosen weights sum to one
  bool weighs_input = false;  // experts read rows that are multiplied by their weights, and what they give is added up
  double scaling = 1.0;
  std::int64_t groups = 1, top_groups = 1;  // group-limited choice
};

/// A transformer block: attention, optional cross-attention, feed-forward; each with its norm before (pre) or after
/// (post). What a half adds to the residual may have a norm (Gemma 2) and a factor (Granite) of its own.
struct Block {
  Norm attention_norm, ffn_norm;
  std::optional<Norm> cross_norm;
  std::optional<Norm> attention_out_norm, ffn_out_norm;
  double residual_scale = 1.0;
  Attention attention;
  std::optional<Attention> cross;
  std::variant<Mlp, MoE> ffn;
  bool pre_norm = true;
};

struct TokenEmbedding {
  ParameterId table;  // [vocab, dim]
  std::int64_t vocab = 0, dim = 0;
};

/// What comes out at the end of a network. None: the hidden states themselves (BertModel, ViTModel).
enum class Head : std::uint8_t { LanguageModel, MaskedLanguageModel, Classifier, None };

/// Layers that are sub-layers side by side (Kraken, arXiv 2408.07802): each has attention, a feed-forward layer and a
/// residual stream of its own, `hidden` wide. Blocks give the sizes of one sub-layer; parameters of all of them lie in
/// one tensor, one below another.
struct Ways {
  std::int64_t count = 1;
  Linear merge;  // of one sub-layer: what comes out of all of them is projected and added up
};

/// GPT-2, OPT, Llama, Mistral, Qwen, Mixtral, DeepSeek, BERT, T5 and ViT: stacks of blocks over a sequence of vectors.
struct Transformer {
  std::int64_t hidden = 0;
  std::int64_t max_positions = 0;
  // input
  std::optional<TokenEmbedding> tokens;
  double embedding_scale = 1.0;        // Gemma: hidden^0.5; Granite
  ParameterId positions;               // [positions (+offset), hidden]; none with rotary or relative positions
  std::int64_t position_offset = 0;    // OPT: 2
  ParameterId token_types;             // BERT
  std::optional<Norm> embedding_norm;  // BERT
  std::optional<Linear> project_in, project_out;  // OPT-350m
  // vision input (ViT)
  std::optional<Linear> patches;  // conv weight as [hidden, channels·patch·patch]
  ParameterId class_token;
  std::int64_t image_size = 0, patch_size = 0, channels = 0;
  // body
  std::vector<Block> encoder;  // BERT, T5 encoder, ViT; empty for decoder-only
  std::vector<Block> decoder;  // GPT-like; T5 decoder with cross-attention
  std::optional<Norm> encoder_norm, decoder_norm;
  std::optional<Ways> ways;
  // head
  Head head = Head::LanguageModel;
  std::optional<Linear> pooler;     // BERT: tanh over the first token
  std::optional<Linear> transform;  // BERT's masked-LM head: dense, activation, norm
  std::optional<Norm> transform_norm;
  ActivationKind transform_activation = ActivationKind::GeluErf;
  Linear output;                    // weight may be the token table (tied)
  double output_scale = 1.0;        // T5 with tied embeddings: hidden^-0.5; Granite
  std::optional<double> logit_cap;  // logits become cap·tanh(logit/cap) (Gemma 2)
  bool tied = false;
};

/// Shifted-window vision transformer. Attention inside windows of window×window patches, shifted in every second block.
struct SwinStage {
  std::vector<Block> blocks;
  std::int64_t dim = 0, heads = 0, resolution = 0;  // resolution: patches per side at the input of the stage
  std::optional<Norm> merge_norm;                   // patch merging behind the stage: 4·dim → 2·dim
  std::optional<Linear> merge;
};
struct Swin {
  std::int64_t image_size = 0, patch_size = 0, channels = 0, window = 0;
  Linear patches;
  std::optional<Norm> patch_norm;
  std::vector<SwinStage> stages;
  Norm final_norm;
  Linear classifier;
};

/// Deep learning recommendation model: dense features through a bottom MLP, embedding bags, pairwise dots, top MLP, one
/// logit.
struct Dlrm {
  std::int64_t dense_features = 0;
  std::vector<Linear> bottom, top;  // relu between; the last of `top` feeds a sigmoid
  std::vector<TokenEmbedding> tables;
  std::int64_t lookups_per_table = 1;
  std::int64_t dim = 0;
};

/// A neural network as layers and tensors: everything resolved, nothing left to defaults.
struct Model {
  std::string name;          // file or folder name
  std::string family;        // "gpt2", "llama", "t5", …: model_type
  DType dtype = DType::F32;  // of the checkpoint
  std::vector<Parameter> parameters;
  std::variant<Transformer, Swin, Dlrm> network;

  const Parameter& operator[](ParameterId id) const { return parameters[id.index()]; }
  std::int64_t parameter_count() const;
  /// Parameters that work on one token: experts that are not chosen are left out.
  std::int64_t active_parameter_count() const;
};

}  // namespace orrery
