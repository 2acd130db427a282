// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/pass_model.hpp"

#include "sim/strategy/kernel_fusion.hpp"

namespace orrery {

double PassModel::seconds(const Machine& machine, bool fused) {
  if (!plans_.contains(fused)) plans_.emplace(fused, fused ? fuse_kernels(lower_()) : lower_());
  const Plan& plan = plans_.at(fused);
  double sum = 0;
  for (const Bindings& b : bindings_) {
    Engine engine{*machine.cost, *machine.resources, {.record = Record::Totals, .track_memory = false}};
    sum += double(engine.execute(plan, b).end_ps) * 1e-12;
  }
  return sum / double(bindings_.size());
}

}  // namespace orrery
