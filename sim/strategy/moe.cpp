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
      home.x = weigh(home, home.x, sorted_weights(home.rows), hidden());
    else if (l_.sizes().weigh_inside)
      home.weights = sorted_weights(home.rows);
    if (!l_.roles().experts && capacity() == 0) l_.wait_for_rows(name_, home.offsets);
    TensorId y;
    if (l_.roles().experts) {
      ExpertExchange ranks{l_, name_, {rows_, m_.top_k, experts(), hidden(), capacity() * groups(), &layout()}};
      ExpertRows away = ranks.dispatch(home);
      if (!home.weights.is_none()) away.weights = ranks.dispatch_weights(home.weights);
      y = ranks.combine(compute(away));
    } else {
      y = compute(home);
    }
    const TensorId out = m_.weighs_input || !home.weights.is_none() ? add_up(y) : unpermute(y);
    return m_.shared ? l_.add(part("sum"), out, shared(x)) : out;
  }

 private:
  std::string part(std::string_view suffix) const { return fmt::format("{}.{}", name_, suffix); }
  std::int64_t experts() const { return static_cast<std::int64_t>(m_.experts.size()); }
  std::int64_t hidden() const { return m_.router.in; }
  std::int64_t groups() const { return l_.capacity_groups(); }
  const ExpertLayout& layout() const { return l_.expert_layout(); }
  /// Rows of an expert for a group of tokens; 0: as many as choose it.
  std::int64_t capacity() const {
    const double factor = l_.sizes().room.capacity_factor;
    if (factor <= 0) return 0;
    const std::int64_t tokens = rows_ / groups();
    return std::min(tokens,
                    static_cast<std::int64_t>(std::ceil(factor * double(tokens * m_.top_k) / double(experts()))));
  }
  /// Rows of all experts, where each has a number of its own; 0: they follow from the choices.
  std::int64_t padded_rows() const { return experts() * groups() * capacity(); }

  /// Which experts each token visits, and with what weight.
  void choose(TensorId x) {
    const TensorId logits = l_.linear_as_is(part("router"), x, rows_, m_.router);
    const TensorId probabilities = l_.activation_tensor(part("probabilities"), Shape{rows_, experts()});
    choice_ = l_.activation_tensor(part("weights"), Shape{rows_, m_.top_k});
    indices_ = l_.index_tensor(part("indices"), Shape{rows_, m_.top_k});
    const TopKGate gate{.tokens = rows_,
                        .experts = experts(),
                        .top_k = m_.top_k,
                        .score = m_.score,
                        .normalise = m_.normalise,
                        .scaling = m_.scaling,
                        .groups = m_.groups,
                        .top_groups = m_.top_groups,
                        .bias = !m_.selection_bias.is_none(),
                        .dtype = dtype_};
    std::vector<Operand> operands{reads(logits)};
    if (gate.bias) operands.push_back(reads(l_.weight(m_.selection_bias)));
    for (TensorId t : {probabilities, choice_, indices_}) operands.push_back(writes(t));
    l_.tape().add(part("gate"), gate, operands);
  }

  /// The rows of the tokens in order of their experts.
  ExpertRows route(TensorId x) {
    const RouteMap map{
        .tokens = rows_, .top_k = m_.top_k, .experts = experts(), .capacity = capacity(), .groups = groups()};
    const std::int64_t n = map.rows();
    const TensorId offsets = l_.index_tensor(part("offsets"), Shape{experts() + 1});
    source_ = l_.index_tensor(part("source"), Shape{n});
    row_ = l_.index_tensor(part("row"), Shape{rows_, m_.top_k});
    l_.tape().add(part("route"), map, {reads(indices_), writes(offsets), writes(source_), writes(row_)});
    const TensorId sorted = l_.activation_tensor(part("permute"), Shape{n, hidden()});
    l_.tape().add(part("permute"), Permute{rows_, m_.top_k, hidden(), dtype_, padded_rows()},
                  {reads(x), reads(source_), reads(row_), writes(sorted)});
    const double skew = capacity() > 0 || l_.roles().experts ? 1 : layout().skew(0);
    return {
        .x = sorted, .offsets = offsets, .experts = experts(), .rows = n, .skew = skew, .buffer = n, .counted = false};
  }

  /// The weights of the choices in order of the rows; 0 for rows without a choice.
  TensorId sorted_weights(std::int64_t n) {
    Tape& tape = l_.tape();
    const std::int64_t choices = rows_ * m_.top_k;
    const TensorId w = l_.activation_tensor(part("row_weights"), Shape{n, 1});
    tape.add_plain(part("row_weights.zero"), Fill{.elements = n, .dtype = dtype_}, {writes(w)});
    tape.add_plain(part("row_weights"), ScatterRows{choices, 1, n, dtype_}, {reads(choice_), reads(row_), updates(w)});
    const Gather back{.rows = choices, .cols = 1, .table_rows = n, .first = 0, .last = n, .dtype = dtype_};
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
    l_.tape().add(part("unpermute"), Unpermute{rows_, m_.top_k, hidden(), dtype_, padded_rows()},
                  {reads(y), reads(row_), reads(choice_), writes(out)});
    return out;
  }

  /// The sum of the rows of a token, as they are: what the gradient of `permute` computes, and the other way round.
  TensorId add_up(TensorId y) {
    Tape& tape = l_.tape();
    const TensorId out = l_.activation_tensor(part("unpermute"), Shape{rows_, hidden()});
    tape.add_plain(part("unpermute"), PermuteBackward{rows_, m_.top_k, hidden(), dtype_},
                   {reads(y), reads(row_), writes(out)});
    const Permute back{rows_, m_.top_k, hidden(), dtype_, padded_rows()};
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
  TensorId choice_, indices_, source_, row_;
};

}  // namespace

void Layers::wait_for_rows(std::string_view name, TensorId offsets) {
  if (!sizes_.waits_for_experts) return;
  const Bytes bytes = tape_.plan().size(offsets);
  tape_.add_plain(fmt::format("{}.wait", name), HostWork{.bytes = bytes, .experts = true}, {reads(offsets)},
                  Stream::Host);
}

TensorId Layers::moe(std::string_view name, TensorId x, std::int64_t rows, const MoE& m) {
  return MoeLowering{*this, weights_, name, rows, m}.run(x);
}

}  // namespace orrery
