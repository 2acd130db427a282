// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {
namespace {

/// Microbatches travel in groups: a stage does its first chunk for a whole group, then its second, … Megatron-LM asks
/// for groups of exactly p and so for a multiple of p microbatches. Here ⌊m/p⌋ groups share them as evenly as they can,
/// larger ones first, so that any number is legal: a later group never lets the last stage wait longer than the first.
std::vector<std::int32_t> group_sizes(const PipelineShape& shape) {
  const std::int32_t groups = std::max(1, shape.microbatches / shape.stages);
  std::vector<std::int32_t> sizes(static_cast<std::size_t>(groups), shape.microbatches / groups);
  for (std::int32_t i = 0; i < shape.microbatches % groups; ++i) ++sizes[static_cast<std::size_t>(i)];
  return sizes;
}

/// The forwards of a stage in order, or its backwards: the same with the chunks the other way round.
std::vector<Action> passes(Pass pass, std::int32_t chunks, const std::vector<std::int32_t>& groups) {
  std::vector<Action> all;
  std::int32_t first = 0;
  for (const std::int32_t size : groups) {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk)
      for (std::int32_t i = first; i < first + size; ++i)
        all.push_back({pass, pass == Pass::Forward ? chunk : chunks - 1 - chunk, i});
    first += size;
  }
  return all;
}

}  // namespace

std::optional<Diagnostic> problem_of_interleaved(const PipelineShape& shape) {
  if (*shape.chunks >= 2) return {};
  return Diagnostic{fmt::format("interleaved needs at least 2 chunks per stage, not {}", *shape.chunks),
                    "with 1 chunk per stage, 1f1b does the same with fewer activations",
                    {},
                    0,
                    0,
                    {}};
}

/// 1F1B over v chunks per stage. With g = the size of the first group (p when p divides m), stage i does
/// 2(p − 1 − i) + (v − 1)g forwards, then one forward and one backward in turns. F and B are times of one chunk:
///
///   idle per stage = (p − 1)(F + B) for m ≥ p, activations = min(v·m, 2(p − 1 − i) + (v − 1)g + 1) chunks
///
/// With fewer microbatches than stages it still runs, with more idle time: chunks wait for the way through all stages.
/// Narayanan et al., arXiv 2104.04473; the number of forwards at the start is Megatron-LM's.
Schedule make_interleaved(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Loop, shape.stages, *shape.chunks, shape.microbatches);
  const std::vector<std::int32_t> groups = group_sizes(shape);
  const std::vector<Action> forwards = passes(Pass::Forward, s.chunks, groups);
  const std::vector<Action> backwards = passes(Pass::Backward, s.chunks, groups);
  for (std::int32_t stage = 0; stage < s.stages; ++stage) {
    auto& list = s.actions[static_cast<std::size_t>(stage)];
    const std::int32_t ahead = 2 * (s.stages - 1 - stage) + (s.chunks - 1) * groups.front();
    const std::size_t warm_up = std::min<std::size_t>(static_cast<std::uint32_t>(ahead), forwards.size());
    list.assign(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(warm_up));
    for (std::size_t i = 0; i < backwards.size(); ++i) {
      if (warm_up + i < forwards.size()) list.push_back(forwards[warm_up + i]);
      list.push_back(backwards[i]);
    }
  }
  return s;
}

}  // namespace orrery
