// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "sim/base/option_error.hpp"
#include "sim/strategy/indices.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {

/// What pairs of numbers turn by: a table of cosines and one of sines by position.
struct Layers::Turns {
  std::string name;
  std::int64_t pairs = 0;
  bool interleaved = false;
  std::function<double(std::int64_t position, std::int64_t pair, bool sine)> value;

  std::vector<double> table(const std::vector<std::int64_t>& positions, bool sine) const {
    std::vector<double> out;
    out.reserve(positions.size() * static_cast<std::size_t>(pairs));
    for (const std::int64_t p : positions)
      for (std::int64_t i = 0; i < pairs; ++i) out.push_back(value(p, i, sine));
    return out;
  }
};

TensorId Layers::heads_view(TensorId x, std::int64_t batch, std::int64_t sequence, std::int64_t heads, std::int64_t dim,
                            std::int64_t head_stride, std::int64_t offset) {
  const Layout& base = tape_.plan().layouts[tape_.plan().tensors[x.index()].layout.index()];
  const std::int64_t width = base.strides[0];
  Layout layout{.shape = Shape{batch, sequence, heads, dim},
                .strides = {sequence * width, width, head_stride, 1},
                .offset = base.offset + offset};
  return tape_.view(x, tape_.plan().name_of(x), layout);
}

/// The positions of rotations that an operand gives; none: rows follow one another. One new token of each sequence
/// stands where the sequence has ended; documents of a sample begin anew.
TensorId Layers::positions_of_rows() const {
  if (in_tree()) return tree_.positions;
  if (!documents_.positions.is_none()) return documents_.positions;
  if (!contexts().is_none() && sizes_.sequence != 1) bug("sequences of different lengths get more than one token");
  return contexts();
}

/// Turns heads of x in place; `first` is the offset of the turned numbers in a row of `width` numbers.
void Layers::turn(std::string_view name, TensorId x, const Turns& turns, std::int64_t heads, std::int64_t head_stride,
                  std::int64_t first, std::int64_t width) {
  const std::int64_t rot = 2 * turns.pairs;
  const auto* t = std::get_if<Transformer>(&model().network);
  const std::int64_t positions = t ? t->max_positions : sizes_.sequence;
  // Where sequences are cut over ranks, row i of the table is for the i-th token of the rank.
  const bool cut = bool{roles().cp};
  const auto table = [&](bool sine) {
    return rank_constant(
        fmt::format("{}.{}", turns.name, sine ? "sin" : "cos"), Shape{cut ? sizes_.sequence : positions, turns.pairs},
        sizes_.dtype, [=, slices = slices()](std::span<const std::int64_t> at) {
          const auto all = repeated_range(0, 1, positions, 1);
          return turns.table(cut ? slices.positions(at) : std::vector<std::int64_t>(all.begin(), all.end()), sine);
        });
  };
  TensorId cos = table(false), sin = table(true);
  if (sizes_.cache_use == CacheUse::Paged) cos = picked_rows(cos), sin = picked_rows(sin);
  const Layout& base = tape_.plan().layouts[tape_.plan().tensors[x.index()].layout.index()];
  const Layout layout{
      .shape = Shape{padded_rows(), heads, rot}, .strides = {width, head_stride, 1}, .offset = base.offset + first};
  const TensorId view = tape_.view(x, tape_.plan().name_of(x), layout);
  const Extent start = sizes_.cache_use == CacheUse::Extend ? Extent{0, Symbol::Context} : Extent{0};
  std::vector<Operand> operands{reads(cos), reads(sin)};
  if (!positions_of_rows().is_none()) operands.push_back(reads(positions_of_rows()));
  operands.push_back(updates(view));
  tape_.add(name,
            RotaryEmbedding{.rows = padded_rows(),
                            .heads = heads,
                            .head_dim = rot,
                            .rot_dim = rot,
                            .sequence = sizes_.sequence,
                            .start = start,
                            .interleaved = turns.interleaved,
                            .positions = !positions_of_rows().is_none(),
                            .dtype = sizes_.dtype},
            operands);
}

/// The name of the tables of a rope: blocks of one model may turn by different angles (Gemma 3).
std::string Layers::rotary_of(const Rope& rope) const {
  std::vector<const Rope*> before;
  if (const auto* t = std::get_if<Transformer>(&model().network))
    for (const Block& b : t->decoder) {
      if (!b.attention.rope) continue;
      const Rope& other = *b.attention.rope;
      if (other == rope) break;
      if (std::none_of(before.begin(), before.end(), [&](const Rope* r) { return *r == other; }))
        before.push_back(&other);
    }
  return before.empty() ? rotary_ : fmt::format("{}.{}", rotary_, before.size());
}

