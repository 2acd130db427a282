// SPDX-License-Identifier: Apache-2.0
// Mixture of experts on one device, dropless: choose, sort the rows by expert, grouped GEMMs, put back with weights.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {
namespace {

class MoeLowering {
 public:
  MoeLowering(Layers& layers, const ParameterStorage& weights, std::string_view name, std::int64_t rows, const MoE& m)
      : l_{layers}, weights_{weights}, name_{name}, rows_{rows}, m_{m}, dtype_{layers.sizes().dtype} {}

  TensorId run(TensorId x) {
    choose(x);
    const TensorId sorted = route(x);
    const Mlp& first = m_.experts.front();
    const TensorId up = grouped("up", sorted, first.up);
    const TensorId act = activate(sorted, up, first);
    const TensorId down = grouped("down", act, first.down);
    const TensorId out = l_.activation_tensor(part("unpermute"), Shape{rows_, hidden()});
    l_.tape().add(part("unpermute"), Unpermute{rows_, m_.top_k, hidden(), dtype_},
                  {reads(down), reads(row_), reads(choice_), writes(out)});
    return m_.shared ? l_.add(part("sum"), out, shared(x)) : out;
  }

 private:
  std::string part(std::string_view suffix) const { return fmt::format("{}.{}", name_, suffix); }
  std::int64_t experts() const { return static_cast<std::int64_t>(m_.experts.size()); }
  std::int64_t hidden() const { return m_.router.in; }
  std::int64_t chosen() const { return rows_ * m_.top_k; }

  /// Which experts each token visits, and with what weight.
  void choose(TensorId x) {
    const TensorId logits = l_.linear(part("router"), x, rows_, m_.router);
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
  TensorId route(TensorId x) {
    offsets_ = l_.index_tensor(part("offsets"), Shape{experts() + 1});
    const TensorId source = l_.index_tensor(part("source"), Shape{chosen()});
    row_ = l_.index_tensor(part("row"), Shape{rows_, m_.top_k});
    l_.tape().add(part("route"), RouteMap{.tokens = rows_, .top_k = m_.top_k, .experts = experts()},
                  {reads(indices_), writes(offsets_), writes(source), writes(row_)});
    const TensorId sorted = l_.activation_tensor(part("permute"), Shape{chosen(), hidden()});
    l_.tape().add(part("permute"), Permute{rows_, m_.top_k, hidden(), dtype_},
                  {reads(x), reads(source), reads(row_), writes(sorted)});
    return sorted;
  }

  TensorId grouped(std::string_view suffix, TensorId in, const Linear& first) {
    const TensorId y = l_.activation_tensor(part(suffix), Shape{chosen(), first.out});
    const GroupedGemm gemm{.rows = chosen(),
                           .n = first.out,
                           .k = first.in,
                           .groups = experts(),
                           .transpose_b = first.layout == WeightLayout::OutIn,
                           .dtype = dtype_};
    l_.tape().add(part(suffix), gemm, {reads(in), reads(weights_.stack(first.weight)), reads(offsets_), writes(y)});
    return y;
  }

  TensorId activate(TensorId sorted, TensorId up, const Mlp& first) {
    const std::int64_t width = first.up.out;
    if (!first.gate) return l_.activation(part("act"), first.activation, up, chosen(), width);
    const TensorId gate = grouped("gate_proj", sorted, *first.gate);
    const TensorId act = l_.activation_tensor(part("act"), Shape{chosen(), width});
    l_.tape().add(part("act"), GatedForward{first.activation, chosen(), width, dtype_},
                  {reads(gate), reads(up), writes(act)});
    return act;
  }

  /// The expert that every token visits, weighted by a sigmoid where the model has a gate for it.
  TensorId shared(TensorId x) {
    const TensorId inner = l_.mlp_inner(part("shared"), x, rows_, *m_.shared);
    const TensorId y = l_.linear(part("shared.down"), inner, rows_, m_.shared->down);  // a part of the sum over tp
    if (!m_.shared_gate) return y;
    const TensorId g = l_.activation(part("shared_gate.act"), ActivationKind::Sigmoid,
                                     l_.linear(part("shared_gate"), x, rows_, *m_.shared_gate), rows_, 1);
    const TensorId scaled = l_.activation_tensor(part("shared_scaled"), Shape{rows_, hidden()});
    l_.tape().add(part("shared_scaled"), ScaleRows{.rows = rows_, .cols = hidden(), .by_row = true, .dtype = dtype_},
                  {reads(y), reads(g), writes(scaled)});
    return scaled;
  }

  Layers& l_;
  const ParameterStorage& weights_;
  std::string name_;
  std::int64_t rows_;
  const MoE& m_;
  DType dtype_;
  TensorId choice_, indices_, offsets_, row_;
};

}  // namespace

TensorId Layers::moe(std::string_view name, TensorId x, std::int64_t rows, const MoE& m) {
  return MoeLowering{*this, weights_, name, rows, m}.run(x);
}

}  // namespace orrery
