// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gates.hpp"
#include "kernels/cuda/grouped_float.hpp"
#include "kernels/cuda/grouped_tile.hpp"
#include "kernels/cuda/routing.hpp"
#include "tests/cuda_hopper_emulation.hpp"

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
  add_runners(GroupedFloatKernels{}, runners);
  for_each_tile_list([&](auto list) { add_hopper_runners(list, runners); });
}

}  // namespace orrery::testing