void Layers::rotate(std::string_view name, TensorId x, const Rope& rope, std::int64_t heads, std::int64_t head_stride,
                    std::int64_t first, std::int64_t width) {
  const Turns turns{rotary_of(rope), static_cast<std::int64_t>(rope.inverse_frequencies.size()), rope.interleaved,
                    [rope](std::int64_t position, std::int64_t pair, bool sine) {
                      const double angle = double(position) * rope.inverse_frequencies[static_cast<std::size_t>(pair)];
                      return rope.attention_factor * (sine ? std::sin(angle) : std::cos(angle));
                    }};
  turn(name, x, turns, heads, head_stride, first, width);
}

/// Multiplies rows of queries by a factor of their position: pairs of numbers turn by no angle, and grow.
void Layers::grow_scores(std::string_view name, TensorId q, const ScoreGrowth& growth, std::int64_t width) {
  const Turns turns{"growth", 1, false, [growth](std::int64_t position, std::int64_t, bool sine) {
                      const double spans = std::floor(double(position + 1) / growth.span);
                      return sine ? 0.0 : 1 + growth.scale * std::log1p(spans);
                    }};
  turn(name, q, turns, width / 2, 2, 0, width);
}

/// One projection to heads, normed per head where the model says so; a matrix [rows, heads·dim].
TensorId Layers::project_heads(std::string_view name, TensorId x, const Linear& l, const std::optional<Norm>& n,
                               std::int64_t heads, std::int64_t dim) {
  const TensorId y = linear(name, x, rows(), l);
  if (!n) return y;
  const TensorId flat = tape_.view(y, name, Layout::contiguous(Shape{rows() * heads, dim}));
  const TensorId normed = row_norm(fmt::format("{}_norm", name), flat, rows() * heads, *n);
  return tape_.view(normed, fmt::format("{}_norm", name), Layout::contiguous(Shape{rows(), heads * dim}));
}

Layers::Projected Layers::project(std::string_view name, TensorId x, const Attention& a, const StandardAttention& s) {
  const std::int64_t b = sizes_.batch, len = sizes_.sequence;
  if (s.fused) {
    const TensorId qkv = pad(name, linear(fmt::format("{}.qkv", name), x, rows(), s.qkv));
    const std::int64_t q_width = a.heads * a.qk_dim, k_width = a.kv_heads * a.qk_dim;
    return {heads_view(qkv, b, len, a.heads, a.qk_dim, a.qk_dim, 0),
            heads_view(qkv, b, len, a.kv_heads, a.qk_dim, a.qk_dim, q_width),
            heads_view(qkv, b, len, a.kv_heads, a.v_dim, a.v_dim, q_width + k_width)};
  }
  const TensorId q =
      pad(fmt::format("{}.q", name), project_heads(fmt::format("{}.q", name), x, s.q, s.q_norm, a.heads, a.qk_dim));
  const TensorId k =
      pad(fmt::format("{}.k", name), project_heads(fmt::format("{}.k", name), x, s.k, s.k_norm, a.kv_heads, a.qk_dim));
  const TensorId v = pad(fmt::format("{}.v", name), linear(fmt::format("{}.v", name), x, rows(), s.v));
  if (a.rope) {
    rotate(fmt::format("{}.rope_q", name), q, *a.rope, a.heads, a.qk_dim, 0, a.heads * a.qk_dim);
    rotate(fmt::format("{}.rope_k", name), k, *a.rope, a.kv_heads, a.qk_dim, 0, a.kv_heads * a.qk_dim);
  }
  if (a.growth) grow_scores(fmt::format("{}.growth", name), q, *a.growth, a.heads * a.qk_dim);
  return {heads_view(q, b, len, a.heads, a.qk_dim, a.qk_dim, 0),
          heads_view(k, b, len, a.kv_heads, a.qk_dim, a.qk_dim, 0),
          heads_view(v, b, len, a.kv_heads, a.v_dim, a.v_dim, 0)};
}

void Layers::append_rows(std::string_view name, TensorId rows, TensorId cache, std::int64_t cols,
                         std::int64_t capacity) {
  const Extent at = in_tree()                              ? Extent{tree_.slots - sizes_.sequence}
                    : sizes_.cache_use == CacheUse::Extend ? Extent{0, Symbol::Context}
                                                           : Extent{0};
  std::vector<Operand> operands{reads(rows)};
  if (!contexts().is_none()) operands.push_back(reads(contexts()));
  operands.push_back(updates(cache));
  tape_.add(name,
            AppendCache{.batch = sizes_.batch,
                        .rows = sizes_.sequence,
                        .cols = cols,
                        .capacity = capacity,
                        .at = at,
                        .contexts = !contexts().is_none(),
                        .cache = sizes_.cache,
                        .dtype = sizes_.dtype},
            operands);
}

