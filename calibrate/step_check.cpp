// SPDX-License-Identifier: Apache-2.0
#include "calibrate/step_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery {
namespace {

constexpr double kLeastShared = 0.2, kStepOfShared = 0.05;
constexpr std::size_t kFewestSteps = 6;  // to judge by
constexpr double kUsualShared = 0.6;     // with fewer

double sigma_of(const StepCheck& s, double shared) {
  return std::hypot(shared * s.shared, std::sqrt(1 - shared * shared) * s.independent, s.memory);
}

/// How many half-widths of the 90 % interval hold 90 % of the steps. Measured times have errors of their own, and all
/// steps drift.
double stretch(const std::vector<StepCheck>& steps, double shared, double drift) {
  std::vector<double> noise, z;
  for (const StepCheck& s : steps) noise.push_back(s.noise);
  const double measuring = trimmed_rms(std::move(noise));  // a step is visited too few times to tell its own
  for (const StepCheck& s : steps)
    z.push_back(std::abs(std::log(s.measured / s.predicted)) / std::hypot(sigma_of(s, shared), measuring, drift));
  return quantile(std::move(z), 0.9) / kNinetyPercent;
}

}  // namespace

StepCheck check_step(const HostModel& model, const MeasuredPlan& step) {
  const Scales scales;
  StepCheck s{
      .name = step.name, .measured = step.seconds.median, .noise = step.seconds.median_error / step.seconds.median};
  std::map<std::size_t, double> by_law;
  double independent = 0;
  for (const Point& p : step.points) {
    const double ops = double(p.ops);
    const OpCost c = model.cost(p.work, p.bindings, scales);
    const double error = c.duration.base() * std::hypot(double(c.deviation), double(c.bias));
    s.memory += ops * c.duration.base() * c.memory;
    s.predicted += ops * (c.duration + model.launch(p.work, scales).enqueue).base();
    by_law[slot_of(p.work)] += ops * error;
    independent += ops * error * error;
  }
  double shared = 0;
  for (const auto& [slot, error] : by_law) shared += error * error;
  s.shared = std::sqrt(shared) / s.predicted;
  s.independent = std::sqrt(independent) / s.predicted;
  s.memory /= s.predicted;
  return s;
}

void settle_bias(HostParameters& parameters, const std::vector<StepCheck>& steps) {
  double shared = kUsualShared, widen = 1;
  if (steps.size() >= kFewestSteps) {
    shared = kLeastShared;
    while (shared < 1 && stretch(steps, shared, parameters.drift) > 1) shared = std::min(1.0, shared + kStepOfShared);
    widen = std::max(1.0, stretch(steps, shared, parameters.drift));
  }
  for (auto& [name, law] : parameters.laws) {
    const double sigma = std::hypot(law.deviation, law.bias);
    law.deviation = std::sqrt(1 - shared * shared) * sigma;
    law.bias = shared * sigma * widen;
  }
}

}  // namespace orrery
