// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {

/// 1F1B with a flush (DAPPLE, PipeDream-flush): stage i does min(m, p − 1 − i) forwards, then one forward and one
/// backward in turns, then the backwards that are left.
///
///   idle per stage = (p − 1)(F + B), bubble = (p − 1) / (m + p − 1), activations = min(m, p − i)
///
/// Fan et al., DAPPLE, arXiv 2007.01045; Narayanan et al., arXiv 2006.09503.
Schedule make_one_f_one_b(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Loop, shape.stages, 1, shape.microbatches);
  const std::int32_t m = s.microbatches;
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    auto& list = s.actions[static_cast<std::size_t>(stage)];
    const std::int32_t warm_up = std::min(m, s.stages - 1 - stage);
    for (std::int32_t i = 0; i < warm_up; ++i) list.push_back({Pass::Forward, 0, i});
    for (std::int32_t i = 0; i < m; ++i) {
      if (warm_up + i < m) list.push_back({Pass::Forward, 0, warm_up + i});
      list.push_back({Pass::Backward, 0, i});
    }
  }
  return s;
}

}  // namespace orrery
