// SPDX-License-Identifier: Apache-2.0
// Attention as it was before fused kernels: scores = q·kᵀ, softmax in place, scores·v. The probabilities [batch·heads,
// q, kv] are written, read again by the product and kept for the backward pass: 2 products forward and 4 back, whose
// arithmetic a causal mask does not lessen, and three passes over the scores forward, five back. Eager, as in
// BertSelfAttention of Hugging Face's transformers 4 (models/bert/modeling_bert.py) under PyTorch: scores are scaled,
// masked and sent through the softmax into memory of their own, two passes more forward and one back, and what the
// names of that function hold, queries, keys, values and masked scores, stays until it returns.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kStreamsOfScores = 1 << 20;  // behind those of dropouts between blocks

/// Probabilities [groups, rows, kv] from queries and keys of as many groups.
struct StoredScores {
  Tape* tape;
  std::string name;
  Gemm product;
  SoftmaxForward softmax;
  std::vector<Operand> positions;  // that a causal softmax reads

  void multiply(TensorId queries, TensorId keys, TensorId scores) const {
    tape->add_plain(name, product, {reads(queries), reads(keys), writes(scores)});
    tape->on_backward([s = *this, queries, keys, scores] { s.multiply_back(queries, keys, scores); });
  }

  /// In place.
  void soften(TensorId scores) const {
    std::vector<Operand> operands{updates(scores)};
    operands.insert(operands.end(), positions.begin(), positions.end());
    tape->add_plain(name + ".softmax", softmax, operands);
    tape->on_backward([s = *this, scores] {
      const SoftmaxForward& f = s.softmax;
      if (const TensorId d = s.tape->gradient(scores); !d.is_none())
        s.tape->emit(s.name + ".softmax.dx", SoftmaxBackward{f.rows, f.cols, f.scale, f.dtype},
                     {reads(s.tape->saved(scores)), updates(d)});
    });
  }

  /// Probabilities of their own, and masked scores. `padding`: [kv], what a mask adds.
  std::pair<TensorId, TensorId> eager(TensorId queries, TensorId keys, TensorId padding, const Shape& shape) const {
    const auto fresh = [&](std::string_view suffix) {
      return tape->builder().tensor(fmt::format("{}{}", name, suffix), shape, {.dtype = softmax.dtype});
    };
    const std::int64_t rows = softmax.rows, cols = softmax.cols;
    const TensorId raw = fresh(".raw"), scaled = fresh(".scaled"), masked = fresh(".masked"), out = fresh("");
    tape->add(name, product, {reads(queries), reads(keys), writes(raw)});
    tape->add(name + ".scaled", ScaleRows{.rows = rows, .cols = cols, .factor = softmax.scale, .dtype = softmax.dtype},
              {reads(raw), writes(scaled)});
    tape->add(name + ".masked", AddRows{.rows = rows, .cols = cols, .dtype = softmax.dtype},
              {reads(scaled), reads(padding), writes(masked)});
    StoredScores last = *this;
    last.softmax.scale = 1;
    tape->add_steps({reads(masked), writes(out)}, [last](std::span<const TensorId> t) { last.normalise(t[0], t[1]); });
    tape->on_backward([last, masked, out] { last.normalise_back(masked, out); });
    return {out, masked};
  }

  void multiply_back(TensorId queries, TensorId keys, TensorId scores) const {
    const TensorId d = tape->gradient(scores);
    if (d.is_none()) return;
    Gemm back{.m = product.m, .n = product.k, .k = product.n, .batch = product.batch, .dtype = product.dtype};
    const TensorId dq = tape->contribution(queries), dk = tape->contribution(keys);
    tape->emit(name + ".dq", back, {reads(d), reads(tape->saved(keys)), writes(dq)});
    tape->contribute(queries, dq);
    std::swap(back.m, back.k);
    back.transpose_a = true;
    tape->emit(name + ".dk", back, {reads(d), reads(tape->saved(queries)), writes(dk)});
    tape->contribute(keys, dk);
  }

 private:
  void normalise(TensorId masked, TensorId out) const {
    std::vector<Operand> operands{reads(masked)};
    operands.insert(operands.end(), positions.begin(), positions.end());
    operands.push_back(writes(out));
    tape->builder().add(name + ".softmax", softmax, operands);
  }
  void normalise_back(TensorId masked, TensorId out) const {
    const TensorId d = tape->gradient(out);
    if (d.is_none()) return;
    const TensorId dx = tape->contribution(masked);
    tape->emit(name + ".softmax.dx", SoftmaxBackward{softmax.rows, softmax.cols, softmax.scale, softmax.dtype},
               {reads(tape->saved(out)), reads(d), writes(dx)});
    tape->contribute(masked, dx);
  }
};

}  // namespace

/// [batch, tokens, heads, dim], of heads that may lie apart, as [batch·kv_heads, heads/kv_heads·tokens, dim].
TensorId Layers::heads_first(std::string_view name, TensorId x, std::int64_t kv_heads) {
  const Shape s = tape_.plan().shape(x);
  const DType dtype = tape_.plan().tensors[x.index()].dtype;
  const TensorId y =
      tape_.builder().tensor(name, Shape{s[0] * kv_heads, s[2] / kv_heads * s[1], s[3]}, {.dtype = dtype});
  const TensorId target =
      tape_.view(y, name, {.shape = s, .strides = {s[1] * s[2] * s[3], s[3], s[1] * s[3], 1}, .offset = 0});
  tape_.add(name, CopyRows{s[0] * s[1] * s[2], s[3], dtype}, {reads(x), writes(target)});
  return y;
}

