// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "sim/strategy/pipeline/makers.hpp"

namespace orrery {
namespace {

/// An action and the slot of its stage that it stands in.
using Slot = std::pair<std::int32_t, Action>;

/// Puts the passes of one microbatch into the slots of the stages, for F = B = 1 slot. Microbatch k of a direction in
/// unit u runs forward on part d in slot 2Du + 2k + d and backward in slot 2Du + D + 2k + (D − 1 − d). Down pipeline
/// and up pipeline meet a stage at parts d and D − 1 − d, of different parity as D is even: no slot is used twice.
void place(const Schedule& s, std::int32_t microbatch, std::vector<std::vector<Slot>>& slots) {
  const std::int32_t depth = s.stages, of_direction = microbatch / 2;
  const std::int32_t first = 2 * depth * (of_direction / (depth / 2)) + 2 * (of_direction % (depth / 2));
  for (std::int32_t part = 0; part < depth; ++part) {
    const Home home = s.home(part, microbatch);
    auto& list = slots[static_cast<std::size_t>(home.stage)];
    list.push_back({first + part, {Pass::Forward, home.chunk, microbatch}});
    list.push_back({first + depth + depth - 1 - part, {Pass::Backward, home.chunk, microbatch}});
  }
}

}  // namespace

std::optional<Diagnostic> problem_of_chimera(const PipelineShape& shape) { return need_even_stages("chimera", shape); }

/// Two pipelines in opposite directions over the same D stages, each 1F1B; N microbatches in units of D, a unit right
/// behind the other ("direct concatenation").
///
///   bubble = (D − 2) / (2N + D − 2) for F = B and N a multiple of D; D/2 + 1 … D activations, most in the middle
///   bubble = (D − 2) / (3N/2 + D − 2) for B = 2F and N = D; longer ones have idle slots between their units
///
/// Any number of microbatches is legal; the formulas hold for multiples of D. Left out: the paper's doubling of
/// forwards and halving of backwards, which removes the idle slots between units at the price of activations. Li and
/// Hoefler, arXiv 2107.06925.
Schedule make_chimera(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Bidirectional, shape.stages, 2, shape.microbatches);
  std::vector<std::vector<Slot>> slots(s.actions.size());
  for (std::int32_t i = 0; i < s.microbatches; ++i) place(s, i, slots);
  for (std::size_t stage = 0; stage < slots.size(); ++stage) {
    std::sort(slots[stage].begin(), slots[stage].end(), [](const Slot& a, const Slot& b) { return a.first < b.first; });
    for (const Slot& slot : slots[stage]) s.actions[stage].push_back(slot.second);
  }
  return s;
}

}  // namespace orrery
