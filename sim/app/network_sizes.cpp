// SPDX-License-Identifier: Apache-2.0
#include "sim/app/network_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <span>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr NetworkSize kMeasured[] = {{12, 768},   {24, 1024},   {24, 1536},   {20, 2048},   {40, 2048}, {64, 2304},
                                     {53, 3072},  {72, 3072},   {50, 4096},   {60, 4096},   {78, 4096}, {90, 4096},
                                     {25, 8192},  {37, 8192},   {50, 8192},   {62, 8192},   {75, 8192}, {66, 9216},
                                     {96, 12288}, {120, 12288}, {137, 12288}, {128, 16384}, {90, 20480}};

/// What other families call what GPT-2 and Llama say; sizes of anything else are not known here.
constexpr std::string_view kFamilies[] = {"gpt2", "llama", "mistral", "mixtral", "qwen2", "qwen3", "opt"};
constexpr std::string_view kLayers[] = {"n_layer", "num_hidden_layers"}, kHidden[] = {"n_embd", "hidden_size"},
                           kHeads[] = {"n_head", "num_attention_heads"},
                           kInner[] = {"n_inner", "intermediate_size", "ffn_dim"},
                           kPositions[] = {"n_positions", "n_ctx", "max_position_embeddings"};

Node* find_one(Node& config, std::span<const std::string_view> keys) {
  for (const std::string_view key : keys)
    if (Node* n = config.find(key); n != nullptr && n->kind == Node::Kind::Scalar) return n;
  return nullptr;
}

std::int64_t integer(const Node& n) { return std::strtoll(n.scalar.c_str(), nullptr, 10); }

void set(Node* n, std::int64_t value) {
  if (n != nullptr) *n = Node::of(std::to_string(value));
}

void require_known_family(const Node& config) {
  const Node* family = config.find("model_type");
  if (family != nullptr && std::find(std::begin(kFamilies), std::end(kFamilies), family->scalar) != std::end(kFamilies))
    return;
  std::string known;
  for (const std::string_view f : kFamilies) known += fmt::format("{}{}", known.empty() ? "" : ", ", f);
  throw UserError{fmt::format("networks of the kind {} cannot be made larger and smaller",
                              family != nullptr ? in_quotes(family->scalar) : "that the configuration does not name"),
                  "kinds that can: " + known};
}

/// The number of heads that divides a width and leaves each as wide as before, or wider by as little as there is.
std::int64_t heads_of(std::int64_t hidden, std::int64_t head_width) {
  std::int64_t heads = std::max<std::int64_t>(1, hidden / head_width);
  while (hidden % heads != 0) --heads;
  return heads;
}

/// Without embeddings.
double parameters(NetworkSize s) { return 12 * double(s.layers) * double(s.hidden) * double(s.hidden); }

}  // namespace

std::vector<NetworkSize> network_sizes() {
  constexpr std::int64_t kSteps = 16;
  std::vector<NetworkSize> out;
  for (std::size_t i = 0; i < std::size(kMeasured); ++i) {
    out.push_back(kMeasured[i]);
    if (i + 1 == std::size(kMeasured)) break;
    const std::int64_t step = std::max<std::int64_t>(1, kMeasured[i].layers / kSteps);
    for (NetworkSize next = kMeasured[i]; next.layers += step, parameters(next) < parameters(kMeasured[i + 1]);)
      out.push_back(next);
  }
  return out;
}

Node with_size(const Node& config, NetworkSize size) {
  require_known_family(config);
  Node out = config;
  Node *layers = find_one(out, kLayers), *hidden = find_one(out, kHidden), *heads = find_one(out, kHeads);
  if (layers == nullptr || hidden == nullptr || heads == nullptr)
    throw UserError{"the configuration does not say how many layers and heads it has, and how wide it is",
                    "it needs num_hidden_layers, hidden_size and num_attention_heads, or n_layer, n_embd and n_head"};
  const std::int64_t old_width = integer(*hidden), old_heads = integer(*heads);
  const Node* fixed = out.find("head_dim");
  const std::int64_t new_heads = heads_of(
      size.hidden, fixed != nullptr && fixed->kind == Node::Kind::Scalar ? integer(*fixed) : old_width / old_heads);
  if (Node* inner = find_one(out, kInner)) {
    constexpr std::int64_t kTile = 64;
    const double scaled = double(integer(*inner)) * double(size.hidden) / double(old_width);
    set(inner, std::max<std::int64_t>(1, std::llround(scaled / double(kTile))) * kTile);
  }
  if (Node* kv = out.find("num_key_value_heads"))
    set(kv, std::gcd(new_heads, std::max<std::int64_t>(1, new_heads * integer(*kv) / old_heads)));
  if (Node* projected = out.find("word_embed_proj_dim"); projected != nullptr && integer(*projected) == old_width)
    set(projected, size.hidden);
  std::erase_if(out.fields, [](const auto& field) { return field.first == "layer_types"; });  // one for each layer
  set(layers, size.layers), set(hidden, size.hidden), set(heads, new_heads);
  return out;
}

Node with_positions(const Node& config, std::int64_t tokens) {
  Node out = config;
  for (const std::string_view key : kPositions)
    if (Node* n = out.find(key); n != nullptr && n->kind == Node::Kind::Scalar && integer(*n) < tokens) set(n, tokens);
  return out;
}

}  // namespace orrery