/// Writes new keys and values behind those in the cache; what attention then reads: the cache when it is extended, else
/// the new ones.
Layers::Projected Layers::append(std::string_view name, const Projected& p, const Attention& a, KvCache& cache,
                                 int block) {
  const auto at = static_cast<std::size_t>(block);
  append_rows(fmt::format("{}.cache_k", name), p.k, cache.keys[at], a.kv_heads * a.qk_dim, cache.capacity);
  append_rows(fmt::format("{}.cache_v", name), p.v, cache.values[at], a.kv_heads * a.v_dim, cache.capacity);
  if (sizes_.cache_use == CacheUse::Fill) return p;
  return {p.q, cache.keys[at], cache.values[at]};
}

/// The attention itself, over 4-D operands; a matrix [batch·q, heads·v_dim]. A part of its own for `selective`.
TensorId Layers::attend(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch,
                        std::int64_t q, Extent kv, bool biased) {
  if (roles().cp && roles().context == ContextKind::Ulysses) return ulysses(name, p, a);
  const RecomputeScope core{tape_, recomputes(RecomputePart::Core)};
  if (!roles().cp) {
    const bool plain = !(biased && (!bias_.is_none() || mask_groups_ > 0)) && !kv.is_bound();
    if (sizes_.stored_scores && !plain)
      throw OptionError{{"stored_scores"},
                        fmt::format("attention of {} has a bias: its scores cannot be stored", model().family),
                        "leave stored_scores out"};
    if (sizes_.stored_scores) return stored_attention(name, p, a, batch, q, kv.base);
    return attend_here(name, p, a, batch, q, kv, biased);
  }
  return roles().context == ContextKind::Ring ? ring_attention(name, p, a) : ring_self_attention(name, p, a);
}

AttentionShape Layers::attention_shape(const Attention& a, std::int64_t batch, std::int64_t q, Extent kv) const {
  return {.batch = batch,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .q = q,
          .kv = kv,
          .qk_dim = a.qk_dim,
          .v_dim = a.v_dim,
          .causal = a.causal,
          .window = a.window.value_or(0),
          .chunked = a.chunked,
          .scale = a.scale,
          .cap = a.cap.value_or(0),
          .dtype = sizes_.dtype};
}

/// Over keys that are all on this rank.
TensorId Layers::attend_here(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch,
                             std::int64_t q, Extent kv, bool biased) {
  const TensorId o = activation_tensor(fmt::format("{}.core", name), Shape{batch * q, a.heads * a.v_dim});
  const TensorId o4 = heads_view(o, batch, q, a.heads, a.v_dim, a.v_dim, 0);
  AttentionForward op{.shape = attention_shape(a, batch, q, kv), .keep_lse = sizes_.training};
  std::vector<Operand> operands{reads(p.q), reads(p.k), reads(p.v)};
  if (biased && !bias_.is_none()) {
    op.shape.bias = true;
    operands.push_back(reads(bias_));
  }
  if (biased && mask_groups_ > 0) {
    op.shape.mask_groups = mask_groups_;
    operands.push_back(reads(mask_));
  }
  if (!documents_.first_keys.is_none()) {
    op.shape.documents = sizes_.documents.count, op.shape.visible = sizes_.documents.pairs;
    operands.push_back(reads(documents_.first_keys));
  }
  if (kv.is_bound()) op.shape.cache = sizes_.cache;
  if (kv.is_bound() && !contexts().is_none()) {
    op.shape.contexts = true;
    operands.push_back(reads(contexts()));
  }
  if (in_tree()) {
    op.shape.causal = false, op.shape.tree = tree_.slots;
    operands.push_back(reads(tree_.mask));
  }
  operands.push_back(writes(o4));
  if (op.keep_lse) operands.push_back(writes(activation_tensor(fmt::format("{}.lse", name), Shape{batch, a.heads, q})));
  tape_.add(fmt::format("{}.core", name), op, operands);
  if (recomputes(RecomputePart::AllButEverySecondProduct)) {
    tape_.keep(o);
    tape_.keep(operands.back().tensor());
  }
  return o;
}

