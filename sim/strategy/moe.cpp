// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: choose, sort the rows by expert, grouped GEMMs, put back with weights. With ep the rows go to
// where their experts are and come back in between.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/strategy/expert_parallel.hpp"
#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

class MoeLowering {
 public:
  MoeLowering(Layers& layers, const ParameterStorage& weights, std::string_view name, std::int64_t rows, const MoE& m)
      : l_{layers}, weights_{weights}, name_{name}, rows_{rows}, m_{m}, dtype_{layers.sizes().dtype} {}

  TensorId run(TensorId x) {
    choose(x);
    ExpertRows home = route(x);
    if (m_.weighs_input)
      home.x = weigh(home, home.x, sorted_weights(home.buffer), hidden());
    else if (l_.sizes().weigh_inside)
      home.weights = sorted_weights(home.buffer);
    if (!l_.roles().experts && capacity() == 0) l_.wait_for_rows(name_, home.offsets);
    TensorId y;
    if (l_.roles().experts) {
      ExpertExchange ranks{
          l_, name_, {rows_, choices(), experts(), hidden(), capacity() * groups(), home.rows, home.buffer, &layout()}};
      ExpertRows away = ranks.dispatch(home);
      if (!home.weights.is_none()) away.weights = ranks.dispatch_weights(home.weights);
      y = ranks.combine(compute(away));
    } else {
      y = compute(home);
    }
    const TensorId out = is_dense()                                   ? multiply_back(y)
                         : m_.weighs_input || !home.weights.is_none() ? add_up(y)
                                                                      : unpermute(y);
    return m_.shared ? l_.add(part("sum"), out, shared(x)) : out;
  }

 private:
  std::string part(std::string_view suffix) const { return fmt::format("{}.{}", name_, suffix); }
  std::int64_t experts() const { return static_cast<std::int64_t>(m_.experts.size()); }
  std::int64_t hidden() const { return m_.router.in; }
  std::int64_t groups() const { return l_.capacity_groups(); }
  const SparseGating* gating() const { return l_.sizes().gating; }
  bool is_dense() const { return gating() && gating()->is_dense(); }
  /// Of a token, some of which may be of no expert.
  std::int64_t choices() const { return gating() ? gating()->options.choices(experts()) : m_.top_k; }
  const ExpertLayout& layout() const { return l_.expert_layout(); }
  /// Rows of an expert for a group of tokens; 0: as many as choose it.
  std::int64_t capacity() const {
    if (is_dense()) return rows_ / groups();
    const double factor = l_.sizes().room.capacity_factor;
    if (factor <= 0) return 0;
    const std::int64_t tokens = rows_ / groups();
    return std::min(tokens,
                    static_cast<std::int64_t>(std::ceil(factor * double(tokens * m_.top_k) / double(experts()))));
  }
  /// Whether how many rows there are is known when tokens have chosen.
  bool counts_rows() const { return gating() && !is_dense() && !gating()->options.is_hard(); }
  std::int64_t filled() const { return counts_rows() ? gating()->rows(rows_, experts()) : 0; }
  /// Rows of all experts, where each has a number of its own, or that there is room for; 0: as many as choices.
  std::int64_t given_rows() const {
    return counts_rows() ? gating()->room(rows_, experts()) : experts() * groups() * capacity();
  }

  /// Which experts each token visits, and with what weight.
  void choose(TensorId x) {
    const TensorId logits = l_.linear_as_is(part("router"), x, rows_, m_.router);
    const TensorId probabilities = l_.activation_tensor(part("probabilities"), Shape{rows_, experts()});
    choice_ = l_.activation_tensor(part("weights"), Shape{rows_, choices()});
    indices_ = l_.index_tensor(part("indices"), Shape{rows_, choices()});
    TopKGate gate{.tokens = rows_,
                  .experts = experts(),
                  .top_k = choices(),
                  .score = m_.score,
                  .normalise = m_.normalise,
                  .scaling = m_.scaling,
                  .groups = m_.groups,
                  .top_groups = m_.top_groups,
                  .bias = !m_.selection_bias.is_none(),
                  .dtype = dtype_};
    std::vector<Operand> operands{reads(logits)};
    if (gate.bias) operands.push_back(reads(l_.weight(m_.selection_bias)));
    if (gating()) {
      gate.sparse = gating()->options.gate();
      const TensorId numbers = l_.place_gate(gate.sparse, rows_);
      if (!numbers.is_none()) operands.push_back(reads(numbers));
    }
    for (TensorId t : {probabilities, choice_, indices_}) operands.push_back(writes(t));
    l_.tape().add(part("gate"), gate, operands);
  }

