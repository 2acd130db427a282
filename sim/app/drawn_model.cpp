// SPDX-License-Identifier: Apache-2.0
#include "sim/app/drawn_model.hpp"

namespace orrery {

Node map_of(std::initializer_list<std::pair<const char*, std::string>> fields) {
  Node map = Node::map();
  for (const auto& [key, value] : fields) map.fields.emplace_back(key, Node::of(value));
  return map;
}

Node config_of(const DrawnModel& m, std::int64_t positions) {
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (!m.llama)
    return map_of({{"model_type", "gpt2"},
                   {"n_embd", text(m.hidden)},
                   {"n_layer", text(m.layers)},
                   {"n_head", text(m.heads)},
                   {"n_positions", text(positions)},
                   {"vocab_size", text(m.vocab)}});
  return map_of({{"model_type", "llama"},
                 {"hidden_size", text(m.hidden)},
                 {"num_hidden_layers", text(m.layers)},
                 {"num_attention_heads", text(m.heads)},
                 {"num_key_value_heads", text(m.kv_heads)},
                 {"intermediate_size", text(m.ffn)},
                 {"max_position_embeddings", text(positions)},
                 {"vocab_size", text(m.vocab)}});
}

}  // namespace orrery
