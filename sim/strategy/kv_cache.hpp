// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/strategy/layers.hpp"

namespace orrery {

/// Makes the tensors of entry i of a cache: `store(name, sizes)` makes one whose last sizes are those of a token,
/// [heads, numbers] of keys ("k") and of values ("v"), or [numbers] of latent attention ("latent").
template <class Store>
void store_block(KvCache& cache, std::size_t i, const Attention& a, Store&& store) {
  if (const auto* l = std::get_if<LatentAttention>(&a.projections)) {
    cache.keys[i] = store("latent", Shape{l->kv_rank + l->rope_dim});
    return;
  }
  cache.keys[i] = store("k", Shape{a.kv_heads, a.qk_dim});
  cache.values[i] = store("v", Shape{a.kv_heads, a.v_dim});
}

/// [rows, capacity, sizes of a token …].
inline Shape cache_shape(std::int64_t rows, std::int64_t capacity, const Shape& token) {
  return token.rank == 1 ? Shape{rows, capacity, token[0]} : Shape{rows, capacity, token[0], token[1]};
}

}  // namespace orrery