  /// The rows of the tokens in order of their experts.
  ExpertRows route(TensorId x) {
    const RouteMap map{.tokens = rows_,
                       .top_k = choices(),
                       .experts = experts(),
                       .capacity = capacity(),
                       .groups = groups(),
                       .max_rows = counts_rows() ? given_rows() : 0,
                       .filled = filled()};
    const std::int64_t n = map.rows();
    const TensorId offsets = l_.index_tensor(part("offsets"), Shape{experts() + 1});
    source_ = l_.index_tensor(part("source"), Shape{n});
    row_ = l_.index_tensor(part("row"), Shape{rows_, choices()});
    l_.tape().add(part("route"), map, {reads(indices_), writes(offsets), writes(source_), writes(row_)});
    const TensorId sorted = l_.activation_tensor(part("permute"), Shape{n, hidden()});
    if (is_dense())
      multiply_there(x, sorted, n);
    else
      l_.tape().add(part("permute"), permutation(), {reads(x), reads(source_), reads(row_), writes(sorted)});
    const double skew = capacity() > 0 || l_.roles().experts ? 1 : layout().skew(0);
    return {.x = sorted,
            .offsets = offsets,
            .experts = experts(),
            .rows = counts_rows() ? filled() : n,
            .skew = skew,
            .buffer = n,
            .counted = counts_rows()};
  }

  Permute permutation() const { return {rows_, choices(), hidden(), dtype_, given_rows(), filled()}; }

  /// Rows of tokens as the product of a mask [n, tokens], a row of which has a one at its token or none.
  void multiply_there(TensorId x, TensorId sorted, std::int64_t n) {
    const TensorId ones = l_.constant(fmt::format("one_of_{}", rows_), Shape{rows_, rows_}, dtype_, [rows = rows_] {
      std::vector<double> all(static_cast<std::size_t>(rows * rows));
      for (std::size_t i = 0; i < all.size(); i += static_cast<std::size_t>(rows + 1)) all[i] = 1;
      return all;
    });
    mask_ = l_.activation_tensor(part("mask"), Shape{n, rows_});
    l_.tape().add(part("mask"),
                  Gather{.rows = n, .cols = rows_, .table_rows = rows_, .first = 0, .last = rows_, .dtype = dtype_},
                  {reads(ones), reads(source_), writes(mask_)});
    l_.tape().add(part("permute"), Gemm{.m = n, .n = hidden(), .k = rows_, .dtype = dtype_},
                  {reads(mask_), reads(x), writes(sorted)});
  }

  /// The sum of the rows of a token by their weights as the product of a weighted mask.
  TensorId multiply_back(TensorId y) {
    const std::int64_t n = given_rows();
    const TensorId weighted = l_.activation_tensor(part("weighted_mask"), Shape{n, rows_});
    l_.tape().add(part("weighted_mask"), ScaleRows{.rows = n, .cols = rows_, .by_row = true, .dtype = dtype_},
                  {reads(mask_), reads(sorted_weights(n)), writes(weighted)});
    const TensorId out = l_.activation_tensor(part("unpermute"), Shape{rows_, hidden()});
    l_.tape().add(part("unpermute"), Gemm{.m = rows_, .n = hidden(), .k = n, .transpose_a = true, .dtype = dtype_},
                  {reads(weighted), reads(y), writes(out)});
    return out;
  }

