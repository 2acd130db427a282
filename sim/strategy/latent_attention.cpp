// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "sim/base/option_error.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {

/// Multi-head latent attention. Training and prefill expand keys and values per head; decoding attends to the latent
/// cache itself (absorbed_attention), so a token costs kv_rank + rope_dim numbers of cache and no expansion.
TensorId Layers::latent_attention(std::string_view name, TensorId x, const Attention& a, const LatentAttention& l,
                                  KvCache* cache, int block) {
  if (packed_) throw OptionError{{"packing"}, "rows of latent attention cannot be packed", "leave packing out"};
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };
  const std::int64_t n = rows(), head = l.nope_dim + l.rope_dim, latent_width = l.kv_rank + l.rope_dim;
  TensorId q_in = x;
  if (l.q_down) {
    q_in = linear(part("q_down"), x, outer_rows(), *l.q_down);
  }
  q_in = enter(part("q"), q_in);
  if (l.q_down) {
    if (l.q_norm) q_in = norm(part("q_norm"), q_in, n, *l.q_norm);
  }
  TensorId q;
  {
    const RecomputeScope scope{tape_, l.q_down && recomputes(RecomputePart::Latents)};
    q = linear(part("q"), q_in, n, l.q_up);
    if (a.rope) rotate(part("rope_q"), q, *a.rope, a.heads, head, l.nope_dim, a.heads * head);
  }
  const TensorId latent = enter(part("latent"), linear(part("kv_down"), x, outer_rows(), l.kv_down));
  if (a.rope) rotate(part("rope_k"), latent, *a.rope, 1, latent_width, l.kv_rank, latent_width);
  const auto matrix = [&](TensorId t, std::int64_t count, std::int64_t cols, std::int64_t stride, std::int64_t offset) {
    return tape_.view(t, tape_.plan().name_of(t),
                      Layout{.shape = Shape{count, cols}, .strides = {stride, 1}, .offset = offset});
  };
  const TensorId compressed = norm(part("kv_norm"), matrix(latent, n, l.kv_rank, latent_width, 0), n, l.kv_norm);
  const TensorId shared_key = matrix(latent, n, l.rope_dim, latent_width, l.kv_rank);
  if (cache && sizes_.cache_use != CacheUse::None) {
    const TensorId store = cache->keys[static_cast<std::size_t>(block)];
    const std::int64_t begin = tape_.plan().layouts[tape_.plan().tensors[store.index()].layout.index()].offset;
    const auto column = [&](std::int64_t cols, std::int64_t offset) {
      return tape_.view(store, part("cache"),
                        Layout{.shape = Shape{sizes_.batch, cache->capacity, cols},
                               .strides = {cache->capacity * latent_width, latent_width, 1},
                               .offset = begin + offset});
    };
    if (sizes_.cache_use == CacheUse::Paged) {
      store_rows(part("cache_latent"), compressed, column(l.kv_rank, 0), l.kv_rank);
      store_rows(part("cache_rope"), shared_key, column(l.rope_dim, l.kv_rank), l.rope_dim);
      return project_back(part("out"), absorbed_attention(name, q, a, l, store, cache->capacity), a.out);
    }
    append_rows(part("cache_latent"), compressed, column(l.kv_rank, 0), l.kv_rank, cache->capacity);
    append_rows(part("cache_rope"), shared_key, column(l.rope_dim, l.kv_rank), l.rope_dim, cache->capacity);
    if (sizes_.cache_use != CacheUse::Fill)
      return project_back(part("out"), absorbed_attention(name, q, a, l, store, cache->capacity), a.out);
  }
  const Projected p = expand_latents(name, q, compressed, shared_key, a, l);
  return project_back(part("out"), attend(name, p, a, sizes_.batch, sizes_.sequence, Extent{sizes_.sequence}, false),
                      a.out);
}

/// Keys and values per head from the latents, and the rotated key that all heads share.
Layers::Projected Layers::expand_latents(std::string_view name, TensorId q, TensorId compressed, TensorId shared_key,
                                         const Attention& a, const LatentAttention& l) {
  const RecomputeScope scope{tape_, recomputes(RecomputePart::Latents)};
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };
  const std::int64_t n = rows(), head = l.nope_dim + l.rope_dim, up_width = l.nope_dim + a.v_dim;
  const auto matrix = [&](TensorId t, std::int64_t cols, std::int64_t stride, std::int64_t offset) {
    return tape_.view(t, tape_.plan().name_of(t),
                      Layout{.shape = Shape{n * a.heads, cols}, .strides = {stride, 1}, .offset = offset});
  };
  const TensorId kv = linear(part("kv_up"), compressed, n, l.kv_up);  // per head: nope_dim of key, v_dim of value
  const TensorId k = activation_tensor(part("k"), Shape{n, a.heads * head});
  tape_.add(part("k_nope"), CopyRows{n * a.heads, l.nope_dim, sizes_.dtype},
            {reads(matrix(kv, l.nope_dim, up_width, 0)), writes(matrix(k, l.nope_dim, head, 0))});
  const Layout rope_part{
      .shape = Shape{n, a.heads, l.rope_dim}, .strides = {a.heads * head, head, 1}, .offset = l.nope_dim};
  tape_.add(part("k_rope"), BroadcastHeads{n, a.heads, l.rope_dim, sizes_.dtype},
            {reads(shared_key), writes(tape_.view(k, part("k"), rope_part))});
  const auto heads = [&](TensorId t, std::int64_t dim, std::int64_t stride, std::int64_t offset) {
    return heads_view(t, sizes_.batch, sizes_.sequence, a.heads, dim, stride, offset);
  };
  if (!sizes_.copied_values)
    return {heads(q, head, head, 0), heads(k, head, head, 0), heads(kv, a.v_dim, up_width, l.nope_dim)};
  const TensorId v = activation_tensor(part("v"), Shape{n, a.heads * a.v_dim});
  tape_.add(part("v"), CopyRows{n * a.heads, a.v_dim, sizes_.dtype},
            {reads(matrix(kv, a.v_dim, up_width, l.nope_dim)), writes(matrix(v, a.v_dim, a.v_dim, 0))});
  return {heads(q, head, head, 0), heads(k, head, head, 0), heads(v, a.v_dim, a.v_dim, 0)};
}

