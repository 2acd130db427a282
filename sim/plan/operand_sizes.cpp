// SPDX-License-Identifier: Apache-2.0
#include "sim/plan/operand_sizes.hpp"

namespace orrery {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Kinds that are not listed.
Sizes sizes_of(const auto&) { return {}; }

/// Matrices may be views, and one may stand for a batch.
Sizes sizes_of(const Gemm& g) {
  if (g.input == InputCast::None) return {};
  Sizes sizes{kAnySize, kAnySize};
  if (g.bias) sizes.push_back(g.n);
  if (g.writes_part() || g.input == InputCast::Read) sizes.push_back(g.num_scales());
  sizes.push_back(kAnySize);
  if (g.input == InputCast::Written) sizes.insert(sizes.end(), {g.cast_rows * g.k, 1});
  return sizes;
}
Sizes sizes_of(const GroupedGemm& g) {
  if (g.input == InputCast::None) return {};
  const std::int64_t rows = g.max_rows > 0 ? g.max_rows : g.rows;
  if (g.input == InputCast::Read) return {rows * g.k, rows * g.n, g.groups + 1, 1, kAnySize};
  return {rows * g.k, kAnySize, g.groups + 1, rows * g.n, rows * g.k, 1};
}

/// What both directions of attention read first: q k v [bias] [mask] [q_positions kv_positions] [first_keys]
/// [contexts]. Caches, and the positions of what they hold, may be longer than the keys in use.
Sizes attention_reads(const AttentionShape& s) {
  const bool bound = s.kv.is_bound();
  Sizes sizes{s.q_elements(), kAnySize, kAnySize};
  if (s.bias) sizes.push_back(bound ? kAnySize : s.heads * s.q * s.kv.base);
  if (s.mask_groups > 0) sizes.push_back(bound ? kAnySize : s.mask_groups * s.q * s.kv.base);
  if (s.positions) sizes.insert(sizes.end(), {s.q, bound ? kAnySize : s.kv.base});
  if (s.documents > 0) sizes.push_back(s.batch * s.q);
  if (s.contexts) sizes.push_back(s.batch);
  return sizes;
}

Sizes sizes_of(const AttentionForward& a) {
  if (!a.shape.positions && a.shape.documents == 0 && !a.shape.contexts) return {};
  Sizes sizes = attention_reads(a.shape);
  if (a.shape.tree > 0) sizes.push_back(a.shape.batch * a.shape.q * a.shape.tree);
  sizes.push_back(a.shape.o_elements());
  if (a.keep_lse) sizes.push_back(a.shape.batch * a.shape.heads * a.shape.q);
  return sizes;
}

Sizes sizes_of(const AttentionBackward& a) {
  const AttentionShape& s = a.shape;
  if (!s.positions && s.documents == 0) return {};
  Sizes sizes = attention_reads(s);
  const std::int64_t o = s.o_elements(), k = s.k_elements({}), v = s.v_elements({});
  sizes.insert(sizes.end(), {o, s.batch * s.heads * s.q, o, s.q_elements(), k, v});
  if (s.bias) sizes.push_back(s.heads * s.q * s.kv.base);
  return sizes;
}

/// Pools may be of any size.
Sizes sizes_of(const PagedAttention& p) {
  return {p.rows * p.heads * p.qk_dim, kAnySize, kAnySize, p.sequences * p.max_pages, p.sequences + 1, p.sequences,
          p.rows * p.heads * p.v_dim};
}
Sizes sizes_of(const ScatterRows& s) { return {s.rows * s.cols, s.rows, s.table_rows * s.cols}; }

Sizes sizes_of(const MergeAttention& m) {
  const std::int64_t lse = m.rows * m.heads, o = lse * m.dim;
  return {o, lse, o, lse};
}
Sizes sizes_of(const SoftmaxForward& s) {
  const std::int64_t x = s.rows * s.cols;
  return s.causal ? Sizes{x, s.period, s.cols, x} : Sizes{x, x};
}
Sizes sizes_of(const SoftmaxBackward& s) {
  const std::int64_t x = s.rows * s.cols;
  return {x, x, x};
}

Sizes sizes_of(const AppendCache& a) {
  if (!a.contexts) return {};
  return {a.batch * a.rows * a.cols, a.batch, kAnySize};
}
Sizes sizes_of(const TreeMask& t) { return {t.batch * t.slots, t.batch * t.rows * t.slots}; }
Sizes sizes_of(const DraftCandidates& d) {
  Sizes sizes{d.rows * d.vocab, d.rows * d.k, d.rows * d.k};
  if (d.drawn) sizes.push_back(d.rows * d.vocab);
  return sizes;
}
Sizes sizes_of(const AcceptTree& a) {
  const std::int64_t nodes = a.batch * a.nodes;
  Sizes sizes{nodes * a.vocab, nodes, nodes};
  if (a.drafts) sizes.insert(sizes.end(), {kAnySize, nodes});
  sizes.insert(sizes.end(), {a.batch * (a.depth + 1), a.batch});
  return sizes;
}
Sizes sizes_of(const CompactCache& c) {
  return {c.batch, c.batch * (c.rows + 1), c.caches * c.batch * c.capacity * c.cols};
}

Sizes sizes_of(const NormSums& n) { return {n.rows * n.cols, 2 * n.rows}; }
Sizes sizes_of(const NormBackwardApply& n) {
  const std::int64_t x = n.rows * n.cols;
  if (n.kind == NormKind::Layer) return {x, n.cols, n.rows, n.rows, x, 2 * n.rows, x};
  return {x, n.cols, n.rows, x, 2 * n.rows, x};
}

Sizes sizes_of(const LocalIndices& l) { return {l.rows, 1, l.rows}; }
Sizes sizes_of(const MaskColumns& m) { return {1, m.rows * m.cols}; }
Sizes sizes_of(const RowMax& m) { return {m.rows * m.cols, m.rows}; }
Sizes sizes_of(const CrossEntropySums& c) { return {c.rows * c.classes, c.rows, c.rows, 2 * c.rows}; }
Sizes sizes_of(const CrossEntropyFinish& c) { return {c.rows, c.rows, 2 * c.rows, c.rows, 1}; }

Sizes sizes_of(const TopKGate& g) {
  if (!g.sparse) return {};
  const std::int64_t scores = g.tokens * g.experts, choices = g.tokens * g.top_k;
  if (g.sparse.by_row) return {scores, g.tokens, scores, choices, choices};
  return {scores, scores, choices, choices};
}
Sizes sizes_of(const RouteMap& r) {
  const std::int64_t choices = r.tokens * r.top_k;
  return {choices, r.experts + 1, r.rows(), choices};
}
Sizes sizes_of(const SplitRoutes& s) { return {s.experts + 1, SplitRoutes::kColumns * s.parts, 2 * s.parts}; }
Sizes sizes_of(const MergeRoutes& m) {
  const std::int64_t spans = 2 * m.ranks * m.experts;
  return {spans, spans, m.experts + 1};
}
Sizes sizes_of(const SwapAxes& s) {
  const std::int64_t x = s.outer * s.a * s.b * s.inner;
  return {x, x};
}
Sizes sizes_of(const Dropout& d) {
  Sizes sizes(d.mask == KeptMask::None ? 2 : 3, d.rows * d.cols);
  if (d.by_row) sizes.insert(sizes.begin() + 1, d.rows);
  return sizes;
}

Sizes sizes_of(const Covariance& c) {
  Sizes sizes;
  if (!c.own) sizes.push_back(c.points * c.columns);
  sizes.push_back(c.history * c.columns);
  if (c.used > 0) sizes.push_back(c.used);
  sizes.push_back(c.points * c.history);
  return sizes;
}

/// Between the states and `decayed` may stand a squared norm.
Sizes sizes_of(const Sgd& s) {
  if (!s.partly) return {};
  Sizes sizes(s.has_velocity() ? 3 : 2, s.elements);
  if (s.max_norm > 0) sizes.push_back(1);
  sizes.push_back(1);
  return sizes;
}
Sizes sizes_of(const AdamW& a) {
  if (!a.partly) return {};
  Sizes sizes(a.master ? 5 : 4, a.elements);
  if (a.max_norm > 0) sizes.push_back(1);
  sizes.push_back(1);
  return sizes;
}

}  // namespace

std::vector<std::int64_t> operand_sizes(const Work& work) {
  return std::visit([](const auto& w) { return sizes_of(w); }, work);
}

}  // namespace orrery