/// A matrix [batch·q, heads·v_dim].
TensorId Layers::stored_attention(std::string_view name, const Projected& p, const Attention& a, std::int64_t batch,
                                  std::int64_t q, std::int64_t kv) {
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };
  const std::int64_t groups = batch * a.kv_heads, rows = a.heads / a.kv_heads * q;
  const DType dtype = sizes_.dtype;
  const TensorId queries = heads_first(part("q_heads"), p.q, a.kv_heads),
                 keys = heads_first(part("k_heads"), p.k, a.kv_heads),
                 values = heads_first(part("v_heads"), p.v, a.kv_heads);
  StoredScores stored{
      .tape = &tape_,
      .name = part("scores"),
      .product = {.m = rows, .n = kv, .k = a.qk_dim, .batch = groups, .transpose_b = true, .dtype = dtype},
      .softmax = {.rows = groups * rows,
                  .cols = kv,
                  .scale = a.cap.value_or(a.scale),
                  .period = q,
                  .causal = a.causal,
                  .window = a.window.value_or(0),
                  .chunked = a.chunked,
                  .dtype = dtype},
      .positions = {}};
  if (a.causal) stored.positions = {reads(places(q)), reads(places(kv))};
  std::vector<TensorId> held;
  TensorId scores;
  if (sizes_.eager_attention) {
    const TensorId padding = constant(fmt::format("no_padding.{}", kv), Shape{kv}, dtype,
                                      [kv] { return std::vector<double>(static_cast<std::size_t>(kv)); });
    const auto [out, masked] = stored.eager(queries, keys, padding, Shape{groups, rows, kv});
    scores = out;
    held = {p.q, p.k, p.v, masked};
  } else {
    scores = activation_tensor(part("scores"), Shape{groups, rows, kv});
    stored.multiply(queries, keys, scores);
    if (a.cap) scores = soft_step(part("scores.tanh"), scores, a.scale, *a.cap);
    stored.soften(scores);
  }
  const TensorId weights = drop_scores(part("scores.dropout"), scores, a.heads, q);
  const TensorId output = activation_tensor(part("output"), Shape{groups, rows, a.v_dim});
  tape_.add(part("output"), Gemm{.m = rows, .n = a.v_dim, .k = kv, .batch = groups, .dtype = dtype},
            {reads(weights), reads(values), writes(output)});
  const TensorId y = activation_tensor(part("core"), Shape{batch * q, a.heads * a.v_dim});
  tape_.add(part("core"), SwapAxes{.outer = batch, .a = a.heads, .b = q, .inner = a.v_dim, .dtype = dtype},
            {reads(output), writes(y)});
  if (!held.empty()) let_go(part("held"), held, y);
  return y;
}

/// What names of a function hold goes when it returns, behind all that made `result`.
void Layers::let_go(std::string_view name, std::span<const TensorId> held, TensorId result) {
  std::vector<Operand> operands{updates(result)};
  for (const TensorId t : held) operands.push_back(reads(t));
  tape_.add_steps(operands, [&b = tape_.builder(), name = std::string{name}](std::span<const TensorId> t) {
    for (const TensorId each : t.subspan(1)) b.add(name, Free{b.plan().size(each)}, {reads(each)});
  });
}

/// Of probabilities [batch·kv_heads, heads/kv_heads·q, kv], whose rows are numbered by sample, head of the whole model
/// and query.
TensorId Layers::drop_scores(std::string_view name, TensorId scores, std::int64_t heads, std::int64_t q) {
  if (!sizes_.training || sizes_.attention_dropout <= 0) return scores;
  const Shape shape = tape_.plan().shape(scores);
  const std::int64_t rows = shape[0] * shape[1], kv = shape[2];
  const Dropout op{.rows = rows,
                   .cols = kv,
                   .global_cols = kv,
                   .first_row = sizes_.microbatch * rows,
                   .probability = sizes_.attention_dropout,
                   .seed = sizes_.seed,
                   .stream = kStreamsOfScores + dropout_stream_,
                   .step = Extent{0, Symbol::Step},
                   .dtype = sizes_.dtype};
  TensorId ids;
  if (slices().mesh.size() > 1)
    ids = rank_constant(fmt::format("score_rows.{}.{}{}", q, sizes_.microbatch, arrangements_.suffix(*arrangement_)),
                        Shape{rows}, DType::I32,
                        [slices = slices(), m = sizes_.microbatch, heads, q](std::span<const std::int64_t> at) {
                          const Split split = slices.roles.data_attention ? Split{} : slices.roles.tp;
                          const std::int64_t all = heads * split.ranks, first = heads * slices.at(split, at);
                          std::vector<double> ids;
                          for (const std::int64_t sample : slices.samples(at, m))
                            for (std::int64_t row = 0; row < heads * q; ++row)
                              ids.push_back(double((sample * all + first) * q + row));
                          return ids;
                        });
  return drop(name, scores, op, ids);
}

/// 0, 1, … n − 1.
TensorId Layers::places(std::int64_t n) {
  return constant(fmt::format("places.{}", n), Shape{n}, DType::I32, [n] {
    std::vector<double> all;
    for (std::int64_t i = 0; i < n; ++i) all.push_back(double(i));
    return all;
  });
}

}  // namespace orrery
