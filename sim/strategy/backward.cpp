// SPDX-License-Identifier: Apache-2.0
// The rules of reverse-mode differentiation but those of products. Operands stand in the order that the kind's comment
// gives.
#include "sim/strategy/backward.hpp"

#include "sim/strategy/backward_rules.hpp"

namespace orrery {

void BackwardRules::operator()(const AttentionForward& a) {
  const std::size_t o =
      3 + (a.shape.bias ? 1u : 0u) + (a.shape.mask_groups > 0 ? 1u : 0u) + (a.shape.documents > 0 ? 1u : 0u);
  const TensorId d_o = tape_.gradient(in(o));
  if (d_o.is_none()) return;
  std::vector<Operand> operands;
  for (std::size_t i = 0; i <= o + 1; ++i) operands.push_back(reads(saved(i)));
  operands.push_back(reads(d_o));
  std::vector<TensorId> grads;
  for (std::size_t i = 0; i < (a.shape.bias ? 4u : 3u); ++i) grads.push_back(tape_.contribution(in(i)));
  for (TensorId g : grads) operands.push_back(writes(g));
  tape_.emit(name(".backward"), AttentionBackward{a.shape}, operands);
  for (std::size_t i = 0; i < grads.size(); ++i) tape_.contribute(in(i), grads[i]);
}

void BackwardRules::operator()(const RelativeBiasForward& r) {
  const TensorId d = tape_.gradient(in(2));
  if (d.is_none()) return;
  tape_.emit(name(".dw"), RelativeBiasBackward{r.heads, r.q, r.kv.base, r.buckets, r.dtype},
             {reads(in(1)), reads(d), updates(tape_.added_parameter_target(in(0)))});
}

void BackwardRules::operator()(const NormForward& n) {
  const bool layer = n.kind == NormKind::Layer;
  const std::size_t y = layer ? 3 : n.weighted ? 2 : 1;
  const TensorId dy = tape_.gradient(in(y));
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(saved(0))};
  if (n.weighted) operands.push_back(reads(saved(1)));
  for (std::size_t i = y + 1; i < node_.operands.size(); ++i) operands.push_back(reads(saved(i)));
  operands.push_back(reads(dy));
  const TensorId dx = tape_.contribution(in(0));
  operands.push_back(writes(dx));
  bool accumulate = false;
  const auto add_parameter = [&](std::size_t at) {
    const auto target = tape_.parameter_target(in(at));
    operands.push_back(target.accumulate ? updates(target.tensor) : writes(target.tensor));
    return target.accumulate;
  };
  if (n.weighted) accumulate = add_parameter(1);
  if (layer) add_parameter(2);
  tape_.emit(name(".backward"), NormBackward{n.kind, n.rows, n.dim, n.epsilon, accumulate, n.dtype, n.weighted},
             operands);
  tape_.contribute(in(0), dx);
}

void BackwardRules::operator()(const ActivationForward& a) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(saved(0)), reads(dy)};
  if (a.counted) operands.push_back(reads(saved(1)));
  one(0, ActivationBackward{a.kind, a.rows, a.cols, a.dtype, a.counted}, operands);
}

void BackwardRules::operator()(const GatedForward& g) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  const TensorId dgate = tape_.contribution(in(0)), dup = tape_.contribution(in(1));
  std::vector<Operand> operands{reads(saved(0)), reads(saved(1)), reads(dy)};
  if (g.counted) operands.push_back(reads(saved(2)));
  operands.insert(operands.end(), {writes(dgate), writes(dup)});
  tape_.emit(name(".dx"), GatedBackward{g.kind, g.rows, g.cols, g.dtype, g.counted}, operands);
  tape_.contribute(in(0), dgate);
  tape_.contribute(in(1), dup);
}

void BackwardRules::operator()(const Add&) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  for (std::size_t i : {0u, 1u})
    if (tape_.wants(in(i))) tape_.pass_through(in(i), dy);
}

void BackwardRules::operator()(const Multiply& m) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  one(0, m, {reads(dy), reads(saved(1))});
  one(1, m, {reads(dy), reads(saved(0))});
}

/// out = factor·s[r]·x: dx = factor·s[r]·dout; ds[r] = factor·Σ x·dout.
void BackwardRules::operator()(const ScaleRows& s) {
  const std::size_t out = 1 + (s.by_row ? 1u : 0u) + (s.counted ? 1u : 0u);
  const TensorId dy = tape_.gradient(in(out));
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(dy)}, products{reads(dy)};
  if (s.by_row) operands.push_back(reads(saved(1)));
  for (std::vector<Operand>* of : {&operands, &products})
    if (s.counted) of->push_back(reads(saved(out - 1)));
  one(0, s, operands);
  if (!s.by_row || !tape_.wants(in(1))) return;
  products.insert(products.begin(), reads(saved(0)));
  one(1, RowDot{s.rows, s.cols, s.dtype, s.counted}, products);
}

void BackwardRules::operator()(const AddRows& a) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  if (tape_.wants(in(1))) {
    const auto target = tape_.parameter_target(in(1));
    tape_.emit(name(".db"), SumRows{a.rows, a.cols, a.period, target.accumulate, a.dtype},
               {reads(dy), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  }
  if (tape_.wants(in(0))) tape_.pass_through(in(0), dy);
}

void BackwardRules::operator()(const Dropout& d) {
  const std::size_t y = d.by_row ? 2 : 1;
  const TensorId dy = tape_.gradient(in(y));
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(dy)};
  Dropout back = d;
  if (d.mask == KeptMask::Written) {
    back.mask = KeptMask::Read, back.by_row = false;
    operands.push_back(reads(saved(y + 1)));
  } else if (d.by_row) {
    operands.push_back(reads(in(1)));
  }
  one(0, back, operands);
}

