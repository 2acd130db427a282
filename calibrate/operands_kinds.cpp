// SPDX-License-Identifier: Apache-2.0
// The operands of each kind, in the order that the comment of the kind gives.
#include "calibrate/operands.hpp"

namespace orrery {
namespace {

Shape matrix(std::int64_t batch, std::int64_t rows, std::int64_t cols) {
  return batch == 1 ? Shape{rows, cols} : Shape{batch, rows, cols};
}

/// Kinds that are not listed cannot stand alone.
bool add(OperandMaker&, const auto&) { return false; }

bool add(OperandMaker& m, const Gemm& g) {
  const Operand a = m.fresh(g.transpose_a ? matrix(g.batch, g.k, g.m) : matrix(g.batch, g.m, g.k));
  const Operand b = m.stored(g.transpose_b ? matrix(g.batch, g.n, g.k) : matrix(g.batch, g.k, g.n));
  std::vector<Operand> all{a, b};
  if (g.bias) all.push_back(m.stored({g.n}));
  const Shape c = matrix(g.batch, g.m, g.n);
  all.push_back(g.accumulate ? updated(m.stored(c)) : m.result(c));
  return m.emit(g, all), true;
}

bool add(OperandMaker& m, const GroupedGemm& g) {
  const Shape x{g.rows, g.k}, y{g.rows, g.n}, w = g.transpose_b ? Shape{g.groups, g.n, g.k} : Shape{g.groups, g.k, g.n};
  const Operand offsets = m.offsets(g.groups, g.rows);
  switch (g.mode) {
    case GroupedMode::Forward:
      return m.emit(g, {m.fresh(x), m.stored(w), offsets, m.result(y)}), true;
    case GroupedMode::InputGradient:
      return m.emit(g, {m.fresh(y), m.stored(w), offsets, m.result(x)}), true;
    case GroupedMode::WeightGradient:
      return m.emit(g, {m.stored(x), m.fresh(y), offsets, m.result(w)}), true;
  }
  return false;
}

struct AttentionTensors {
  Shape q, k, v, o, lse;
};
AttentionTensors shapes_of(const AttentionShape& s) {
  return {{s.batch, s.q, s.heads, s.qk_dim},
          {s.batch, s.kv.base, s.kv_heads, s.qk_dim},
          {s.batch, s.kv.base, s.kv_heads, s.v_dim},
          {s.batch, s.q, s.heads, s.v_dim},
          {s.batch, s.heads, s.q}};
}

/// Keys and values of a step are made right before; those of few queries come from a cache.
bool add(OperandMaker& m, const AttentionForward& a) {
  const AttentionTensors t = shapes_of(a.shape);
  const bool cached = a.shape.q < a.shape.kv.base;
  std::vector<Operand> all{m.fresh(t.q), cached ? m.stored(t.k) : m.fresh(t.k), cached ? m.stored(t.v) : m.fresh(t.v),
                           m.result(t.o)};
  if (a.keep_lse) all.push_back(m.result(t.lse));
  m.emit(a, all);
  return true;
}

bool add(OperandMaker& m, const AttentionBackward& a) {
  const AttentionTensors t = shapes_of(a.shape);
  m.emit(a, {m.stored(t.q), m.stored(t.k), m.stored(t.v), m.stored(t.o), m.stored(t.lse), m.fresh(t.o), m.result(t.q),
             m.result(t.k), m.result(t.v)});
  return true;
}

bool add(OperandMaker& m, const MergeAttention& a) {
  const Shape o{1, a.rows, a.heads, a.dim}, lse{1, a.heads, a.rows};
  return m.emit(a, {m.fresh(o), m.fresh(lse), updated(m.stored(o)), updated(m.stored(lse))}), true;
}
bool add(OperandMaker& m, const SoftmaxForward& s) {
  std::vector<Operand> all{m.fresh({s.rows, s.cols})};
  if (s.causal) all.push_back(m.counting(s.period, s.period)), all.push_back(m.counting(s.cols, s.cols));
  all.push_back(m.result({s.rows, s.cols}));
  m.emit(s, all);
  return true;
}
bool add(OperandMaker& m, const SoftmaxBackward& s) {
  const Shape x{s.rows, s.cols};
  return m.emit(s, {m.stored(x), m.fresh(x), m.result(x)}), true;
}

bool add(OperandMaker& m, const AppendCache& a) {
  m.emit(a, {m.fresh({a.batch, a.rows, a.cols}), updated(m.stored({a.batch, a.capacity, a.cols}))});
  return true;
}

bool add(OperandMaker& m, const NormForward& n) {
  const Shape x{n.rows, n.dim}, row{n.rows}, w{n.dim};
  if (n.kind == NormKind::Layer)
    m.emit(n, {m.fresh(x), m.stored(w), m.stored(w), m.result(x), m.result(row), m.result(row)});
  else
    m.emit(n, {m.fresh(x), m.stored(w), m.result(x), m.result(row)});
  return true;
}

bool add(OperandMaker& m, const NormBackward& n) {
  const Shape x{n.rows, n.dim}, row{n.rows}, w{n.dim};
  const auto out = [&] { return n.accumulate ? updated(m.stored(w)) : m.result(w); };
  if (n.kind == NormKind::Layer)
    m.emit(n, {m.stored(x), m.stored(w), m.stored(row), m.stored(row), m.fresh(x), m.result(x), out(), out()});
  else
    m.emit(n, {m.stored(x), m.stored(w), m.stored(row), m.fresh(x), m.result(x), out()});
  return true;
}

bool add(OperandMaker& m, const NormSums& n) {
  return m.emit(n, {m.fresh({n.rows, n.cols}), m.result({2, n.rows})}), true;
}
bool add(OperandMaker& m, const NormApply& n) {
  const Shape x{n.rows, n.cols}, row{n.rows}, w{n.cols};
  std::vector<Operand> all{m.stored(x), m.fresh({2, n.rows}), m.stored(w)};
  if (n.kind == NormKind::Layer) all.push_back(m.stored(w));
  all.push_back(m.result(x));
  if (n.kind == NormKind::Layer) all.push_back(m.result(row));
  all.push_back(m.result(row));
  m.emit(n, all);
  return true;
}
/// x w [mean] rstd dy, which both pieces of the gradient begin with.
std::vector<Operand> norm_gradient_reads(OperandMaker& m, NormKind kind, const Shape& x) {
  std::vector<Operand> all{m.stored(x), m.stored({x[1]}), m.stored({x[0]})};
  if (kind == NormKind::Layer) all.push_back(m.stored({x[0]}));
  all.push_back(m.fresh(x));
  return all;
}
bool add(OperandMaker& m, const NormBackwardSums& n) {
  std::vector<Operand> all = norm_gradient_reads(m, n.kind, {n.rows, n.cols});
  all.push_back(m.result({2, n.rows}));
  for (int i = 0; i < (n.kind == NormKind::Layer ? 2 : 1); ++i)
    all.push_back(n.accumulate ? updated(m.stored({n.cols})) : m.result({n.cols}));
  m.emit(n, all);
  return true;
}
bool add(OperandMaker& m, const NormBackwardApply& n) {
  std::vector<Operand> all = norm_gradient_reads(m, n.kind, {n.rows, n.cols});
  all.push_back(m.fresh({2, n.rows}));
  all.push_back(m.result({n.rows, n.cols}));
  m.emit(n, all);
  return true;
}

bool add(OperandMaker& m, const ActivationForward& a) {
  return m.emit(a, {m.fresh({a.rows, a.cols}), m.result({a.rows, a.cols})}), true;
}
bool add(OperandMaker& m, const ActivationBackward& a) {
  const Shape x{a.rows, a.cols};
  return m.emit(a, {m.stored(x), m.fresh(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const GatedForward& g) {
  const Shape x{g.rows, g.cols};
  return m.emit(g, {m.fresh(x), m.fresh(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const GatedBackward& g) {
  const Shape x{g.rows, g.cols};
  return m.emit(g, {m.stored(x), m.stored(x), m.fresh(x), m.result(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const Add& a) {
  const Shape x{a.rows, a.cols};
  return m.emit(a, {m.stored(x), m.fresh(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const Multiply& a) {
  const Shape x{a.rows, a.cols};
  return m.emit(a, {m.stored(x), m.fresh(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const ScaleRows& s) {
  const Shape x{s.rows, s.cols};
  if (s.by_row) return m.emit(s, {m.fresh(x), m.stored({s.rows}), m.result(x)}), true;
  return m.emit(s, {m.fresh(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const RowDot& d) {
  const Shape x{d.rows, d.cols};
  return m.emit(d, {m.stored(x), m.fresh(x), m.result({d.rows})}), true;
}
bool add(OperandMaker& m, const AddRows& a) {
  return m.emit(a, {m.fresh({a.rows, a.cols}), m.stored({a.period, a.cols}), m.result({a.rows, a.cols})}), true;
}
bool add(OperandMaker& m, const SumRows& s) {
  const Shape out{s.period, s.cols};
  return m.emit(s, {m.fresh({s.rows, s.cols}), s.accumulate ? updated(m.stored(out)) : m.result(out)}), true;
}
bool add(OperandMaker& m, const Fill& f) { return m.emit(f, {updated(m.stored({f.elements}))}), true; }
bool add(OperandMaker& m, const Dropout& d) {
  return m.emit(d, {m.fresh({d.rows, d.cols}), m.result({d.rows, d.cols})}), true;
}
bool add(OperandMaker& m, const Cast& c) {
  return m.emit(c, {m.stored({c.elements}, c.from), m.result({c.elements}, c.to)}), true;
}
bool add(OperandMaker& m, const BroadcastHeads& b) {
  return m.emit(b, {m.fresh({b.rows, b.cols}), m.result({1, b.rows, b.heads, b.cols})}), true;
}
bool add(OperandMaker& m, const SumHeads& s) {
  return m.emit(s, {m.fresh({1, s.rows, s.heads, s.cols}), m.result({s.rows, s.cols})}), true;
}

bool add(OperandMaker& m, const LocalIndices& l) {
  return m.emit(l,
                {m.random_indices(l.rows, 2 * l.classes), m.stored({1}, DType::I32), m.result({l.rows}, DType::I32)}),
         true;
}
bool add(OperandMaker& m, const Gather& g) {
  return m.emit(g,
                {m.stored({g.table_rows, g.cols}), m.random_indices(g.rows, g.table_rows), m.result({g.rows, g.cols})}),
         true;
}
bool add(OperandMaker& m, const ScatterAdd& s) {
  return m.emit(s, {m.fresh({s.rows, s.cols}), m.random_indices(s.rows, s.table_rows),
                    updated(m.stored({s.table_rows, s.cols}))}),
         true;
}
bool add(OperandMaker& m, const ScatterRows& s) {
  return m.emit(s, {m.fresh({s.rows, s.cols}), m.random_indices(s.rows, s.table_rows),
                    updated(m.stored({s.table_rows, s.cols}))}),
         true;
}
bool add(OperandMaker& m, const RotaryEmbedding& r) {
  const Shape table{r.sequence, r.rot_dim / 2};
  const Operand x = m.fresh({r.rows, r.heads, r.head_dim});
  return m.emit(r, {m.stored(table), m.stored(table), updated(x)}), true;
}
bool add(OperandMaker& m, const EmbeddingBagForward& e) {
  return m.emit(e, {m.stored({e.table_rows, e.cols}), m.random_indices(e.lookups, e.table_rows),
                    m.offsets(e.bags, e.lookups), m.result({e.bags, e.cols})}),
         true;
}
bool add(OperandMaker& m, const EmbeddingBagBackward& e) {
  return m.emit(e, {m.fresh({e.bags, e.cols}), m.random_indices(e.lookups, e.table_rows), m.offsets(e.bags, e.lookups),
                    updated(m.stored({e.table_rows, e.cols}))}),
         true;
}
std::int64_t interactions(std::int64_t features, std::int64_t dim) { return dim + features * (features - 1) / 2; }
bool add(OperandMaker& m, const DotInteractionForward& d) {
  return m.emit(d, {m.fresh({d.batch, d.features, d.dim}), m.result({d.batch, interactions(d.features, d.dim)})}), true;
}
bool add(OperandMaker& m, const DotInteractionBackward& d) {
  const Shape x{d.batch, d.features, d.dim};
  return m.emit(d, {m.stored(x), m.fresh({d.batch, interactions(d.features, d.dim)}), m.result(x)}), true;
}
bool add(OperandMaker& m, const RelativeBiasForward& r) {
  return m.emit(r, {m.stored({r.buckets, r.heads}), m.random_indices(r.q * r.kv.base, r.buckets),
                    m.result({r.heads, r.q, r.kv.base})}),
         true;
}
bool add(OperandMaker& m, const RelativeBiasBackward& r) {
  return m.emit(r, {m.random_indices(r.q * r.kv, r.buckets), m.fresh({r.heads, r.q, r.kv}),
                    updated(m.stored({r.buckets, r.heads}))}),
         true;
}

bool add(OperandMaker& m, const CrossEntropyForward& c) {
  return m.emit(c, {m.fresh({c.rows, c.classes}), m.random_indices(c.rows, c.classes), m.result({c.rows}),
                    updated(m.stored({1}))}),
         true;
}
bool add(OperandMaker& m, const CrossEntropyBackward& c) {
  const Operand x = m.fresh({c.rows, c.classes});
  return m.emit(c, {x, m.random_indices(c.rows, c.classes), m.stored({c.rows}), m.result({c.rows, c.classes})}), true;
}
bool add(OperandMaker& m, const MaskColumns& c) {
  const Operand x = m.fresh({c.rows, c.cols});
  return m.emit(c, {m.stored({1}, DType::I32), updated(x)}), true;
}
bool add(OperandMaker& m, const RowMax& c) { return m.emit(c, {m.fresh({c.rows, c.cols}), m.result({c.rows})}), true; }
bool add(OperandMaker& m, const CrossEntropySums& c) {
  return m.emit(c, {m.fresh({c.rows, c.classes}), m.random_indices(c.rows, c.classes), m.stored({c.rows}),
                    m.result({2, c.rows})}),
         true;
}
bool add(OperandMaker& m, const CrossEntropyFinish& c) {
  return m.emit(c, {m.random_indices(c.rows, 100), m.stored({c.rows}), m.fresh({2, c.rows}), m.result({c.rows}),
                    updated(m.stored({1}))}),
         true;
}
bool add(OperandMaker& m, const BinaryCrossEntropyForward& c) {
  return m.emit(c, {m.fresh({c.rows}), m.stored({c.rows}), updated(m.stored({1}))}), true;
}
bool add(OperandMaker& m, const BinaryCrossEntropyBackward& c) {
  return m.emit(c, {m.fresh({c.rows}), m.stored({c.rows}), m.result({c.rows})}), true;
}
bool add(OperandMaker& m, const Sample& s) {
  return m.emit(s, {m.random_values({s.rows, s.vocab}), m.result({s.rows}, DType::I32)}), true;
}

bool add(OperandMaker& m, const TreeMask& w) { return add_apart(m, w); }
bool add(OperandMaker& m, const CompactCache& w) { return add_apart(m, w); }
bool add(OperandMaker& m, const DraftCandidates& w) { return add_apart(m, w); }
bool add(OperandMaker& m, const AcceptTree& w) { return add_apart(m, w); }

bool add(OperandMaker& m, const TopKGate& g) {
  const Operand logits = m.random_values({g.tokens, g.experts});
  return m.emit(g, {logits, m.result({g.tokens, g.experts}), m.result({g.tokens, g.top_k}),
                    m.result({g.tokens, g.top_k}, DType::I32)}),
         true;
}
bool add(OperandMaker& m, const TopKGateBackward& g) {
  return m.emit(g, {m.stored({g.tokens, g.experts}), m.counting(g.tokens * g.top_k, g.experts),
                    m.fresh({g.tokens, g.top_k}), m.result({g.tokens, g.experts})}),
         true;
}
bool add(OperandMaker& m, const RouteMap& r) {
  const std::int64_t choices = r.tokens * r.top_k;
  return m.emit(r, {m.random_indices(choices, r.experts), m.result({r.experts + 1}, DType::I32),
                    m.result({choices}, DType::I32), m.result({choices}, DType::I32)}),
         true;
}
/// Nobody has rows, or sends any.
bool add(OperandMaker& m, const SplitRoutes& s) {
  const Operand offsets = m.random_indices(s.experts + 1, 1), parts = m.counting(SplitRoutes::kColumns * s.parts, 1, 1);
  return m.emit(s, {offsets, parts, m.result({s.parts, 2}, DType::I32)}), true;
}
bool add(OperandMaker& m, const MergeRoutes& r) {
  return m.emit(r, {m.random_indices(2 * r.ranks * r.experts, 1), m.result({r.ranks, r.experts, 2}, DType::I32),
                    m.result({r.experts + 1}, DType::I32)}),
         true;
}
bool add(OperandMaker& m, const Permute& p) {
  const std::int64_t rows = p.tokens * p.top_k;
  return m.emit(p, {m.fresh({p.tokens, p.cols}), m.random_indices(rows, p.tokens), m.result({rows, p.cols})}), true;
}
bool add(OperandMaker& m, const PermuteBackward& p) {
  const std::int64_t rows = p.tokens * p.top_k;
  return m.emit(p, {m.fresh({rows, p.cols}), m.counting(rows, rows), m.result({p.tokens, p.cols})}), true;
}
bool add(OperandMaker& m, const Unpermute& u) {
  const std::int64_t rows = u.tokens * u.top_k;
  return m.emit(u, {m.fresh({rows, u.cols}), m.counting(rows, rows), m.stored({u.tokens, u.top_k}),
                    m.result({u.tokens, u.cols})}),
         true;
}
bool add(OperandMaker& m, const UnpermuteBackward& u) {
  const std::int64_t rows = u.tokens * u.top_k;
  return m.emit(u, {m.stored({rows, u.cols}), m.counting(rows, rows), m.stored({u.tokens, u.top_k}),
                    m.fresh({u.tokens, u.cols}), m.result({rows, u.cols}), m.result({u.tokens, u.top_k})}),
         true;
}

bool add(OperandMaker& m, const Patchify& p) {
  const std::int64_t side = p.side / p.patch;
  return m.emit(p, {m.stored({p.batch, p.channels, p.side, p.side}),
                    m.result({p.batch * side * side, p.channels * p.patch * p.patch})}),
         true;
}
bool add(OperandMaker& m, const ConcatPrefix& c) {
  return m.emit(c, {m.fresh({c.batch, c.rows, c.cols}), m.stored({c.cols}), m.result({c.batch, c.rows + 1, c.cols})}),
         true;
}
bool add(OperandMaker& m, const ConcatPrefixBackward& c) {
  return m.emit(c, {m.fresh({c.batch, c.rows + 1, c.cols}), m.result({c.batch, c.rows, c.cols}),
                    c.accumulate ? updated(m.stored({c.cols})) : m.result({c.cols})}),
         true;
}
bool add(OperandMaker& m, const MeanPool& p) {
  return m.emit(p, {m.fresh({p.batch, p.rows, p.cols}), m.result({p.batch, p.cols})}), true;
}
bool add(OperandMaker& m, const MeanPoolBackward& p) {
  return m.emit(p, {m.fresh({p.batch, p.cols}), m.result({p.batch, p.rows, p.cols})}), true;
}

bool add(OperandMaker& m, const SumSquares& s) {
  return m.emit(s, {m.stored({s.elements}), updated(m.stored({1}, DType::F64))}), true;
}
bool add(OperandMaker& m, const Sgd& s) {
  const Shape x{s.elements};
  if (!s.has_velocity()) return m.emit(s, {updated(m.stored(x)), m.stored(x)}), true;
  return m.emit(s, {updated(m.stored(x)), m.stored(x), updated(m.stored(x))}), true;
}
bool add(OperandMaker& m, const AdamW& a) {
  const Shape x{a.elements};
  return m.emit(a, {updated(m.stored(x)), m.stored(x), updated(m.stored(x)), updated(m.stored(x))}), true;
}
bool add(OperandMaker& m, const Cholesky& c) { return m.emit(c, {m.unit_matrix(c.n), m.result({c.n, c.n})}), true; }
bool add(OperandMaker& m, const CholeskySolve& c) {
  return m.emit(c, {m.unit_matrix(c.n), m.fresh({c.n, c.columns}), m.result({c.n, c.columns})}), true;
}
bool add(OperandMaker& m, const Covariance& c) {
  std::vector<Operand> operands{m.stored({c.own ? c.history : c.points, c.columns})};
  if (!c.own) operands.push_back(m.stored({c.history, c.columns}));
  if (c.used > 0) operands.push_back(m.random_indices(c.used, c.columns));
  operands.push_back(m.result({c.points, c.history}));
  return m.emit(c, operands), true;
}
bool add(OperandMaker& m, const Copy& c) {
  const Shape x{static_cast<std::int64_t>(c.bytes.base()) / 4};
  return m.emit(c, {m.stored(x), m.result(x)}), true;
}
bool add(OperandMaker& m, const CopyRows& c) {
  return m.emit(c, {m.fresh({c.rows, c.cols}), m.result({c.rows, c.cols})}), true;
}
bool add(OperandMaker& m, const SwapAxes& s) {
  return m.emit(s, {m.fresh({s.outer, s.a, s.b, s.inner}), m.result({s.outer, s.b, s.a, s.inner})}), true;
}

}  // namespace

bool OperandMaker::add(const Work& work) {
  return std::visit([&](const auto& w) { return orrery::add(*this, w); }, work);
}

}  // namespace orrery
