// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/strategy/pipeline/makers.hpp"
#include "sim/strategy/pipeline/stage_writer.hpp"

namespace orrery {
namespace {

/// The actions of stage i of p for m ≥ 2p − 1 microbatches. The way there is chunk 0, the way back chunk 1; its
/// backward comes first.
std::vector<Action> stage_actions(std::int32_t p, std::int32_t i, std::int32_t m) {
  StageWriter w{1, 0};
  const auto both_gradients = [&](std::int32_t chunk) {
    w.input_gradient(chunk);
    w.weight_gradient();
  };

  for (std::int32_t k = 0; k < 2 * (p - i) - 1; ++k) w.forward(0);
  for (std::int32_t k = 0; k < i; ++k) {
    w.forward(1);
    w.forward(0);
  }
  for (std::int32_t k = 0; k < p - i; ++k) {
    w.forward(1);
    both_gradients(1);
  }
  while (w.num_forwards(1) < m) {
    if (w.num_forwards(0) < m) w.forward(0);
    both_gradients(0);
    w.forward(1);
    both_gradients(1);
  }
  for (std::int32_t k = 0; k < i; ++k) {
    w.input_gradient(0);
    w.input_gradient(1);
  }
  for (std::int32_t k = 0; k < p - i; ++k) both_gradients(0);
  w.all_weight_gradients();
  return w.take();
}

}  // namespace

/// ZB-V: part s and part 2p − 1 − s on stage s, so that the loss is where the input was, and weight gradients that
/// wait. F, B and W are times of one chunk:
///
///   gap (idle time between a stage's first and last action) = 0 for F = B = W and m ≥ 2p − 1, 2(p − 1)(B − W) for
///   B > F > W with B + W = 2F; activations = 2p chunks on every stage, the p microbatches of 1F1B
///
/// Over one step that starts and ends with all stages together, stage i also waits i·F for its first microbatch and
/// (p − 1 − i)·F at the end; the paper lets it check the update afterwards and go on. Fewer microbatches run as the
/// first ones of 2p − 1. The order is the one that the paper's search finds for F = B = W. Qi et al., arXiv 2405.15362
/// and 2401.10241.
Schedule make_zb_v(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::V, shape.stages, 2, shape.microbatches);
  const std::int32_t m = std::max(s.microbatches, 2 * s.stages - 1);
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    auto& list = s.actions[static_cast<std::size_t>(stage)] = stage_actions(s.stages, stage, m);
    std::erase_if(list, [&](const Action& a) { return a.microbatch >= s.microbatches; });
  }
  return s;
}

}  // namespace orrery
