// SPDX-License-Identifier: Apache-2.0
// What ranks of the axis tp compute together, as in Megatron-LM (arXiv 1909.08053): projections to heads and to the
// inner width are split by outputs, projections back by inputs, whose results are summed. Without sequence parallelism
// every rank has all rows between blocks: entering costs nothing forward and an all-reduce of the gradient backward,
// leaving an all-reduce forward and nothing backward. With it (arXiv 2205.05198) a rank has 1/tp of the rows:
// all-gather and reduce-scatter, in one direction and, exchanged, in the other; what weight gradients read of the rows
// of others is gathered a second time, beside the product for the input's gradient. With `tensor_overlap` the sum of an
// input's gradient runs beside the product for the gradient of the weight; with `tp_comm_overlap` rows cross in pieces
// (piecewise.hpp).
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"
#include "sim/strategy/piecewise.hpp"

namespace orrery {
namespace {

/// Whether ranks of tp have rows of their own between blocks.
bool gathers(const Roles& roles) { return roles.sequence_parallel || roles.data_attention; }

/// What is kept of every second product is that of whole ones.
bool multiplies_in_pieces(const Layers& l) {
  return l.roles().tp_comm_overlap && !l.recomputes(RecomputePart::AllButEverySecondProduct);
}

class Tensor1d final : public TensorScheme {
 public:
  LocalModel localise(const Model& model, const Roles& roles) const override { return cut_in_stripes(model, roles); }
  Split classes(const Roles& roles) const override { return roles.sums_logits ? Split{} : roles.tp; }

  TensorId enter(Layers& l, std::string_view name, TensorId x, std::span<const Reader> readers) const override;
  TensorId leave(Layers& l, std::string_view name, TensorId partial) const override;
  TensorId linear(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Linear& w) const override {
    const TensorId made = l.take_made(name);
    return made.is_none() ? l.product(name, x, rows, w) : made;
  }
  TensorId project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const override;
  TensorId project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return l.product(name, x, l.tape().plan().shape(x)[0], w);
  }
  TensorId norm(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Norm& n) const override {
    return l.row_norm(name, x, rows, n);
  }
  TensorId embed(Layers& l, std::string_view name, TensorId table, TensorId index) const override;
  TensorId logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    if (l.roles().sums_logits) return project_back(l, name, l.own_columns(fmt::format("{}.own", name), x), w);
    const TensorId all = enter(l, name, x, {});
    return l.product(name, all, l.tape().plan().shape(all)[0], w);
  }
};

TensorId Tensor1d::enter(Layers& l, std::string_view name, TensorId x, std::span<const Reader> readers) const {
  const Split& tp = l.roles().tp;
  if (!tp) return x;
  Tape& tape = l.tape();
  const Shape shape = tape.plan().shape(x);
  const DType dtype = l.sizes().dtype;
  // Behind the last product for it in the backward pass, beside that for the gradient of the weight.
  const Stream stream = l.roles().tensor_overlap ? Stream::Ring : Stream::Compute;
  if (!gathers(l.roles())) {
    const TensorId inner = tape.alias(x);
    const Collective sum = over(tp, CollectiveKind::AllReduce, shape.elements(), dtype);
    tape.on_backward([&tape, x, inner, sum, stream, name = fmt::format("{}.enter.sum", name)] {
      const TensorId dy = tape.gradient(inner);
      if (dy.is_none()) return;
      tape.builder().add(name, sum, {updates(dy)}, stream);
      tape.contribute(x, dy);
    });
    return inner;
  }
  const std::int64_t all = shape[0] * tp.ranks;
  const TensorId y = l.activation_tensor(fmt::format("{}.gathered", name), Shape{all, shape[1]});
  const Collective gather = over(tp, CollectiveKind::AllGather, all * shape[1], dtype);
  const bool in_pieces = multiplies_in_pieces(l) && !readers.empty();
  if (!in_pieces && (tape.recompute() || l.roles().keep_gathered)) {
    tape.add_plain(fmt::format("{}.enter", name), gather, {reads(x), writes(y)});
  } else {
    l.set_gathered(y, x);
    const RecomputeScope again{tape, true};
    const auto gather_all = [&b = tape.builder(), gather, name = fmt::format("{}.enter", name)](
                                std::span<const TensorId> t) { gather_rows(b, name, gather, t[0], t[1]); };
    if (in_pieces)
      tape.add_later_steps({reads(x), writes(y)}, gather_all);
    else
      tape.add_steps({reads(x), writes(y)}, gather_all);
  }
  const Collective scatter = over(tp, CollectiveKind::ReduceScatter, all * shape[1], dtype);
  tape.on_backward([&tape, x, y, scatter, stream, name = fmt::format("{}.enter.scatter", name)] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape.contribution(x);
    tape.builder().add(name, scatter, {reads(dy), writes(dx)}, stream);
    tape.contribute(x, dx);
  });
  if (in_pieces) enter_in_pieces(l, name, x, y, readers);
  return y;
}