  /// The weights of the choices in order of the rows; 0 for rows without a choice.
  TensorId sorted_weights(std::int64_t n) {
    Tape& tape = l_.tape();
    const std::int64_t all = rows_ * choices();
    const TensorId w = l_.activation_tensor(part("row_weights"), Shape{n, 1});
    tape.add_plain(part("row_weights.zero"), Fill{.elements = n, .dtype = dtype_}, {writes(w)});
    tape.add_plain(part("row_weights"), ScatterRows{all, 1, n, dtype_}, {reads(choice_), reads(row_), updates(w)});
    const Gather back{.rows = all, .cols = 1, .table_rows = n, .first = 0, .last = n, .dtype = dtype_};
    tape.on_backward([&tape, w, back, choice = choice_, row = row_, name = part("row_weights.dx")] {
      const TensorId d = tape.gradient(w);
      if (d.is_none()) return;
      const TensorId dw = tape.contribution(choice);
      tape.emit(name, back, {reads(d), reads(tape.saved(row)), writes(dw)});
      tape.contribute(choice, dw);
    });
    return w;
  }

  /// The sum of the rows of a token by their weights.
  TensorId unpermute(TensorId y) {
    const TensorId out = l_.activation_tensor(part("unpermute"), Shape{rows_, hidden()});
    l_.tape().add(part("unpermute"), Unpermute{rows_, choices(), hidden(), dtype_, given_rows(), filled()},
                  {reads(y), reads(row_), reads(choice_), writes(out)});
    return out;
  }

  /// The sum of the rows of a token, as they are: what the gradient of `permute` computes, and the other way round.
  TensorId add_up(TensorId y) {
    Tape& tape = l_.tape();
    const TensorId out = l_.activation_tensor(part("unpermute"), Shape{rows_, hidden()});
    tape.add_plain(part("unpermute"), PermuteBackward{rows_, choices(), hidden(), dtype_, filled()},
                   {reads(y), reads(row_), writes(out)});
    const Permute back = permutation();
    tape.on_backward([&tape, y, out, back, source = source_, row = row_, name = part("unpermute.dx")] {
      const TensorId d = tape.gradient(out);
      if (d.is_none()) return;
      const TensorId dy = tape.contribution(y);
      tape.emit(name, back, {reads(d), reads(tape.saved(source)), reads(tape.saved(row)), writes(dy)});
      tape.contribute(y, dy);
    });
    return out;
  }

  /// The experts that are at hand on their rows.
  TensorId compute(const ExpertRows& e) {
    const Mlp& first = m_.experts.front();
    const TensorId up = grouped("up", e, e.x, first.up);
    TensorId inner = activate(e, up, first);
    if (!e.weights.is_none()) {
      const RecomputeScope scope{l_.tape(), l_.recomputes(RecomputePart::Activations)};
      inner = weigh(e, inner, e.weights, first.up.out);
    }
    return grouped("down", e, inner, first.down);
  }

  /// Rows multiplied by their weights.
  TensorId weigh(const ExpertRows& e, TensorId rows, TensorId weights, std::int64_t width) {
    const TensorId out = l_.activation_tensor(part("weigh"), Shape{e.buffer, width});
    std::vector<Operand> operands{reads(rows), reads(weights)};
    if (e.counted) operands.push_back(reads(e.offsets));
    operands.push_back(writes(out));
    const ScaleRows scale{.rows = e.rows, .cols = width, .by_row = true, .dtype = dtype_, .counted = e.counted};
    l_.tape().add(part("weigh"), scale, operands);
    return out;
  }

  TensorId grouped(std::string_view suffix, const ExpertRows& e, TensorId in, const Linear& first) {
    const TensorId y = l_.activation_tensor(part(suffix), Shape{e.buffer, first.out});
    GroupedGemm gemm{.rows = e.rows,
                     .n = first.out,
                     .k = first.in,
                     .groups = e.experts,
                     .transpose_b = first.layout == WeightLayout::OutIn,
                     .narrow = l_.sizes().narrow,
                     .dtype = dtype_,
                     .skew = e.skew,
                     .max_rows = e.counted ? e.buffer : 0,
                     .weights = l_.quantised_weights()};
    const TensorId weight = weights_.stack(first.weight);
    std::vector<Operand> operands{reads(in), reads(weight), reads(e.offsets), writes(y)};
    if (const Layers::KeptCast kept = l_.keep_cast(part(suffix), in, e.buffer, first.in, weight); !kept.is_none()) {
      gemm.input = InputCast::Written;
      operands.insert(operands.end(), {writes(kept.numbers), writes(kept.scale)});
    }
    l_.tape().add(part(suffix), gemm, operands);
    return y;
  }

