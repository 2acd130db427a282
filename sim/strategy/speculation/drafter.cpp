// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/speculation/drafter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/base/option_error.hpp"
#include "sim/model/decoder.hpp"

namespace orrery {
namespace {

/// The width of the model's feed-forward networks; of experts, of those that one token passes.
std::int64_t intermediate_of(const Block& b) {
  if (const auto* m = std::get_if<Mlp>(&b.ffn)) return m->up.out;
  const auto& moe = std::get<MoE>(b.ffn);
  return moe.experts.front().up.out * moe.top_k;
}

class DrafterBuilder {
 public:
  DrafterBuilder(Model& model, const SpeculateOptions& o)
      : model_{model},
        o_{o},
        target_{std::get<Transformer>(model.network)},
        first_{model.parameters.size()},
        config_{Node::map()},
        set_{model, config_, 0.02} {
    d_.method = o.method;
    d_.output = target_.output;
    set_sizes();
  }

  Drafter build(std::int64_t depth) {
    switch (o_.method) {
      case DraftMethod::Draft:
      case DraftMethod::Glide:
        model_of_its_own();
        break;
      case DraftMethod::Skip:
        some_layers();
        break;
      case DraftMethod::Medusa:
      case DraftMethod::Hydra:
        add_heads(depth);
        break;
      case DraftMethod::Eagle:
      case DraftMethod::Eagle3:
        block_over_states();
        break;
      case DraftMethod::Clover:
        recurrent_cell(depth);
        break;
    }
    for (std::size_t i = first_; i < model_.parameters.size(); ++i)
      model_.parameters[i].name = "draft." + model_.parameters[i].name;
    return std::move(d_);
  }

 private:
  /// The model's sizes where the options leave them open.
  void set_sizes() {
    const Attention& a = target_.decoder.front().attention;
    const bool own_width = o_.method == DraftMethod::Draft || o_.method == DraftMethod::Glide;
    const auto or_else = [](std::int64_t asked, std::int64_t otherwise) { return asked > 0 ? asked : otherwise; };
    s_.vocab = target_.output.out;
    s_.hidden = own_width ? or_else(o_.network.hidden, target_.hidden) : target_.hidden;
    s_.heads = or_else(o_.network.heads, a.heads);
    s_.kv_heads = or_else(o_.network.kv_heads, o_.network.heads > 0 ? o_.network.heads : a.kv_heads);
    s_.intermediate = or_else(o_.network.intermediate, intermediate_of(target_.decoder.front()));
    s_.max_positions = target_.max_positions;
    if (s_.hidden % s_.heads != 0 || s_.heads % *s_.kv_heads != 0)
      throw OptionError{
          {"network.heads", "network.kv_heads", "network.hidden"},
          fmt::format("a drafter of width {} cannot have {} heads and {} of keys", s_.hidden, s_.heads, *s_.kv_heads),
          "the heads divide the width, those of keys the heads"};
    s_.head_dim = s_.hidden / s_.heads;
    Rope rope;
    for (std::int64_t i = 0; i < *s_.head_dim / 2; ++i)
      rope.inverse_frequencies.push_back(std::pow(s_.theta, -2.0 * double(i) / double(*s_.head_dim)));
    s_.layers = o_.network.layers;
    s_.windows.assign(static_cast<std::size_t>(s_.layers), std::nullopt);
    s_.ropes.assign(static_cast<std::size_t>(s_.layers), rope);
  }

  Block block(std::int64_t i) {
    const std::string prefix = fmt::format("layers.{}.", i);
    Block b;
    b.attention_norm = set_.rms_norm(prefix + "input_layernorm", s_.hidden, s_.epsilon);
    b.attention = build_grouped_attention(s_, i, prefix + "self_attn.", set_);
    b.ffn_norm = set_.rms_norm(prefix + "post_attention_layernorm", s_.hidden, s_.epsilon);
    b.ffn = build_gated_mlp(s_, s_.intermediate, prefix + "mlp.", set_);
    return b;
  }

  void model_of_its_own() {
    d_.tokens = set_.embedding("embed_tokens", s_.vocab, s_.hidden);
    for (std::int64_t i = 0; i < s_.layers; ++i) {
      d_.blocks.push_back(block(i));
      if (o_.method == DraftMethod::Glide) d_.cross.push_back(cross_read(i));
    }
    d_.norm = set_.rms_norm("norm", s_.hidden, s_.epsilon);
    d_.output = set_.linear("lm_head", s_.hidden, s_.vocab);
  }

