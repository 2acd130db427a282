// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {

/// ZB-H1: 1F1B whose weight gradients wait. Stage i does min(m, p − i) forwards, then in turns an input gradient, the
/// weight gradient of i microbatches before, and a forward. So every stage holds p microbatches, of which i only wait
/// for their weight gradient, and those fill the drain. With F, B (input gradient) and W (weight gradient):
///
///   idle per stage = (p − 1)(F + B − W) for m ≥ p and W ≤ F, activations = min(m, p) on every stage
///
/// This is the hand-made schedule of the paper; its search, which follows measured times, is left out. Qi et al., Zero
/// Bubble Pipeline Parallelism, arXiv 2401.10241.
Schedule make_zb_h1(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Loop, shape.stages, 1, shape.microbatches);
  const std::int32_t m = s.microbatches;
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    auto& list = s.actions[static_cast<std::size_t>(stage)];
    const std::int32_t warm_up = std::min(m, s.stages - stage), lag = std::min(m, stage);
    for (std::int32_t i = 0; i < warm_up; ++i) list.push_back({Pass::Forward, 0, i});
    for (std::int32_t i = 0; i < m; ++i) {
      list.push_back({Pass::InputGradient, 0, i});
      if (i >= lag) list.push_back({Pass::WeightGradient, 0, i - lag});
      if (warm_up + i < m) list.push_back({Pass::Forward, 0, warm_up + i});
    }
    for (std::int32_t i = m - lag; i < m; ++i) list.push_back({Pass::WeightGradient, 0, i});
  }
  return s;
}

}  // namespace orrery