/// score = (q_nope·W_k)·c + q_rope·k_rope and o = (p·c)·W_v: all heads share the cache [c | k_rope] as one key and
/// value head.
TensorId Layers::absorbed_attention(std::string_view name, TensorId q, const Attention& a, const LatentAttention& l,
                                    TensorId cache, std::int64_t capacity) {
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };
  const std::int64_t n = rows(), head = l.nope_dim + l.rope_dim, width = l.kv_rank + l.rope_dim,
                     up = l.nope_dim + a.v_dim;
  const auto view = [&](TensorId t, Layout layout) { return tape_.view(t, tape_.plan().name_of(t), layout); };
  const TensorId w = weight(l.kv_up.weight);  // [heads·(nope + v), kv_rank]
  const TensorId q_abs = activation_tensor(part("q_absorbed"), Shape{n, a.heads * width});
  Gemm product{.m = n, .batch = a.heads, .dtype = sizes_.dtype, .weights = quantised_weights()};
  product.n = l.kv_rank, product.k = l.nope_dim;
  tape_.add(
      part("q_absorb"), product,
      {reads(view(q, {.shape = Shape{a.heads, n, l.nope_dim}, .strides = {head, a.heads * head, 1}, .offset = 0})),
       reads(view(
           w,
           {.shape = Shape{a.heads, l.nope_dim, l.kv_rank}, .strides = {up * l.kv_rank, l.kv_rank, 1}, .offset = 0})),
       writes(
           view(q_abs, {.shape = Shape{a.heads, n, l.kv_rank}, .strides = {width, a.heads * width, 1}, .offset = 0}))});
  tape_.add(
      part("q_rope"), CopyRows{n * a.heads, l.rope_dim, sizes_.dtype},
      {reads(view(q, {.shape = Shape{n * a.heads, l.rope_dim}, .strides = {head, 1}, .offset = l.nope_dim})),
       writes(view(q_abs, {.shape = Shape{n * a.heads, l.rope_dim}, .strides = {width, 1}, .offset = l.kv_rank}))});
  Attention shared = a;
  shared.kv_heads = 1;
  shared.qk_dim = width;
  shared.v_dim = l.kv_rank;
  const std::int64_t begin = tape_.plan().layouts[tape_.plan().tensors[cache.index()].layout.index()].offset;
  const auto cache_view = [&](std::int64_t dim) {
    return view(cache, {.shape = Shape{sizes_.batch, capacity, 1, dim},
                        .strides = {capacity * width, width, width, 1},
                        .offset = begin});
  };
  const Projected p{heads_view(q_abs, sizes_.batch, sizes_.sequence, a.heads, width, width, 0), cache_view(width),
                    cache_view(l.kv_rank)};
  const TensorId o = sizes_.cache_use == CacheUse::Paged
                         ? paged_attention(name, p, shared)
                         : attend(name, p, shared, sizes_.batch, sizes_.sequence, cached_keys(), false);
  const TensorId out = activation_tensor(part("v_absorbed"), Shape{n, a.heads * a.v_dim});
  product.n = a.v_dim, product.k = l.kv_rank, product.transpose_b = true;
  tape_.add(
      part("v_absorb"), product,
      {reads(view(
           o, {.shape = Shape{a.heads, n, l.kv_rank}, .strides = {l.kv_rank, a.heads * l.kv_rank, 1}, .offset = 0})),
       reads(view(w, {.shape = Shape{a.heads, a.v_dim, l.kv_rank},
                      .strides = {up * l.kv_rank, l.kv_rank, 1},
                      .offset = l.nope_dim * l.kv_rank})),
       writes(
           view(out, {.shape = Shape{a.heads, n, a.v_dim}, .strides = {a.v_dim, a.heads * a.v_dim, 1}, .offset = 0}))});
  return out;
}

}  // namespace orrery
