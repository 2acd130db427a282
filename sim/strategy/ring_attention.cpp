// SPDX-License-Identifier: Apache-2.0
// Ring attention (arXiv 2310.01889): a rank of cp keeps its queries, keys and values go round. What it computes from
// one block of keys is merged by the log-sum-exp of the rows, so scores are never stored. The next block is under way
// while one is computed. In the backward pass keys and values go round again, and their gradients follow one block
// behind. n ranks send, per layer and in elements of K and V: n − 1 blocks forward; n − 1 of them and n − 1 of
// gradients back.
#include <fmt/format.h>

#include "sim/strategy/context_parallel.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

/// One attention on the ring: what its passes emit, given tensors.
class RingAttention {
 public:
  PlanBuilder* builder;
  std::string name;
  Split cp;
  AttentionShape shape;               // of the queries and keys of one rank
  std::vector<TensorId> positions;    // per hop: of the keys at hand; none where every query sees all or none
  std::vector<std::int64_t> visible;  // per hop: pairs in one sequence

  struct Tensors {
    TensorId q, k, v, o, lse;
  };
  struct Gradients {
    TensorId o, q, k, v;
  };
  void forward(const Tensors& t) const;
  void backward(const Tensors& t, const Gradients& g) const;

 private:
  /// Keys and values, or their gradients, as one message.
  struct Block {
    TensorId all, k, v;
  };
  std::int64_t k_elements() const { return shape.k_elements({}); }
  std::int64_t elements() const { return k_elements() + shape.v_elements({}); }
  TensorId tensor(std::string_view suffix, const Shape& s) const {
    return builder->tensor(name + std::string{suffix}, s, {.dtype = shape.dtype});
  }
  Block block(TensorId all) const;
  Block new_block(std::string_view suffix) const { return block(tensor(suffix, Shape{elements()})); }
  TensorId packed(TensorId k, TensorId v) const;
  AttentionShape shape_at(std::size_t hop) const;
  void read_positions(std::size_t hop, std::vector<Operand>& operands) const;
  void attend(std::size_t hop, const Tensors& t) const;
  void differentiate(std::size_t hop, const Tensors& t, const Gradients& g) const;
  void add_rows(TensorId sum, TensorId x) const;
};

RingAttention::Block RingAttention::block(TensorId all) const {
  const auto part = [&](std::int64_t dim, std::int64_t offset) {
    Layout layout = Layout::contiguous(Shape{shape.batch, shape.kv.base, shape.kv_heads, dim});
    layout.offset = offset;
    return builder->view(all, name + ".block", layout);
  };
  return {all, part(shape.qk_dim, 0), part(shape.v_dim, k_elements())};
}

TensorId RingAttention::packed(TensorId k, TensorId v) const {
  const Block to = new_block(".packed");
  const std::int64_t rows = shape.batch * shape.kv.base;
  builder->add(name + ".pack_k", CopyRows{rows, shape.kv_heads * shape.qk_dim, shape.dtype}, {reads(k), writes(to.k)});
  builder->add(name + ".pack_v", CopyRows{rows, shape.kv_heads * shape.v_dim, shape.dtype}, {reads(v), writes(to.v)});
  return to.all;
}

AttentionShape RingAttention::shape_at(std::size_t hop) const {
  AttentionShape s = shape;
  s.positions = s.causal;
  s.visible = s.causal ? visible[hop] : 0;
  return s;
}

void RingAttention::read_positions(std::size_t hop, std::vector<Operand>& operands) const {
  if (shape.causal) operands.insert(operands.end(), {reads(positions[0]), reads(positions[hop])});
}

void RingAttention::attend(std::size_t hop, const Tensors& t) const {
  std::vector<Operand> operands{reads(t.q), reads(t.k), reads(t.v)};
  read_positions(hop, operands);
  operands.insert(operands.end(), {writes(t.o), writes(t.lse)});
  builder->add(fmt::format("{}.core.{}", name, hop), AttentionForward{.shape = shape_at(hop)}, operands);
}

void RingAttention::forward(const Tensors& t) const {
  Ring ring{*builder, cp, name + ".kv", Stream::Ring};
  const TensorId part_o = tensor(".part_o", builder->plan().shape(t.o)),
                 part_lse = tensor(".part_lse", builder->plan().shape(t.lse));
  TensorId kv = packed(t.k, t.v);
  for (std::size_t hop = 0; hop < visible.size(); ++hop) {
    const TensorId next = hop + 1 < visible.size() ? ring.pass_on(kv) : TensorId{};
    if (hop == 0) {
      attend(hop, t);
    } else if (visible[hop] > 0) {
      const Block at_hand = block(kv);
      attend(hop, {t.q, at_hand.k, at_hand.v, part_o, part_lse});
      builder->add(fmt::format("{}.merge.{}", name, hop),
                   MergeAttention{shape.batch * shape.q, shape.heads, shape.v_dim, shape.dtype},
                   {reads(part_o), reads(part_lse), updates(t.o), updates(t.lse)});
    }
    kv = next;
  }
}

