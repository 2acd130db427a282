// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace orrery {

/// What a layer adds to the time of a step, and to the memory of each of its ranks. As differences to another way both
/// may be below zero.
struct LayerCost {
  double seconds = 0;
  std::int64_t bytes = 0;
};

/// Layers in the order in which activations pass through them, and what each costs in each way.
struct LayerChoices {
  std::vector<std::vector<LayerCost>> layers;  // [layer][way]; infinite seconds: not open to this layer
  std::vector<std::vector<double>> changes;    // [way][way of the next layer], seconds; empty: none costs anything
};

struct LayerPlan {
  std::vector<std::size_t> ways;  // per layer
  LayerCost cost;
};

/// The fastest ways that take at most `room` bytes together, the smaller of equally fast ones; nothing where none do.
/// Galvatron's recurrence (arXiv 2211.13878, section 4)
///   C(l, E, s) = min over s' of C(l − 1, E − O(l, s), s') + c(l, s) + R(s', s)
/// over the memory E that occurs: of each way as the last one only what is faster than all that takes less. Exact with
/// a quantum of one byte; a layer takes whole quanta, so that fewer E occur and no plan takes more than `room`.
std::optional<LayerPlan> plan_layers(const LayerChoices& choices, std::int64_t room, std::int64_t quantum = 1);

}  // namespace orrery
