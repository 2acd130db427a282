// SPDX-License-Identifier: Apache-2.0
// The rules of reverse-mode differentiation, one per op kind. Operands stand in the order that the kind's comment
// gives.
#include "sim/strategy/backward.hpp"

#include <string>
#include <utility>

namespace orrery {
namespace {

class Rules {
 public:
  Rules(const TapeNode& node, Tape& tape) : node_{node}, tape_{tape} {}

  /// Kinds without a rule pass no gradient on: index maps, routing tables, fills, sampling, copies, optimizers.
  template <class W>
  void operator()(const W&) {}

  void operator()(const Gemm& g);
  void operator()(const GroupedGemm& g);
  void operator()(const AttentionForward& a);
  void operator()(const RelativeBiasForward& r);
  void operator()(const NormForward& n);
  void operator()(const ActivationForward& a);
  void operator()(const GatedForward& g);
  void operator()(const Add& a);
  void operator()(const Multiply& m);
  void operator()(const ScaleRows& s);
  void operator()(const AddRows& a);
  void operator()(const Dropout& d);
  void operator()(const Cast& c);
  void operator()(const BroadcastHeads& b);
  void operator()(const CopyRows& c);
  void operator()(const SwapAxes& s);
  void operator()(const Gather& g);
  void operator()(const RotaryEmbedding& r);
  void operator()(const EmbeddingBagForward& e);
  void operator()(const DotInteractionForward& d);
  void operator()(const CrossEntropyForward& c);
  void operator()(const BinaryCrossEntropyForward& c);
  void operator()(const TopKGate& g);
  void operator()(const Permute& p);
  void operator()(const Unpermute& u);
  void operator()(const ConcatPrefix& c);
  void operator()(const MeanPool& m);

 private:
  TensorId in(std::size_t i) const { return node_.operands[i].tensor(); }
  std::string name(std::string_view suffix) const {
    return std::string{tape_.plan().names[node_.name]} + std::string{suffix};
  }
  TensorId saved(std::size_t i) { return tape_.saved(in(i)); }
  void gemm_left(const Gemm& g, TensorId dc);
  void gemm_right(const Gemm& g, TensorId dc);
  bool is_parameter(TensorId t) const {
    return tape_.plan().tensors[tape_.plan().owner(t).index()].role == TensorRole::Parameter;
  }

  /// Gradients of weights may be wider than what they are computed from.
  bool is_wide(TensorId t, DType dtype) const {
    return tape_.plan().tensors[t.index()].dtype == DType::F32 && dtype != DType::F32;
  }

  /// One op that writes the gradient of input i: emits `work` with `operands` and the target behind them.
  void one(std::size_t i, const Work& work, std::vector<Operand> operands) {
    if (!tape_.wants(in(i))) return;
    const TensorId dx = tape_.contribution(in(i));
    operands.push_back(writes(dx));
    tape_.emit(name(".dx"), work, operands);
    tape_.contribute(in(i), dx);
  }

