// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>

#include "sim/app/accuracy/published_step.hpp"
#include "sim/app/wiring.hpp"

namespace orrery {

/// Seconds of a plan, of all its layers: where a host is slower than layers and faster than what stands beside them, a
/// few layers do not tell what many take. Plans are lowered once, whatever the machines.
class PassModel {
 public:
  /// `bindings`: what the plan is executed under, one after another; the mean time counts.
  PassModel(std::function<Plan()> lower, std::vector<Bindings> bindings)
      : lower_{std::move(lower)}, bindings_{std::move(bindings)} {}

  /// `fused`: with the kernels of an engine, see sim/strategy/kernel_fusion.hpp.
  double seconds(const Machine& machine, bool fused);

 private:
  std::function<Plan()> lower_;
  std::vector<Bindings> bindings_;
  std::map<bool, Plan> plans_;  // by whether kernels are fused
};

}  // namespace orrery