TensorId Layers::attention(std::string_view name, TensorId x, const Attention& a, KvCache* cache, int block) {
  if (const auto* l = std::get_if<LatentAttention>(&a.projections))
    return latent_attention(name, x, a, *l, cache, block);
  const auto& s = std::get<StandardAttention>(a.projections);
  std::vector<Reader> readers;
  if (s.fused)
    readers = {{fmt::format("{}.qkv", name), &s.qkv}};
  else
    readers = {{fmt::format("{}.q", name), &s.q}, {fmt::format("{}.k", name), &s.k}, {fmt::format("{}.v", name), &s.v}};
  Projected p = project(name, enter(name, x, readers), a, s);
  Extent kv{sizes_.sequence};
  if (cache && sizes_.cache_use == CacheUse::Paged) {
    const auto at = static_cast<std::size_t>(block);
    store_rows(fmt::format("{}.cache_k", name), p.k, cache->keys[at], a.kv_heads * a.qk_dim);
    store_rows(fmt::format("{}.cache_v", name), p.v, cache->values[at], a.kv_heads * a.v_dim);
    return project_back(fmt::format("{}.out", name),
                        paged_attention(name, {p.q, cache->keys[at], cache->values[at]}, a), a.out);
  }
  if (cache && sizes_.cache_use != CacheUse::None) {
    p = append(name, p, a, *cache, block);
    if (sizes_.cache_use != CacheUse::Fill) kv = cached_keys();
  }
  return project_back(fmt::format("{}.out", name),
                      unpad(name, attend(name, p, a, sizes_.batch, sizes_.sequence, kv, true)), a.out);
}

TensorId Layers::cross_attention(std::string_view name, TensorId x, TensorId memory, std::int64_t memory_sequence,
                                 const Attention& a, KvCache* cache, int block) {
  const auto& s = std::get<StandardAttention>(a.projections);
  const auto at = static_cast<std::size_t>(block);
  Projected p;
  p.q = heads_view(linear(fmt::format("{}.q", name), enter(name, x), rows(), s.q), sizes_.batch, sizes_.sequence,
                   a.heads, a.qk_dim, a.qk_dim, 0);
  if (sizes_.cache_use == CacheUse::Extend) {
    p.k = cache->cross_keys[at];
    p.v = cache->cross_values[at];
  } else {
    const std::int64_t memory_rows = sizes_.batch * memory_sequence;
    memory = enter(fmt::format("{}.memory", name), memory);
    const TensorId k = linear(fmt::format("{}.k", name), memory, memory_rows, s.k);
    const TensorId v = linear(fmt::format("{}.v", name), memory, memory_rows, s.v);
    p.k = heads_view(k, sizes_.batch, memory_sequence, a.kv_heads, a.qk_dim, a.qk_dim, 0);
    p.v = heads_view(v, sizes_.batch, memory_sequence, a.kv_heads, a.v_dim, a.v_dim, 0);
    if (cache && sizes_.cache_use == CacheUse::Fill) {
      const auto store = [&](std::string_view what, TensorId from, TensorId to, std::int64_t cols) {
        tape_.add(fmt::format("{}.{}", name, what),
                  AppendCache{.batch = sizes_.batch,
                              .rows = memory_sequence,
                              .cols = cols,
                              .capacity = memory_sequence,
                              .dtype = sizes_.dtype},
                  {reads(from), updates(to)});
      };
      store("cache_k", p.k, cache->cross_keys[at], a.kv_heads * a.qk_dim);
      store("cache_v", p.v, cache->cross_values[at], a.kv_heads * a.v_dim);
    }
  }
  Attention plain = a;
  plain.causal = false;
  return project_back(fmt::format("{}.out", name),
                      attend(name, p, plain, sizes_.batch, sizes_.sequence, Extent{memory_sequence}, false), a.out);
}

TensorId Layers::reading_attention(std::string_view name, TensorId x, const Attention& a, TensorId keys,
                                   TensorId values, TensorId contexts) {
  const auto& s = std::get<StandardAttention>(a.projections);
  const std::int64_t b = sizes_.batch, n = sizes_.sequence;
  const TensorId q = linear(fmt::format("{}.q", name), x, rows(), s.q);
  if (a.rope) rotate(fmt::format("{}.rope_q", name), q, *a.rope, a.heads, a.qk_dim, 0, a.heads * a.qk_dim);
  const TensorId o = activation_tensor(fmt::format("{}.core", name), Shape{b * n, a.heads * a.v_dim});
  AttentionForward op{.shape = attention_shape(a, b, n, Extent{n}), .keep_lse = false};
  std::vector<Operand> operands{reads(heads_view(q, b, n, a.heads, a.qk_dim, a.qk_dim, 0)), reads(keys), reads(values)};
  if (!contexts.is_none()) {
    op.shape.kv = Extent{0, Symbol::Context};
    op.shape.contexts = true, op.shape.causal = false;
    operands.push_back(reads(contexts));
  }
  operands.push_back(writes(heads_view(o, b, n, a.heads, a.v_dim, a.v_dim, 0)));
  tape_.add(fmt::format("{}.core", name), op, operands);
  return linear(fmt::format("{}.out", name), o, rows(), a.out);
}

}  // namespace orrery
