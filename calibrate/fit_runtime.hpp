// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "hw_models/gpu_parameters.hpp"

namespace orrery {

/// One op that the runtime executed on a GPU, by itself or within a step.
struct RuntimeCase {
  Work work;
  Bindings bindings;
  double seconds = 0;       // between the events around it
  std::uint32_t group = 0;  // of ops that are left out of a fit together: those of one plan
  bool in_plan = false;     // of a step; else it stood alone
};

/// Laws of the runtime's own kernels: of each name (`kernel_law_names`) that has enough cases; of products by type,
/// from those that stand alone (whose clock is the best) and those of steps, which tell the rate that is left to them
/// beside other ops. Coefficients make relative errors small (`fit_relative`). Cases of steps count more, since they
/// find the caches as a step leaves them; short ops that stand alone wait for the host and count only where no step has
/// their kind. `device` tells the data sheet that products are measured by, and the laws that their fit starts from.
void fit_runtime(GpuRuntime& runtime, const GpuParameters& device, const std::vector<RuntimeCase>& cases);

}  // namespace orrery