  /// Block i of m reads the model's block i − m from the end.
  CrossRead cross_read(std::int64_t i) {
    const auto layer = static_cast<std::int64_t>(target_.decoder.size()) - s_.layers + i;
    if (layer < 0)
      throw OptionError{{"network.layers"},
                        fmt::format("a drafter of {} blocks reads more than the model has", s_.layers)};
    const Attention& of = target_.decoder[static_cast<std::size_t>(layer)].attention;
    if (!std::holds_alternative<StandardAttention>(of.projections))
      throw OptionError{{"method"},
                        fmt::format("{} keeps no keys and values that a drafter could read", model_.name),
                        "glide needs a model without latent attention"};
    const std::string prefix = fmt::format("layers.{}.", i);
    CrossRead c{.norm = set_.rms_norm(prefix + "cross_layernorm", s_.hidden, s_.epsilon),
                .attention = of,
                .layer = static_cast<int>(layer)};
    StandardAttention p;
    p.q = set_.linear(prefix + "cross_attn.q_proj", s_.hidden, of.heads * of.qk_dim);
    c.attention.projections = p;
    c.attention.out = set_.linear(prefix + "cross_attn.o_proj", of.heads * of.v_dim, s_.hidden);
    return c;
  }

  /// The first, the last and others evenly between them.
  void some_layers() {
    const auto all = static_cast<std::int64_t>(target_.decoder.size());
    if (s_.layers > all)
      throw OptionError{{"network.layers"},
                        fmt::format("{} blocks of {} cannot draft: it has {}", s_.layers, model_.name, all)};
    for (std::int64_t i = 0; i < s_.layers; ++i)
      d_.layers.push_back(static_cast<int>(s_.layers == 1 ? 0 : i * (all - 1) / (s_.layers - 1)));
  }

  void add_heads(std::int64_t depth) {
    const std::int64_t h = s_.hidden;
    for (std::int64_t i = 0; i < depth; ++i) {
      const std::int64_t inputs = o_.method == DraftMethod::Hydra ? h * (i + 2) : h;
      const std::string prefix = fmt::format("heads.{}.", i);
      DraftHead head{.residual = set_.linear(prefix + "linear", inputs, h, {.bias = true}), .output = d_.output};
      if (o_.method == DraftMethod::Medusa) head.output = set_.linear(prefix + "output", h, s_.vocab);
      d_.heads.push_back(head);
    }
  }

  void block_over_states() {
    const std::int64_t h = s_.hidden;
    if (o_.method == DraftMethod::Eagle3) {
      const auto n = static_cast<int>(target_.decoder.size());
      d_.taps = {std::min(2, n - 1), n / 2, n - 1};
      d_.fuse_states = set_.linear("fuse_states", 3 * h, h);
    }
    d_.fuse = set_.linear("fuse", 2 * h, h);
    for (std::int64_t i = 0; i < s_.layers; ++i) d_.blocks.push_back(block(i));
    if (o_.method != DraftMethod::Eagle3) return;
    d_.norm = set_.rms_norm("norm", h, s_.epsilon);
    const std::int64_t tokens = o_.network.vocabulary > 0 ? o_.network.vocabulary : s_.vocab;
    if (tokens > s_.vocab)
      throw OptionError{{"network.vocabulary"},
                        fmt::format("{} tokens cannot be drafted of a vocabulary of {}", tokens, s_.vocab)};
    d_.output = set_.linear("lm_head", h, tokens);
  }

  void recurrent_cell(std::int64_t depth) {
    const std::int64_t h = s_.hidden;
    if (target_.output.layout != WeightLayout::OutIn)
      throw OptionError{{"method"},
                        fmt::format("the output matrix of {} has no rows per token, which clover reads", model_.name)};
    for (std::int64_t i = 0; i < s_.layers; ++i) d_.blocks.push_back(block(i));
    DraftCell c{.heads = s_.heads};
    c.norm = set_.rms_norm("cell.norm", h, s_.epsilon);
    c.q = set_.linear("cell.q_proj", h, h), c.k = set_.linear("cell.k_proj", h, h);
    c.v = set_.linear("cell.v_proj", h, h);
    c.q_norm = set_.rms_norm("cell.q_norm", *s_.head_dim, s_.epsilon);
    c.k_norm = set_.rms_norm("cell.k_norm", *s_.head_dim, s_.epsilon);
    d_.cell = c;
    for (std::int64_t i = 0; i < depth; ++i)
      d_.heads.push_back({set_.linear(fmt::format("heads.{}.linear", i), h, h, {.bias = true}), d_.output});
  }

  Model& model_;
  const SpeculateOptions& o_;
  const Transformer target_;  // a copy: the model grows
  std::size_t first_;
  Node config_;
  ParameterSet set_;
  DecoderSettings s_;
  Drafter d_;
};

void check_model(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || t->decoder.empty() || !t->encoder.empty() || t->head != Head::LanguageModel)
    throw UserError{fmt::format("{} cannot be speculated with: it is no decoder of text", model.name)};
  if (t->ways)
    throw UserError{
        fmt::format("layers of {} are sub-layers side by side: drafts are verified by whole ones", model.name)};
  for (const Block& b : t->decoder)
    if (b.attention.window)
      throw UserError{
          fmt::format("{} attends within a window: token trees behind windows are not supported", model.name)};
}

}  // namespace

Drafter add_drafter(Model& model, const SpeculateOptions& options, std::int64_t depth) {
  check_model(model);
  return DrafterBuilder{model, options}.build(depth);
}

}  // namespace orrery