void BackwardRules::operator()(const Cast& c) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, Cast{c.elements, c.to, c.from}, {reads(dy)});
}

void BackwardRules::operator()(const BroadcastHeads& b) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, SumHeads{b.rows, b.heads, b.cols, b.dtype}, {reads(dy)});
}

void BackwardRules::operator()(const CopyRows& c) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, c, {reads(dy)});
}

void BackwardRules::operator()(const SwapAxes& s) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, SwapAxes{s.outer, s.b, s.a, s.inner, s.dtype}, {reads(dy)});
}

void BackwardRules::operator()(const Gather& g) {
  const TensorId d = tape_.gradient(in(2));
  if (d.is_none() || !tape_.wants(in(0))) return;
  const ScatterAdd scatter{g.rows, g.cols, g.table_rows, g.first, g.last, g.dtype};
  if (is_parameter(in(0))) {
    tape_.emit(name(".dw"), scatter, {reads(d), reads(in(1)), updates(tape_.added_parameter_target(in(0)))});
    return;
  }
  const TensorId dx = tape_.contribution(in(0));
  tape_.emit(name(".dx_zero"), Fill{.elements = g.table_rows * g.cols, .dtype = g.dtype}, {writes(dx)});
  tape_.emit(name(".dx"), scatter, {reads(d), reads(in(1)), updates(dx)});
  tape_.contribute(in(0), dx);
}

/// In place: the gradient is rotated back in place.
void BackwardRules::operator()(const RotaryEmbedding& r) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  RotaryEmbedding back = r;
  back.inverse = !r.inverse;
  std::vector<Operand> operands{reads(in(0)), reads(in(1))};
  if (r.positions) operands.push_back(reads(in(2)));
  operands.push_back(updates(dy));
  tape_.emit(name(".dx"), back, operands);
}

void BackwardRules::operator()(const EmbeddingBagForward& e) {
  const TensorId d = tape_.gradient(in(3));
  if (d.is_none()) return;
  tape_.emit(name(".dw"), EmbeddingBagBackward{e.bags, e.lookups, e.cols, e.table_rows, e.mean, e.dtype},
             {reads(d), reads(in(1)), reads(in(2)), updates(tape_.added_parameter_target(in(0)))});
}

void BackwardRules::operator()(const DotInteractionForward& f) {
  const TensorId d = tape_.gradient(in(1));
  if (!d.is_none()) one(0, DotInteractionBackward{f.batch, f.features, f.dim, f.dtype}, {reads(saved(0)), reads(d)});
}

/// A loss: the gradient takes the storage of the logits.
void BackwardRules::operator()(const CrossEntropyForward& c) {
  const TensorId logits = saved(0);
  tape_.emit(name(".backward"), CrossEntropyBackward{c.rows, c.classes, c.weight, c.dtype},
             {updates(logits), reads(in(1)), reads(saved(2))});
  tape_.contribute(in(0), logits);
}

void BackwardRules::operator()(const BinaryCrossEntropyForward& c) {
  one(0, BinaryCrossEntropyBackward{c.rows, c.weight, c.dtype}, {reads(saved(0)), reads(in(1))});
}

void BackwardRules::operator()(const TopKGate& g) {
  const std::size_t p = g.bias || g.sparse.by_row ? 2 : 1;
  const TensorId dweights = tape_.gradient(in(p + 1));
  if (dweights.is_none()) return;
  one(0, TopKGateBackward{g.tokens, g.experts, g.top_k, g.score, g.normalise, g.scaling, g.dtype, g.sparse},
      {reads(saved(p)), reads(saved(p + 2)), reads(dweights)});
}

void BackwardRules::operator()(const Permute& p) {
  const TensorId d = tape_.gradient(in(3));
  if (!d.is_none()) one(0, PermuteBackward{p.tokens, p.top_k, p.cols, p.dtype, p.filled}, {reads(d), reads(saved(2))});
}

void BackwardRules::operator()(const Unpermute& u) {
  const TensorId d = tape_.gradient(in(3));
  if (d.is_none()) return;
  const TensorId dy = tape_.contribution(in(0)), dw = tape_.contribution(in(2));
  tape_.emit(name(".dx"), UnpermuteBackward{u.tokens, u.top_k, u.cols, u.dtype, u.rows, u.filled},
             {reads(saved(0)), reads(saved(1)), reads(saved(2)), reads(d), writes(dy), writes(dw)});
  tape_.contribute(in(0), dy);
  tape_.contribute(in(2), dw);
}

void BackwardRules::operator()(const ConcatPrefix& c) {
  const TensorId d = tape_.gradient(in(2));
  if (d.is_none()) return;
  const auto target = tape_.parameter_target(in(1));
  const TensorId dx = tape_.contribution(in(0));
  tape_.emit(name(".dx"), ConcatPrefixBackward{c.batch, c.rows, c.cols, target.accumulate, c.dtype},
             {reads(d), writes(dx), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  tape_.contribute(in(0), dx);
}

void BackwardRules::operator()(const MeanPool& m) {
  const TensorId d = tape_.gradient(in(1));
  if (!d.is_none()) one(0, MeanPoolBackward{m.batch, m.rows, m.cols, m.dtype}, {reads(d)});
}

void backward(const TapeNode& node, Tape& tape) {
  std::visit([&](const auto& w) { BackwardRules{node, tape}(w); }, node.work);
}

}  // namespace orrery
