// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/strategy/model_parts.hpp"

namespace orrery {

Layers::Layers(Tape& tape, const Arrangements& arrangements, ParameterStorage& weights, const Sizes& sizes)
    : tape_{tape}, arrangements_{arrangements}, weights_{weights}, sizes_{sizes} {
  start_in(arrangements.outside());
}

void Layers::start_in(const Arrangement& arrangement) {
  arrangement_ = &arrangement;
  scheme_ = &scheme_of(arrangement.roles());
  ffn_scheme_ = &feed_forward_scheme_of(arrangement.roles());
  sizes_.batch = arrangement.slices.batch;
}

void Layers::set_way(std::int64_t i, std::int64_t count, bool is_alone) {
  way_ = i;
  ways_ = count;
  scheme_ = is_alone ? &alone() : &scheme_of(roles());
  ffn_scheme_ = is_alone ? scheme_ : &feed_forward_scheme_of(roles());
}

TensorId Layers::activation_tensor(std::string_view name, const Shape& shape) {
  return tape_.builder().tensor(name, shape, {.dtype = sizes_.dtype});
}

TensorId Layers::index_tensor(std::string_view name, const Shape& shape) {
  return tape_.builder().tensor(name, shape, {.dtype = DType::I32});
}

TensorId Layers::constant(std::string_view name, const Shape& shape, DType dtype,
                          std::function<std::vector<double>()> values) {
  return rank_constant(name, shape, dtype,
                       [values = std::move(values)](std::span<const std::int64_t>) { return values(); });
}

TensorId Layers::rank_constant(std::string_view name, const Shape& shape, DType dtype,
                               std::function<std::vector<double>(std::span<const std::int64_t>)> values) {
  PlanBuilder& builder = tape_.builder();
  Plan& plan = builder.plan();
  const NameId id = plan.names.intern(name);
  for (const Constant& c : plan.constants)
    if (c.rank_class == builder.rank_class() && plan.tensors[c.tensor.index()].name == id) return c.tensor;
  const TensorId t = builder.tensor(name, shape, {.dtype = dtype, .role = TensorRole::Constant, .persistent = true});
  plan.constants.push_back({t, builder.rank_class(), std::move(values)});
  return t;
}

Gemm Layers::product_of(std::int64_t rows, const Linear& l) const {
  return {.m = rows,
          .n = l.out,
          .k = l.in,
          .transpose_b = l.layout == WeightLayout::OutIn,
          .bias = !l.bias.is_none(),
          .narrow = tape_.builder().layer() >= 0 ? sizes_.narrow : Narrow::None,
          .dtype = sizes_.dtype,
          .weights = quantised_weights()};
}

TensorId Layers::take_made(std::string_view name) {
  const auto node = made_.extract(std::string{name});
  return node.empty() ? TensorId{} : node.mapped();
}

TensorId Layers::product(std::string_view name, TensorId x, std::int64_t rows, const Linear& l) {
  const TensorId y = activation_tensor(name, Shape{rows, l.out});
  Gemm gemm = product_of(rows, l);
  std::vector<Operand> operands{reads(x), reads(weight(l.weight))};
  if (gemm.bias) operands.push_back(reads(weight(l.bias)));
  const KeptCast kept =
      gemm.narrow == Narrow::EightBits ? keep_cast(name, x, rows, l.in, weight(l.weight)) : KeptCast{};
  if (!kept.is_none()) {
    gemm.input = InputCast::Written;
    gemm.cast_rows = kept.rows;
    if (gemm.writes_part()) operands.push_back(reads(kept.first));
  }
  operands.push_back(writes(y));
  if (!kept.is_none()) operands.insert(operands.end(), {writes(kept.numbers), writes(kept.scale)});
  tape_.add(name, gemm, operands);
  if (recomputes(RecomputePart::AllButEverySecondProduct) && products_++ % 2 == 0) tape_.keep(y);
  return y;
}

TensorId Layers::linear_as_is(std::string_view name, TensorId x, std::int64_t rows, const Linear& l) {
  const Narrow narrow = std::exchange(sizes_.narrow, sizes_.training ? Narrow::None : sizes_.narrow);
  const TensorId y = linear(name, x, rows, l);
  sizes_.narrow = narrow;
  return y;
}

TensorId Layers::row_norm(std::string_view name, TensorId x, std::int64_t rows, const Norm& n) {
  const TensorId y = activation_tensor(name, Shape{rows, n.dim});
  const TensorId rstd = activation_tensor(fmt::format("{}.rstd", name), Shape{rows});
  const NormForward op{.kind = n.kind,
                       .rows = rows,
                       .dim = n.dim,
                       .epsilon = n.epsilon,
                       .dtype = sizes_.dtype,
                       .weighted = !n.weight.is_none()};
  std::vector<Operand> operands{reads(x)};
  if (op.weighted) operands.push_back(reads(weight(n.weight)));
  if (!n.bias.is_none()) operands.push_back(reads(weight(n.bias)));
  operands.push_back(writes(y));
  if (n.kind == NormKind::Layer)
    operands.push_back(writes(activation_tensor(fmt::format("{}.mean", name), Shape{rows})));
  operands.push_back(writes(rstd));
  tape_.add(name, op, operands);
  return y;
}

/// A copy of x with a bias on its rows; x where there is none.
TensorId Layers::add_bias(std::string_view name, TensorId x, ParameterId bias) {
  if (bias.is_none()) return x;
  const Shape shape = tape_.plan().shape(x);
  const TensorId y = activation_tensor(fmt::format("{}.biased", name), shape);
  tape_.add(fmt::format("{}.bias", name), AddRows{shape[0], shape[1], 1, sizes_.dtype},
            {reads(x), reads(weight(bias)), writes(y)});
  return y;
}

TensorId Layers::activation(std::string_view name, ActivationKind kind, TensorId x, std::int64_t rows,
                            std::int64_t cols) {
  const TensorId y = activation_tensor(name, Shape{rows, cols});
  tape_.add(name, ActivationForward{kind, rows, cols, sizes_.dtype}, {reads(x), writes(y)});
  return y;
}

TensorId Layers::add(std::string_view name, TensorId a, TensorId b) {
  const Shape shape = tape_.plan().shape(a);
  const TensorId out = activation_tensor(name, shape);
  const std::int64_t cols = shape[shape.rank - 1];
  tape_.add(name, Add{shape.elements() / cols, cols, sizes_.dtype}, {reads(a), reads(b), writes(out)});
  return out;
}

TensorId Layers::gather(std::string_view name, TensorId table, TensorId index, std::int64_t rows) {
  const Shape shape = tape_.plan().shape(table);
  const TensorId out = activation_tensor(name, Shape{rows, shape[1]});
  tape_.add(
      name,
      Gather{
          .rows = rows, .cols = shape[1], .table_rows = shape[0], .first = 0, .last = shape[0], .dtype = sizes_.dtype},
      {reads(table), reads(index), writes(out)});
  return out;
}

/// A table of `ranks` parts of each row, of which a rank gathers its own.
TensorId Layers::own_columns(std::string_view name, TensorId x) {
  const Split& tp = roles().tp;
  const Shape shape = tape_.plan().shape(x);
  const TensorId parts = tape_.builder().view(x, fmt::format("{}.parts", name),
                                              Layout::contiguous(Shape{shape[0] * tp.ranks, shape[1] / tp.ranks}));
  const TensorId index = rank_constant(fmt::format("{}.{}", name, shape[0]), Shape{shape[0]}, DType::I32,
                                       [rows = shape[0], tp, slices = slices()](std::span<const std::int64_t> at) {
                                         std::vector<double> own(static_cast<std::size_t>(rows));
                                         for (std::size_t r = 0; r < own.size(); ++r)
                                           own[r] = double(static_cast<std::int64_t>(r) * tp.ranks + slices.at(tp, at));
                                         return own;
                                       });
  return gather(name, parts, index, shape[0]);
}

TensorId Layers::pack(TensorId x) {
  if (packing_.rows == 0) return x;
  packed_ = true;
  return gather("pack", x, packing_.valid, packing_.rows);
}

TensorId Layers::restore(TensorId x) {
  if (!packing_.restored) return x;
  x = pad("restore", x);
  packed_ = false;
  return x;
}

/// From packed rows to samples side by side, zeros in place of padding, and back.
TensorId Layers::pad(std::string_view name, TensorId x) {
  return packed_ ? gather(fmt::format("{}.pad", name), x, packing_.padded, padded_rows()) : x;
}
TensorId Layers::unpad(std::string_view name, TensorId x) {
  return packed_ ? gather(fmt::format("{}.unpad", name), x, packing_.valid, packing_.rows) : x;
}

TensorId Layers::dropout(std::string_view name, TensorId x) {
  if (!sizes_.training || sizes_.dropout <= 0) return x;
  const Shape shape = tape_.plan().shape(x);
  Dropout op{.rows = shape[0],
             .cols = shape[1],
             .global_cols = shape[1],
             .first_row = sizes_.microbatch * rows(),
             .probability = sizes_.dropout,
             .seed = sizes_.seed,
             .stream = ++dropout_stream_,
             .step = Extent{0, Symbol::Step},
             .dtype = sizes_.dtype};
  if (slices().mesh.size() == 1) return drop(name, x, op, {});
  // Numbered as in the whole batch, each rank's part of a row as a row of its own.
  const TensorId ids = rank_constant(fmt::format("rows.{}{}", sizes_.microbatch, arrangements_.suffix(*arrangement_)),
                                     Shape{shape[0]}, DType::I32,
                                     [slices = slices(), m = sizes_.microbatch,
                                      columns = scheme_->columns(roles())](std::span<const std::int64_t> at) {
                                       std::vector<double> ids;
                                       const std::int64_t part = slices.at(columns, at);
                                       for (const std::int64_t r : slices.outer(slices.rows(at, m), at))
                                         ids.push_back(double(r * columns.ranks + part));
                                       return ids;
                                     });
  return drop(name, x, op, ids);
}

/// Rows of x are numbered from first_row on, or as `ids` say.
TensorId Layers::drop(std::string_view name, TensorId x, Dropout op, TensorId ids) {
  const Shape shape = tape_.plan().shape(x);
  std::vector<Operand> operands{reads(x)};
  if (!ids.is_none()) {
    op.by_row = true, op.first_row = 0;
    operands.push_back(reads(ids));
  }
  const TensorId y = activation_tensor(name, shape);
  operands.push_back(writes(y));
  if (sizes_.dropout_masks) {
    op.mask = KeptMask::Written;
    operands.push_back(writes(tape_.builder().tensor(fmt::format("{}.mask", name), shape, {.dtype = DType::U8})));
  }
  tape_.add(name, op, operands);
  return y;
}

TensorId Layers::scale(std::string_view name, TensorId x, double factor) {
  if (factor == 1.0) return x;
  const Shape shape = tape_.plan().shape(x);
  const TensorId y = activation_tensor(name, shape);
  const std::int64_t cols = shape[shape.rank - 1];
  tape_.add(name, ScaleRows{.rows = shape.elements() / cols, .cols = cols, .factor = factor, .dtype = sizes_.dtype},
            {reads(x), writes(y)});
  return y;
}

TensorId Layers::soft_step(std::string_view name, TensorId x, double scale, double cap) {
  const Shape shape = tape_.plan().shape(x);
  const std::int64_t cols = shape[shape.rank - 1];
  const TensorId part = this->scale(fmt::format("{}.part", name), x, scale / cap), y = activation_tensor(name, shape);
  tape_.add(name,
            ActivationForward{
                .kind = ActivationKind::Tanh, .rows = shape.elements() / cols, .cols = cols, .dtype = sizes_.dtype},
            {reads(part), writes(y)});
  return y;
}

TensorId Layers::bounded_logits(TensorId x) {
  const auto cap = std::get<Transformer>(model().network).logit_cap;
  return cap ? scale("logits.bounded", soft_step("logits.tanh", x, 1, *cap), *cap) : x;
}

bool Layers::recomputes(RecomputePart part) const {
  const auto& parts = sizes_.recompute_parts;
  return sizes_.training && arrangement_->recompute == Recompute::Selective &&
         std::find(parts.begin(), parts.end(), part) != parts.end();
}

TensorId Layers::block_norm(std::string_view name, TensorId x, std::int64_t rows, const Norm& n) {
  const RecomputeScope scope{tape_, recomputes(RecomputePart::Norms)};
  return norm(name, x, rows, n);
}

/// Up to the activation: what the projection back reads.
TensorId Layers::mlp_inner(std::string_view name, TensorId x, std::int64_t rows, const Mlp& m) {
  if (!m.gate) {
    const TensorId up = linear(fmt::format("{}.up", name), x, rows, m.up);
    const RecomputeScope scope{tape_, recomputes(RecomputePart::Activations)};
    return activation(fmt::format("{}.act", name), m.activation, up, rows, m.up.out);
  }
  const TensorId gate = linear(fmt::format("{}.gate", name), x, rows, *m.gate);
  const TensorId up = linear(fmt::format("{}.up", name), x, rows, m.up);
  const TensorId y = activation_tensor(fmt::format("{}.act", name), Shape{rows, m.up.out});
  const RecomputeScope scope{tape_, recomputes(RecomputePart::Activations)};
  tape_.add(fmt::format("{}.act", name), GatedForward{m.activation, rows, m.up.out, sizes_.dtype},
            {reads(gate), reads(up), writes(y)});
  return y;
}

TensorId Layers::mlp(std::string_view name, TensorId x, const Mlp& m) {
  const RecomputeScope scope{tape_, recomputes(RecomputePart::FeedForward)};
  std::vector<Reader> readers{{fmt::format("{}.up", name), &m.up}};
  if (m.gate) readers.insert(readers.begin(), {fmt::format("{}.gate", name), &*m.gate});
  const TensorId all = enter_feed_forward(name, x, readers);
  return ffn_scheme_->project_back(*this, fmt::format("{}.down", name),
                                   mlp_inner(name, all, tape_.plan().shape(all)[0], m), m.down);
}

TensorId Layers::feed_forward(std::string_view name, TensorId x, const Block& b) {
  if (const auto* m = std::get_if<Mlp>(&b.ffn)) return mlp(fmt::format("{}.mlp", name), x, *m);
  const std::string moe_name = fmt::format("{}.moe", name);
  const RecomputeScope scope{tape_, recomputes(RecomputePart::Experts)};
  const auto& experts = std::get<MoE>(b.ffn);
  if (roles().fold_experts()) return moe(moe_name, x, outer_rows(), experts);
  const TensorId all = enter_feed_forward(moe_name, x);
  return leave_feed_forward(moe_name, moe(moe_name, all, tape_.plan().shape(all)[0], experts));
}

/// Passes of the schedule that run before the backward pass of this block.
void Layers::follow_chain(int index, std::size_t first, TensorId output) {
  tape_.add_scope(index, first, output);
  const auto again = sizes_.chain->again.find(index);
  if (again == sizes_.chain->again.end()) return;
  tape_.on_backward([&tape = tape_, passes = again->second] {
    for (const BlockPass& p : passes) tape.run_again(p.block, p.saves);
  });
}

/// Pre-norm: x + f(norm(x)), of whose f(…) there may be a norm and a multiple; post-norm: norm(x + f(x)).
TensorId Layers::block(int index, TensorId x, const Memory& memory, KvCache* cache) {
  const std::string name = fmt::format("layers.{}", index);
  tape_.builder().set_layer(index);
  x = turn_to(arrangements_.of(index), name, x);
  const auto as_arranged = [&]() -> const Block& { return block_of(std::get<Transformer>(model().network), index); };
  const Block& b = as_arranged();
  dropout_stream_ = 4 * (index + 1);
  weights_.before(tape_, index);
  const BlockPass* pass =
      sizes_.training && sizes_.chain ? &sizes_.chain->first[static_cast<std::size_t>(index)] : nullptr;
  const bool drops = keeps_only_inputs(arrangement_->recompute) || recomputes(RecomputePart::AllButEverySecondProduct);
  const bool recompute = pass ? !pass->saves : sizes_.training && drops;
  products_ = 0;
  const std::size_t first = tape_.num_recorded();
  tape_.set_recompute(recompute);
  const auto half = [&](std::string_view part, const Norm& n, const std::optional<Norm>& behind, auto f) {
    const std::string at = fmt::format("{}.{}", name, part);
    TensorId y = f(b.pre_norm ? block_norm(at + "_norm", x, outer_rows(), n) : x);
    if (behind) y = block_norm(at + "_out_norm", y, outer_rows(), *behind);
    x = add(at + "_residual", x, scale(at + "_scale", dropout(at + "_dropout", y), b.residual_scale));
    if (!b.pre_norm) x = block_norm(at + "_norm", x, outer_rows(), n);
  };
  half("attention", b.attention_norm, b.attention_out_norm,
       [&](TensorId h) { return attention(fmt::format("{}.attention", name), h, b.attention, cache, index); });
  if (b.cross)
    half("cross", *b.cross_norm, {}, [&](TensorId h) {
      return cross_attention(fmt::format("{}.cross", name), h, memory.states, memory.sequence, *b.cross, cache, index);
    });
  x = turn_to(arrangements_.of_feed_forward(index), name + ".ffn", x);
  const Block& f = as_arranged();
  half("ffn", f.ffn_norm, f.ffn_out_norm, [&](TensorId h) { return feed_forward(name, h, f); });
  if (recompute && (!pass || pass->keeps_output)) tape_.keep(x);
  if (arrangement_->recompute == Recompute::Whole) tape_.make_all_again(first);
  if (pass) follow_chain(index, first, x);
  tape_.set_recompute(false);
  weights_.after(tape_, index);
  tape_.builder().set_layer(-1);
  return x;
}

}  // namespace orrery
