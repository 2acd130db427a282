// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/model_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>

#include "sim/base/option_error.hpp"

namespace orrery {
namespace {

/// Parameters of a network outside of its blocks that the head reads first.
std::vector<ParameterId> head_parameters(const Model& model) {
  std::vector<ParameterId> out;
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t) return out;
  const auto add = [&](ParameterId id) {
    if (!id.is_none()) out.push_back(id);
  };
  for (const auto* n : {&t->encoder_norm, &t->decoder_norm, &t->transform_norm})
    if (*n) {
      add((*n)->weight);
      add((*n)->bias);
    }
  for (const auto* l : {&t->project_out, &t->transform, &t->pooler})
    if (*l) {
      add((*l)->weight);
      add((*l)->bias);
    }
  add(t->output.weight);
  add(t->output.bias);
  return out;
}

/// A table of biases that all blocks of a stack share stands with the first of them in a checkpoint.
bool is_shared_bias(const Model& model, ParameterId id) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t) return false;
  for (const auto* stack : {&t->encoder, &t->decoder})
    if (!stack->empty() && stack->front().attention.relative_bias &&
        stack->front().attention.relative_bias->table == id)
      return true;
  return false;
}

template <class Test>
bool any_block(const Model& model, Test&& test) {
  const auto* t = std::get_if<Transformer>(&model.network);
  return t && (std::any_of(t->encoder.begin(), t->encoder.end(), test) ||
               std::any_of(t->decoder.begin(), t->decoder.end(), test));
}

}  // namespace

std::vector<ParameterId> feed_forward_parameters(const Block& b) {
  const auto& mlp = std::get<Mlp>(b.ffn);
  std::vector<ParameterId> out{b.ffn_norm.weight, b.ffn_norm.bias};
  if (b.ffn_out_norm) out.insert(out.end(), {b.ffn_out_norm->weight, b.ffn_out_norm->bias});
  for (const Linear* l : {mlp.gate ? &*mlp.gate : nullptr, &mlp.up, &mlp.down})
    if (l != nullptr) out.insert(out.end(), {l->weight, l->bias});
  std::erase_if(out, [](ParameterId id) { return id.is_none(); });
  return out;
}

const Block& block_of(const Transformer& t, int index) {
  const auto i = static_cast<std::size_t>(index);
  return i < t.encoder.size() ? t.encoder[i] : t.decoder[i - t.encoder.size()];
}

void for_each_experts(const Model& model, const std::function<void(int, const MoE&)>& f) {
  int block = 0;
  any_block(model, [&](const Block& b) {
    if (const auto* m = std::get_if<MoE>(&b.ffn)) f(block, *m);
    ++block;
    return false;
  });
}

bool has_experts(const Model& model) {
  return any_block(model, [](const Block& b) { return std::holds_alternative<MoE>(b.ffn); });
}

bool has_latents(const Model& model) {
  return any_block(model,
                   [](const Block& b) { return std::holds_alternative<LatentAttention>(b.attention.projections); });
}

bool weighs_inputs(const Model& model) {
  return any_block(model, [](const Block& b) {
    const auto* experts = std::get_if<MoE>(&b.ffn);
    return experts && experts->weighs_input;
  });
}

void check_meaning(const Model& model, const Roles& roles) {
  if (roles.ep && !has_experts(model))
    throw OptionError{
        {"mesh"}, fmt::format("{} has no experts for the ranks of ep", model.name), "use dp for replicas"};
}

std::vector<int> part_bounds(std::vector<std::int64_t> sizes, std::int64_t blocks, std::int64_t parts) {
  if (sizes.empty()) {
    if (parts > blocks)
      throw OptionError{{"mesh"},
                        fmt::format("{} parts of a pipeline are more than the model's {} blocks", parts, blocks),
                        fmt::format("stages times chunks can be at most {}", blocks)};
    for (std::int64_t k = 0; k < parts; ++k) sizes.push_back(blocks / parts + (k < blocks % parts ? 1 : 0));
  }
  const auto sum = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (static_cast<std::int64_t>(sizes.size()) != parts || sum != blocks ||
      std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n < 0; }))
    throw OptionError{{"stage_layers"},
                      fmt::format("stage_layers has {} entries that add up to {}", sizes.size(), sum),
                      fmt::format("it needs {} entries that add up to the model's {} blocks", parts, blocks)};
  std::vector<int> bounds{0};
  for (const std::int64_t n : sizes) bounds.push_back(bounds.back() + static_cast<int>(n));
  return bounds;
}

void check_pipeline(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  if (!t || !t->tokens || (!t->encoder.empty() && !t->decoder.empty()))
    throw OptionError{
        {"mesh"},
        fmt::format("{} is no single stack of blocks over tokens: it cannot be cut into stages", model.name),
        "leave the axis pp out"};
  if (t->ways)
    throw OptionError{
        {"mesh"}, fmt::format("layers of {} lie on ranks side by side", model.name), "leave the axis pp out"};
  if (t->head == Head::Classifier || t->head == Head::None)
    throw OptionError{{"mesh"}, fmt::format("{} has no language-model head", model.name), "leave the axis pp out"};
}

std::vector<ParameterId> parameters_of(const Model& model, int part) {
  const std::vector<ParameterId> head = head_parameters(model);
  std::vector<ParameterId> out;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterId id{i};
    const int layer = is_shared_bias(model, id) ? -1 : model.parameters[i].layer;
    const bool in_head = std::find(head.begin(), head.end(), id) != head.end();
    const bool fits = part >= 0 ? layer == part : layer < 0 && (part == kHeadPart) == in_head;
    if (fits) out.push_back(id);
  }
  // A tied table is the head's too.
  if (const auto* t = std::get_if<Transformer>(&model.network); t && part == kEmbeddingPart && t->tied)
    out.insert(out.begin(), t->output.weight);
  return out;
}

std::vector<HeldPart> whole_parts(const Model& model, std::int64_t passes) {
  HeldPart outside{kEmbeddingPart, 0, passes, {}};
  std::map<int, std::vector<ParameterId>> blocks;
  const auto* t = std::get_if<Transformer>(&model.network);
  const int num_blocks = t ? static_cast<int>(t->encoder.size() + t->decoder.size()) : INT_MAX;
  for (std::size_t i = 0; i < model.parameters.size(); ++i) {
    const ParameterId id{i};
    const int layer = is_shared_bias(model, id) ? -1 : model.parameters[i].layer;
    if (layer < num_blocks) (layer < 0 ? outside.parameters : blocks[layer]).push_back(id);
  }
  std::vector<HeldPart> out{std::move(outside)};
  for (auto& [layer, ids] : blocks) out.push_back({layer, 0, passes, std::move(ids)});
  return out;
}

std::span<const Block> blocks_of(const Model& model) {
  const auto* t = std::get_if<Transformer>(&model.network);
  const bool plain = t && t->tokens && (t->encoder.empty() || t->decoder.empty()) &&
                     (t->head == Head::LanguageModel || t->head == Head::MaskedLanguageModel);
  if (!plain) return {};
  return t->decoder.empty() ? t->encoder : t->decoder;
}

bool has_plain_attention(const Model& model) {
  const std::span<const Block> blocks = blocks_of(model);
  const auto has_more = [](const Block& b) {
    return b.attention.window || b.attention.relative_bias || b.attention.cap;
  };
  return !blocks.empty() && std::none_of(blocks.begin(), blocks.end(), has_more);
}

}  // namespace orrery