  TensorId activate(const ExpertRows& e, TensorId up, const Mlp& first) {
    const std::int64_t width = first.up.out;
    std::vector<Operand> operands{reads(up)};
    if (first.gate) operands.insert(operands.begin(), reads(grouped("gate_proj", e, e.x, *first.gate)));
    if (e.counted) operands.push_back(reads(e.offsets));
    const TensorId act = l_.activation_tensor(part("act"), Shape{e.buffer, width});
    operands.push_back(writes(act));
    // Weighted rows are kept in place of them.
    const RecomputeScope scope{l_.tape(), !e.weights.is_none() || l_.recomputes(RecomputePart::Activations)};
    if (first.gate)
      l_.tape().add(part("act"), GatedForward{first.activation, e.rows, width, dtype_, e.counted}, operands);
    else
      l_.tape().add(part("act"), ActivationForward{first.activation, e.rows, width, dtype_, e.counted}, operands);
    return act;
  }

  /// The expert that every token visits, weighted by a sigmoid where the model has a gate for it.
  TensorId shared(TensorId x) {
    const TensorId y =
        l_.roles().fold_experts()
            ? l_.leave_feed_forward(part("shared"), shared_product(l_.enter_feed_forward(part("shared"), x)))
            : shared_product(x);
    if (!m_.shared_gate) return y;
    const TensorId g = l_.activation(part("shared_gate.act"), ActivationKind::Sigmoid,
                                     l_.linear_as_is(part("shared_gate"), x, rows_, *m_.shared_gate), rows_, 1);
    const TensorId scaled = l_.activation_tensor(part("shared_scaled"), Shape{rows_, hidden()});
    l_.tape().add(part("shared_scaled"), ScaleRows{.rows = rows_, .cols = hidden(), .by_row = true, .dtype = dtype_},
                  {reads(y), reads(g), writes(scaled)});
    return scaled;
  }

  /// A part of the sum over tp.
  TensorId shared_product(TensorId x) {
    const std::int64_t rows = l_.tape().plan().shape(x)[0];
    return l_.linear(part("shared.down"), l_.mlp_inner(part("shared"), x, rows, *m_.shared), rows, m_.shared->down);
  }

  Layers& l_;
  const ParameterStorage& weights_;
  std::string name_;
  std::int64_t rows_;
  const MoE& m_;
  DType dtype_;
  TensorId choice_, indices_, source_, row_, mask_;
};

}  // namespace

void Layers::wait_for_rows(std::string_view name, TensorId offsets) {
  if (!sizes_.waits_for_experts) return;
  const Bytes bytes = tape_.plan().size(offsets);
  tape_.add_plain(fmt::format("{}.wait", name), HostWork{.bytes = bytes, .experts = true}, {reads(offsets)},
                  Stream::Host);
}

/// Rows of feed-forward layers have the numbers of their tokens in the whole batch: one behind another on one device.
TensorId Layers::place_gate(SparseGate& gate, std::int64_t rows) {
  gate.seed = sizes_.seed, gate.stream = ++dropout_stream_;
  gate.first_row = sizes_.microbatch * rows;
  if (slices().mesh.size() == 1) return {};
  gate.by_row = true, gate.first_row = 0;
  Slices here = slices();
  here.sequence = sizes_.sequence * here.roles.cp.ranks;  // of a decoder or an encoder
  const std::string name =
      fmt::format("tokens.{}.{}{}", sizes_.microbatch, here.sequence, arrangements_.suffix(*arrangement_));
  return rank_constant(name, Shape{rows}, DType::I32, [here, m = sizes_.microbatch](std::span<const std::int64_t> at) {
    std::vector<std::int64_t> own = here.rows(at, m);
    if (here.roles.fold_experts()) own = here.outer(std::move(own), at);
    return std::vector<double>(own.begin(), own.end());
  });
}

TensorId Layers::moe(std::string_view name, TensorId x, std::int64_t rows, const MoE& m) {
  return MoeLowering{*this, weights_, name, rows, m}.run(x);
}

}  // namespace orrery
