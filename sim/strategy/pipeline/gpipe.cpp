// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {

/// All forwards, then all backwards, the last microbatch first: its activations are the newest.
///
///   idle per stage = (p − 1)(F + B), bubble = (p − 1) / (m + p − 1), activations = m
///
/// Huang et al., GPipe, arXiv 1811.06965.
Schedule make_gpipe(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Loop, shape.stages, 1, shape.microbatches);
  for (auto& list : s.actions) {
    for (std::int32_t i = 0; i < s.microbatches; ++i) list.push_back({Pass::Forward, 0, i});
    for (std::int32_t i = s.microbatches; i-- > 0;) list.push_back({Pass::Backward, 0, i});
  }
  return s;
}

}  // namespace orrery