  const TapeNode& node_;
  Tape& tape_;
};

/// C = A·B: dA = dC·Bᵀ, dB = Aᵀ·dC, dbias = Σ rows of dC; with the stored orientation of A and B.
void Rules::operator()(const Gemm& g) {
  const TensorId dc = tape_.gradient(node_.operands.back().tensor());
  if (dc.is_none()) return;
  // What the weight's gradient reads is made again before the other product: it may come while that runs.
  if (tape_.wants(in(1)) && is_parameter(in(1)) && !tape_.deferred()) saved(0);
  if (tape_.wants(in(0))) gemm_left(g, dc);
  if (tape_.wants(in(1))) {
    if (is_parameter(in(1)))
      tape_.defer([&node = node_, &tape = tape_, g, dc] { Rules{node, tape}.gemm_right(g, dc); });
    else
      gemm_right(g, dc);
  }
  if (!g.bias || !tape_.wants(in(2))) return;
  tape_.defer([&tape = tape_, bias = in(2), name = name(".db"), g, dc] {
    const auto target = tape.parameter_target(bias);
    tape.emit(name, SumRows{.rows = g.m * g.batch, .cols = g.n, .accumulate = target.accumulate, .dtype = g.dtype},
              {reads(dc), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  });
}

/// Where the gradient stands matters to products in eight bits alone; others stay what they are without it.
static GradientOperand in_eight_bits(const Gemm& g, GradientOperand gradient) {
  return g.narrow == Narrow::EightBits ? gradient : GradientOperand::None;
}

/// A stored [m,k]: dA = dC·op(B)ᵀ; stored [k,m]: dAᵀ = op(B)·dCᵀ.
void Rules::gemm_left(const Gemm& g, TensorId dc) {
  const TensorId da = tape_.contribution(in(0)), b = saved(1);
  Gemm back{.m = g.m,
            .n = g.k,
            .k = g.n,
            .batch = g.batch,
            .narrow = g.narrow,
            .gradient = in_eight_bits(g, g.transpose_a ? GradientOperand::B : GradientOperand::A),
            .dtype = g.dtype,
            .alpha = g.alpha};
  if (g.transpose_a) {
    std::swap(back.m, back.n);
    back.transpose_a = g.transpose_b;
    back.transpose_b = true;
    tape_.emit(name(".dx"), back, {reads(b), reads(dc), writes(da)});
  } else {
    back.transpose_b = !g.transpose_b;
    tape_.emit(name(".dx"), back, {reads(dc), reads(b), writes(da)});
  }
  tape_.contribute(in(0), da);
}

/// B stored [k,n]: dB = op(A)ᵀ·dC; stored [n,k]: dB = dCᵀ·op(A).
void Rules::gemm_right(const Gemm& g, TensorId dc) {
  const bool weight = is_parameter(in(1));
  const auto target = weight ? tape_.parameter_target(in(1)) : Tape::ParameterTarget{tape_.contribution(in(1)), false};
  const Operand out = target.accumulate ? updates(target.tensor) : writes(target.tensor);
  const TensorId a = saved(0);
  Gemm back{.m = g.k,
            .n = g.n,
            .k = g.m,
            .batch = g.batch,
            .accumulate = target.accumulate,
            .wide = weight && is_wide(target.tensor, g.dtype),
            .narrow = g.narrow,
            .gradient = in_eight_bits(g, g.transpose_b ? GradientOperand::A : GradientOperand::B),
            .dtype = g.dtype,
            .alpha = g.alpha};
  if (g.transpose_b) {
    std::swap(back.m, back.n);
    back.transpose_a = true;
    back.transpose_b = g.transpose_a;
    tape_.emit(name(".dw"), back, {reads(dc), reads(a), out});
  } else {
    back.transpose_a = !g.transpose_a;
    tape_.emit(name(".dw"), back, {reads(a), reads(dc), out});
  }
  if (!weight) tape_.contribute(in(1), target.tensor);
}

void Rules::operator()(const GroupedGemm& g) {
  const TensorId dy = tape_.gradient(in(3));
  if (dy.is_none()) return;
  GroupedGemm back = g;
  back.mode = GroupedMode::InputGradient;
  const TensorId before = tape_.gradient_so_far(in(0));
  back.accumulate = !before.is_none();
  if (back.accumulate)
    tape_.emit(name(".dx"), back, {reads(dy), reads(saved(1)), reads(saved(2)), updates(before)});
  else
    one(0, back, {reads(dy), reads(saved(1)), reads(saved(2))});
  back.mode = GroupedMode::WeightGradient;
  tape_.defer([&node = node_, &tape = tape_, back, dy]() mutable {
    Rules rules{node, tape};
    const auto target = tape.parameter_target(rules.in(1));
    back.accumulate = target.accumulate;
    back.wide = rules.is_wide(target.tensor, back.dtype);
    tape.emit(rules.name(".dw"), back,
              {reads(rules.saved(0)), reads(dy), reads(rules.saved(2)),
               target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  });
}

void Rules::operator()(const AttentionForward& a) {
  const std::size_t o = 3 + (a.shape.bias ? 1u : 0u) + (a.shape.mask_groups > 0 ? 1u : 0u);
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

void Rules::operator()(const RelativeBiasForward& r) {
  const TensorId d = tape_.gradient(in(2));
  if (d.is_none()) return;
  tape_.emit(name(".dw"), RelativeBiasBackward{r.heads, r.q, r.kv.base, r.buckets, r.dtype},
             {reads(in(1)), reads(d), updates(tape_.added_parameter_target(in(0)))});
}

void Rules::operator()(const NormForward& n) {
  const bool layer = n.kind == NormKind::Layer;
  const std::size_t y = layer ? 3 : 2;
  const TensorId dy = tape_.gradient(in(y));
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(saved(0)), reads(saved(1))};
  for (std::size_t i = y + 1; i < node_.operands.size(); ++i) operands.push_back(reads(saved(i)));
  operands.push_back(reads(dy));
  const TensorId dx = tape_.contribution(in(0));
  operands.push_back(writes(dx));
  const auto dw = tape_.parameter_target(in(1));
  operands.push_back(dw.accumulate ? updates(dw.tensor) : writes(dw.tensor));
  if (layer) {
    const auto db = tape_.parameter_target(in(2));
    operands.push_back(db.accumulate ? updates(db.tensor) : writes(db.tensor));
  }
  tape_.emit(name(".backward"), NormBackward{n.kind, n.rows, n.dim, n.epsilon, dw.accumulate, n.dtype}, operands);
  tape_.contribute(in(0), dx);
}

void Rules::operator()(const ActivationForward& a) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(saved(0)), reads(dy)};
  if (a.counted) operands.push_back(reads(saved(1)));
  one(0, ActivationBackward{a.kind, a.rows, a.cols, a.dtype, a.counted}, operands);
}

void Rules::operator()(const GatedForward& g) {
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

void Rules::operator()(const Add&) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  for (std::size_t i : {0u, 1u})
    if (tape_.wants(in(i))) tape_.pass_through(in(i), dy);
}

void Rules::operator()(const Multiply& m) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  one(0, m, {reads(dy), reads(saved(1))});
  one(1, m, {reads(dy), reads(saved(0))});
}

/// out = factor·s[r]·x: dx = factor·s[r]·dout; ds[r] = factor·Σ x·dout.
void Rules::operator()(const ScaleRows& s) {
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

void Rules::operator()(const AddRows& a) {
  const TensorId dy = tape_.gradient(in(2));
  if (dy.is_none()) return;
  if (tape_.wants(in(1))) {
    const auto target = tape_.parameter_target(in(1));
    tape_.emit(name(".db"), SumRows{a.rows, a.cols, a.period, target.accumulate, a.dtype},
               {reads(dy), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  }
  if (tape_.wants(in(0))) tape_.pass_through(in(0), dy);
}

void Rules::operator()(const Dropout& d) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  std::vector<Operand> operands{reads(dy)};
  if (d.by_row) operands.push_back(reads(in(1)));
  one(0, d, operands);
}

void Rules::operator()(const Cast& c) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, Cast{c.elements, c.to, c.from}, {reads(dy)});
}

void Rules::operator()(const BroadcastHeads& b) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, SumHeads{b.rows, b.heads, b.cols, b.dtype}, {reads(dy)});
}

void Rules::operator()(const CopyRows& c) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, c, {reads(dy)});
}

