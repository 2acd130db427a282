// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "sim/strategy/pipeline/makers.hpp"
#include "sim/strategy/pipeline/stage_writer.hpp"

namespace orrery {
namespace {

/// The last h + 1 backwards of both directions; from the middle on, their weight gradients wait.
void drain(StageWriter& w, std::int32_t h, std::int32_t near) {
  for (std::int32_t k = 0; k < 2 * (h + 1); ++k) {
    const std::int32_t chunk = k % 2 == 0 ? 1 - near : near;
    if (k <= h)
      w.backward(chunk);
    else
      w.input_gradient(chunk);
  }
}

/// The actions of stage i of p for m microbatches, half of them in each direction. With h the distance to the nearer
/// end, `near` is the direction that starts there, `far` the other one.
std::vector<Action> two_way_actions(std::int32_t p, std::int32_t i, std::int32_t m) {
  const std::int32_t h = std::min(i, p - 1 - i), inward = p / 2 - h - 1;
  const std::int32_t near = i < p / 2 ? 0 : 1, far = 1 - near;
  StageWriter w{2, 1};

  for (std::int32_t k = 0; k < 2 * inward; ++k) w.forward(near);
  for (std::int32_t k = 0; k <= h; ++k) {
    w.forward(near);
    w.forward(far);
  }
  for (std::int32_t k = 0; k < inward; ++k) {
    w.input_gradient(far);
    w.weight_gradient();
    w.forward(far);
  }
  for (std::int32_t k = 0; k < m / 2 - p + h + 1; ++k) {
    w.forward(near);
    w.backward(far);
    w.forward(far);
    w.backward(near);
  }
  for (std::int32_t k = 0; k < inward; ++k) {
    w.backward(far);
    w.forward(far);
    w.backward(near);
  }
  drain(w, h, near);
  for (std::int32_t k = 0; k < inward; ++k) {
    w.weight_gradient();
    w.input_gradient(near);
  }
  w.all_weight_gradients();
  return w.take();
}

}  // namespace

std::optional<Diagnostic> problem_of_dualpipe(const PipelineShape& shape) {
  if (auto found = need_even_stages("dualpipe", shape)) return found;
  const std::int32_t m = shape.microbatches, least = 2 * shape.stages;
  if (m % 2 == 0 && m >= least) return {};
  return Diagnostic{
      fmt::format("dualpipe on {} stages needs an even number of microbatches and at least {}, not {}", shape.stages,
                  least, m),
      m < least ? fmt::format("{} or {} are legal", least, least + 2) : fmt::format("{} or {} are legal", m - 1, m + 1),
      {},
      0,
      0,
      {}};
}

/// DualPipe: every part twice, the second time in the opposite direction; a forward of one direction and a backward of
/// the other overlap, which hides the communication of both. F&B is the time of such a pair, B' = B + W that of a whole
/// backward. Pairs follow each other in the list, forward first, and `pairs` is set: what overlaps is a forward with
/// the whole backward right after it.
///
///   idle per stage = (p/2 − 1)(F&B + B' − 3W), activations = p + 1 chunks on every stage, parameters twice
///
/// Exact for W ≤ F ≤ B on the two stages in the middle, and on all when F&B = F + B'; with shorter pairs the others
/// idle less, since they have fewer of them. One after another (no F&B) a forward leaves before the backward of its
/// pair, and stages idle (p/2 − 1)(F + B − W) for F = B = W. DeepSeek-V3, arXiv 2412.19437, and the DualPipe
/// repository.
Schedule make_dualpipe(const PipelineShape& shape) {
  Schedule s = empty_schedule(Placement::Bidirectional, shape.stages, 2, shape.microbatches);
  s.pairs = true;
  for (std::int32_t stage = 0; stage < s.stages; ++stage)
    s.actions[static_cast<std::size_t>(stage)] = two_way_actions(s.stages, stage, s.microbatches);
  return s;
}

}  // namespace orrery