/// Adds to the gradient of q, but on the first hop, which writes it; writes those of k and v.
void RingAttention::differentiate(std::size_t hop, const Tensors& t, const Gradients& g) const {
  std::vector<Operand> operands{reads(t.q), reads(t.k), reads(t.v)};
  read_positions(hop, operands);
  operands.insert(operands.end(), {reads(t.o), reads(t.lse), reads(g.o), hop == 0 ? writes(g.q) : updates(g.q),
                                   writes(g.k), writes(g.v)});
  builder->add(fmt::format("{}.core.{}.backward", name, hop), AttentionBackward{shape_at(hop)}, operands);
}

/// The rank's own keys come first; their gradient waits. That of the others goes on from rank to rank behind the keys,
/// and is at home after n − 1 hops.
void RingAttention::backward(const Tensors& t, const Gradients& g) const {
  Ring ring{*builder, cp, name + ".kv", Stream::Ring}, back{*builder, cp, name + ".kv_grad", Stream::Ring};
  TensorId kv = packed(t.k, t.v), sum;
  for (std::size_t hop = 0; hop < visible.size(); ++hop) {
    const TensorId next = hop + 1 < visible.size() ? ring.pass_on(kv) : TensorId{};
    if (hop == 0) {
      differentiate(hop, t, g);
    } else {
      const Block at_hand = block(kv), mine = visible[hop] > 0 || hop == 1 ? new_block(".part_grad") : Block{};
      if (visible[hop] > 0)
        differentiate(hop, {t.q, at_hand.k, at_hand.v, t.o, t.lse}, {g.o, g.q, mine.k, mine.v});
      else if (hop == 1)
        builder->add(name + ".no_grad", Fill{.elements = elements(), .dtype = shape.dtype}, {writes(mine.all)});
      if (hop > 1 && visible[hop] > 0) add_rows(sum, mine.all);
      sum = back.pass_on(hop == 1 ? mine.all : sum);
    }
    kv = next;
  }
  const Block home = block(sum);
  add_rows(g.k, home.k);
  add_rows(g.v, home.v);
}

/// sum += x; heads of sum may lie apart, and be narrower than their distance.
void RingAttention::add_rows(TensorId sum, TensorId x) const {
  const Layout& l = builder->plan().layouts[builder->plan().tensors[sum.index()].layout.index()];
  std::int64_t cols = l.shape[l.shape.rank - 1];
  if (l.shape.rank == 4 && l.strides[2] == cols) cols *= l.shape[2];
  builder->add(name + ".kv_grad.sum", Add{.rows = l.shape.elements() / cols, .cols = cols, .dtype = shape.dtype},
               {updates(sum), reads(x)});
}

}  // namespace

TensorId Layers::ring_attention(std::string_view name, const Projected& p, const Attention& a) {
  const Split& cp = roles().cp;
  const std::int64_t b = sizes_.batch, s = sizes_.sequence;
  RingAttention ring{&tape_.builder(), fmt::format("{}.ring", name), cp, attention_shape(a, b, s, Extent{s}), {}, {}};
  // Where ranks of cp see unequally many pairs each of them is a class; else the first stands for all.
  const RankClass& ranks = tape_.plan().classes[tape_.builder().rank_class().index()];
  const std::int64_t rank = ranks.ranges[static_cast<std::size_t>(cp.axes.front())].first;
  for (std::int64_t hop = 0; hop < cp.ranks; ++hop) {
    ring.visible.push_back(a.causal ? slices().causal_pairs(rank, origin(cp, rank, hop)) : s * s);
    ring.positions.push_back(a.causal && ring.visible.back() > 0 ? context_positions(hop, 1) : TensorId{});
  }
  const TensorId o = activation_tensor(fmt::format("{}.core", name), Shape{b * s, a.heads * a.v_dim});
  const TensorId o4 = heads_view(o, b, s, a.heads, a.v_dim, a.v_dim, 0);
  const TensorId lse = activation_tensor(fmt::format("{}.lse", name), Shape{b, a.heads, s});
  tape_.add_steps({reads(p.q), reads(p.k), reads(p.v), writes(o4), writes(lse)}, [ring](std::span<const TensorId> t) {
    ring.forward({t[0], t[1], t[2], t[3], t[4]});
  });
  tape_.on_backward([tape = &tape_, ring, p, o4, lse] {
    const TensorId d_o = tape->gradient(o4);
    if (d_o.is_none()) return;
    const RingAttention::Tensors t{tape->saved(p.q), tape->saved(p.k), tape->saved(p.v), tape->saved(o4),
                                   tape->saved(lse)};
    const RingAttention::Gradients g{d_o, tape->contribution(p.q), tape->contribution(p.k), tape->contribution(p.v)};
    ring.backward(t, g);
    tape->contribute(p.q, g.q);
    tape->contribute(p.k, g.k);
    tape->contribute(p.v, g.v);
  });
  return o;
}

}  // namespace orrery
