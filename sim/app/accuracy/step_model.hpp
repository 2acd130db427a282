// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {

/// Tensors of a device: the most that live at a time in the passes, those of them that stay from step to step, these
/// with the copies that an update makes of gradients and weights, and the moments of the optimizer alone.
struct StageBytes {
  double peak = 0, kept = 0, update = 0, moments = 0;

  double most() const { return std::max(peak, update); }
};

/// A step as predicted, with the devices of the first and of the last stage of its pipeline.
struct PredictedStep {
  double seconds = 0;
  StageBytes first, last;

  double peak_bytes() const { return std::max(first.most(), last.most()); }
  /// The first step: the update makes the moments, which the passes before it do not have.
  PredictedStep at_first() const {
    PredictedStep p = *this;
    for (StageBytes* s : {&p.first, &p.last}) s->peak -= s->moments;
    return p;
  }
};

/// Predicts training steps: short ones as they are, long ones from shorter ones. A step repeats itself: layers in a
/// part of the pipeline, microbatches, stages. Its plan is lowered and simulated with few of each, and what one more of
/// them adds is added as often as it is missing:
///
///   t(l, m, p) = t(l, m₀, p₀) + (m − m₀)·Δm(l) + (p − p₀)·Δp(l),  each of t, Δm, Δp linear in l
///
/// with l layers per part, m microbatches, p stages. Parts of up to 24 layers are simulated as they are: where the host
/// is slower than the layers and faster than a loss, few layers take as long as the loss, many as long as the host.
/// Exact where what is added is the same every time, which is so behind the first microbatches and stages; left out:
/// parts of unequal length (all have as many layers as the longest). Where a part of the blocks is recomputed, a step
/// with all and one without any are mixed. Peak memory likewise, with min(m, p) in place of m; that of the update
/// stands apart from it, as it knows no microbatches: gradients are lowered without copies in f32, whose time is left
/// out.
class StepModel {
 public:
  explicit StepModel(PublishedStep step) : step_{std::move(step)} {}
  const PublishedStep& step() const { return step_; }
  /// On a machine with the row's cluster; plans are lowered once, whatever the machines. Throws UserError where the
  /// strategy refuses the layout.
  PredictedStep predict(const Machine& machine);
  /// The same of time alone, in half of the time: nothing is asked of memory.
  double seconds(const Machine& machine);

 private:
  struct Size {
    std::int64_t layers, microbatches, stages;
    Recompute recompute = Recompute::None;
    auto operator<=>(const Size&) const = default;
  };
  enum class Asked : std::uint8_t { Time, TimeAndMemory };
  /// A prediction on one machine, with the short steps that it has simulated.
  struct Question {
    const Machine& machine;
    Asked asked;
    Recompute recompute;  // of all blocks
    std::map<Size, PredictedStep> known = {};
  };
  PredictedStep predict_on(const Machine& machine, Asked asked);
  PredictedStep predict_all(Question& q);
  const PredictedStep& simulated(Question& q, const Size& size);
  void add_memory(PredictedStep& r, const Size& size, const std::vector<Peak>& peaks);
  PredictedStep with_layers(Question& q, double layers, std::int64_t microbatches, std::int64_t stages);
  std::int64_t least_microbatches(std::int64_t stages) const;

  const Plan& plan(const Size& size);

  PublishedStep step_;
  std::map<Size, Plan> plans_;
};

}  // namespace orrery