void Rules::operator()(const SwapAxes& s) {
  const TensorId dy = tape_.gradient(in(1));
  if (!dy.is_none()) one(0, SwapAxes{s.outer, s.b, s.a, s.inner, s.dtype}, {reads(dy)});
}

void Rules::operator()(const Gather& g) {
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
void Rules::operator()(const RotaryEmbedding& r) {
  const TensorId dy = tape_.gradient(node_.operands.back().tensor());
  if (dy.is_none()) return;
  RotaryEmbedding back = r;
  back.inverse = !r.inverse;
  tape_.emit(name(".dx"), back, {reads(in(0)), reads(in(1)), updates(dy)});
}

void Rules::operator()(const EmbeddingBagForward& e) {
  const TensorId d = tape_.gradient(in(3));
  if (d.is_none()) return;
  tape_.emit(name(".dw"), EmbeddingBagBackward{e.bags, e.lookups, e.cols, e.table_rows, e.mean, e.dtype},
             {reads(d), reads(in(1)), reads(in(2)), updates(tape_.added_parameter_target(in(0)))});
}

void Rules::operator()(const DotInteractionForward& f) {
  const TensorId d = tape_.gradient(in(1));
  if (!d.is_none()) one(0, DotInteractionBackward{f.batch, f.features, f.dim, f.dtype}, {reads(saved(0)), reads(d)});
}

/// A loss: the gradient takes the storage of the logits.
void Rules::operator()(const CrossEntropyForward& c) {
  const TensorId logits = saved(0);
  tape_.emit(name(".backward"), CrossEntropyBackward{c.rows, c.classes, c.weight, c.dtype},
             {updates(logits), reads(in(1)), reads(saved(2))});
  tape_.contribute(in(0), logits);
}

void Rules::operator()(const BinaryCrossEntropyForward& c) {
  one(0, BinaryCrossEntropyBackward{c.rows, c.weight, c.dtype}, {reads(saved(0)), reads(in(1))});
}

void Rules::operator()(const TopKGate& g) {
  const std::size_t p = g.bias ? 2 : 1;
  const TensorId dweights = tape_.gradient(in(p + 1));
  if (dweights.is_none()) return;
  one(0, TopKGateBackward{g.tokens, g.experts, g.top_k, g.score, g.normalise, g.scaling, g.dtype},
      {reads(saved(p)), reads(saved(p + 2)), reads(dweights)});
}

void Rules::operator()(const Permute& p) {
  const TensorId d = tape_.gradient(in(3));
  if (!d.is_none()) one(0, PermuteBackward{p.tokens, p.top_k, p.cols, p.dtype}, {reads(d), reads(saved(2))});
}

void Rules::operator()(const Unpermute& u) {
  const TensorId d = tape_.gradient(in(3));
  if (d.is_none()) return;
  const TensorId dy = tape_.contribution(in(0)), dw = tape_.contribution(in(2));
  tape_.emit(name(".dx"), UnpermuteBackward{u.tokens, u.top_k, u.cols, u.dtype, u.rows},
             {reads(saved(0)), reads(saved(1)), reads(saved(2)), reads(d), writes(dy), writes(dw)});
  tape_.contribute(in(0), dy);
  tape_.contribute(in(2), dw);
}

void Rules::operator()(const ConcatPrefix& c) {
  const TensorId d = tape_.gradient(in(2));
  if (d.is_none()) return;
  const auto target = tape_.parameter_target(in(1));
  const TensorId dx = tape_.contribution(in(0));
  tape_.emit(name(".dx"), ConcatPrefixBackward{c.batch, c.rows, c.cols, target.accumulate, c.dtype},
             {reads(d), writes(dx), target.accumulate ? updates(target.tensor) : writes(target.tensor)});
  tape_.contribute(in(0), dx);
}

void Rules::operator()(const MeanPool& m) {
  const TensorId d = tape_.gradient(in(1));
  if (!d.is_none()) one(0, MeanPoolBackward{m.batch, m.rows, m.cols, m.dtype}, {reads(d)});
}

}  // namespace

void backward(const TapeNode& node, Tape& tape) {
  std::visit([&](const auto& w) { Rules{node, tape}(w); }, node.work);
}

}  // namespace orrery
