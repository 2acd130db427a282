// SPDX-License-Identifier: Apache-2.0
// Mixture of experts on one device, dropless: choose, sort the rows by expert, three grouped GEMMs, put back with
// weights.
#include <fmt/format.h>

#include "sim/strategy/layers.hpp"

namespace orrery {

TensorId Layers::moe(std::string_view name, TensorId x, std::int64_t rows, const MoE& m) {
  const auto experts = static_cast<std::int64_t>(m.experts.size());
  const std::int64_t hidden = m.router.in, width = m.experts.front().up.out, chosen = rows * m.top_k;
  const auto part = [&](std::string_view suffix) { return fmt::format("{}.{}", name, suffix); };

  const TensorId logits = linear(part("router"), x, rows, m.router);
  const TensorId probabilities = activation_tensor(part("probabilities"), Shape{rows, experts});
  const TensorId weights = activation_tensor(part("weights"), Shape{rows, m.top_k});
  const TensorId indices = index_tensor(part("indices"), Shape{rows, m.top_k});
  const TopKGate gate{.tokens = rows,
                      .experts = experts,
                      .top_k = m.top_k,
                      .score = m.score,
                      .normalise = m.normalise,
                      .scaling = m.scaling,
                      .groups = m.groups,
                      .top_groups = m.top_groups,
                      .bias = !m.selection_bias.is_none(),
                      .dtype = sizes_.dtype};
  if (gate.bias)
    tape_.add(
        part("gate"), gate,
        {reads(logits), reads(weight(m.selection_bias)), writes(probabilities), writes(weights), writes(indices)});
  else
    tape_.add(part("gate"), gate, {reads(logits), writes(probabilities), writes(weights), writes(indices)});

  const TensorId offsets = index_tensor(part("offsets"), Shape{experts + 1});
  const TensorId source = index_tensor(part("source"), Shape{chosen});
  const TensorId row = index_tensor(part("row"), Shape{rows, m.top_k});
  tape_.add(part("route"), RouteMap{.tokens = rows, .top_k = m.top_k, .experts = experts},
            {reads(indices), writes(offsets), writes(source), writes(row)});
  const TensorId sorted = activation_tensor(part("permute"), Shape{chosen, hidden});
  tape_.add(part("permute"), Permute{rows, m.top_k, hidden, sizes_.dtype},
            {reads(x), reads(source), reads(row), writes(sorted)});

  const auto grouped = [&](std::string_view suffix, TensorId in, const Linear& first) {
    const TensorId y = activation_tensor(part(suffix), Shape{chosen, first.out});
    tape_.add(part(suffix),
              GroupedGemm{.rows = chosen,
                          .n = first.out,
                          .k = first.in,
                          .groups = experts,
                          .transpose_b = first.layout == WeightLayout::OutIn,
                          .dtype = sizes_.dtype},
              {reads(in), reads(weights_.stack(first.weight)), reads(offsets), writes(y)});
    return y;
  };
  const Mlp& first = m.experts.front();
  const TensorId up = grouped("up", sorted, first.up);
  TensorId act = activation_tensor(part("act"), Shape{chosen, width});
  if (first.gate) {
    const TensorId gated = grouped("gate_proj", sorted, *first.gate);
    tape_.add(part("act"), GatedForward{first.activation, chosen, width, sizes_.dtype},
              {reads(gated), reads(up), writes(act)});
  } else {
    tape_.add(part("act"), ActivationForward{first.activation, chosen, width, sizes_.dtype}, {reads(up), writes(act)});
  }
  const TensorId down = grouped("down", act, first.down);
  TensorId out = activation_tensor(part("unpermute"), Shape{rows, hidden});
  tape_.add(part("unpermute"), Unpermute{rows, m.top_k, hidden, sizes_.dtype},
            {reads(down), reads(row), reads(weights), writes(out)});

  if (!m.shared) return out;
  TensorId shared = mlp(part("shared"), x, rows, *m.shared);
  if (m.shared_gate) {
    const TensorId g = activation(part("shared_gate.act"), ActivationKind::Sigmoid,
                                  linear(part("shared_gate"), x, rows, *m.shared_gate), rows, 1);
    const TensorId scaled = activation_tensor(part("shared_scaled"), Shape{rows, hidden});
    tape_.add(part("shared_scaled"), ScaleRows{.rows = rows, .cols = hidden, .by_row = true, .dtype = sizes_.dtype},
              {reads(shared), reads(g), writes(scaled)});
    shared = scaled;
  }
  return add(part("sum"), out, shared);
}

}  // namespace orrery