TensorId Tensor1d::leave(Layers& l, std::string_view name, TensorId partial) const {
  const Split& tp = l.roles().tp;
  if (!tp) return partial;
  Tape& tape = l.tape();
  const Shape shape = tape.plan().shape(partial);
  const DType dtype = l.sizes().dtype;
  if (!gathers(l.roles())) {
    tape.add_plain(fmt::format("{}.leave", name), over(tp, CollectiveKind::AllReduce, shape.elements(), dtype),
                   {updates(partial)});
    return partial;
  }
  const TensorId y = l.activation_tensor(fmt::format("{}.scattered", name), Shape{shape[0] / tp.ranks, shape[1]});
  tape.add_plain(fmt::format("{}.leave", name), over(tp, CollectiveKind::ReduceScatter, shape.elements(), dtype),
                 {reads(partial), writes(y)});
  if (l.recomputes(RecomputePart::AllButEverySecondProduct)) tape.keep(y);
  const Collective gather = over(tp, CollectiveKind::AllGather, shape.elements(), dtype);
  tape.on_backward([&tape, partial, y, gather, name = fmt::format("{}.leave.gather", name)] {
    const TensorId dy = tape.gradient(y);
    if (dy.is_none()) return;
    const TensorId dx = tape.contribution(partial);
    tape.emit(name, gather, {reads(dy), writes(dx)});
    tape.contribute(partial, dx);
  });
  return y;
}

/// The bias is added to the sum.
TensorId Tensor1d::project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const {
  const std::int64_t rows = l.tape().plan().shape(x)[0];
  if (!l.roles().tp) return l.product(name, x, rows, w);
  if (multiplies_in_pieces(l)) return l.add_bias(name, project_back_in_pieces(l, name, x, w), w.bias);
  Linear product = w;
  product.bias = {};
  return l.add_bias(name, leave(l, name, l.product(name, x, rows, product)), w.bias);
}

TensorId Tensor1d::embed(Layers& l, std::string_view name, TensorId table, TensorId index) const {
  const Split& tp = l.roles().tp;
  const std::int64_t n = l.tape().plan().shape(index).elements();
  if (!tp) return l.gather(name, table, index, n);
  const TensorId local = l.local_indices(name, index, l.tape().plan().shape(table)[0], tp);
  return leave(l, name, l.gather(name, table, local, n));
}

/// What one rank does alone.
class Alone final : public TensorScheme {
 public:
  LocalModel localise(const Model& model, const Roles& roles) const override { return cut_in_stripes(model, roles); }
  Split classes(const Roles&) const override { return {}; }
  TensorId linear(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Linear& w) const override {
    return l.product(name, x, rows, w);
  }
  TensorId project_back(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return project_outside(l, name, x, w);
  }
  TensorId project_outside(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return l.product(name, x, l.tape().plan().shape(x)[0], w);
  }
  TensorId norm(Layers& l, std::string_view name, TensorId x, std::int64_t rows, const Norm& n) const override {
    return l.row_norm(name, x, rows, n);
  }
  TensorId embed(Layers& l, std::string_view name, TensorId table, TensorId index) const override {
    return l.gather(name, table, index, l.tape().plan().shape(index).elements());
  }
  TensorId logits(Layers& l, std::string_view name, TensorId x, const Linear& w) const override {
    return project_outside(l, name, x, w);
  }
};

}  // namespace

void gather_rows(PlanBuilder& b, std::string_view name, const Collective& gather, TensorId from, TensorId to) {
  const bool again = b.phase() == Phase::Recompute;
  const OpId before{b.plan().ops.size() - 1};
  b.add(again ? fmt::format("{}.again", name) : name, gather, {reads(from), writes(to)},
        again ? Stream::Ring : Stream::Compute);
  if (again && b.plan().ops[before.index()].phase != Phase::Forward) b.order(before);
}

const TensorScheme& alone() {
  static const Alone scheme;
  return scheme;
}

const TensorScheme& tensor_1d() {
  static const Tensor1d scheme;
  return scheme;
}

}  // namespace orrery
