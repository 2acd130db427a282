// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gates.hpp"
#include "kernels/cuda/grouped.hpp"
#include "kernels/cuda/routing.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_expert_runners(GridRunners& runners) {
  add_runners(GateKernels<float>{}, runners);
  add_runners(RoutingKernels<float>{}, runners);
  add_runners(GateKernels<bf16>{}, runners);
  add_runners(RoutingKernels<bf16>{}, runners);
  add_runners(GateKernels<f16>{}, runners);
  add_runners(RoutingKernels<f16>{}, runners);
  add_runners(RouteKernels{}, runners);
  add_runners(GroupedKernels{}, runners);
}

}  // namespace orrery::testing
