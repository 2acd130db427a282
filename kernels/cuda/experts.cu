// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/gates.hpp"
#include "kernels/cuda/grouped_float.hpp"
#include "kernels/cuda/routing.hpp"
#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_expert_entries(Entries& entries) {
  add_entries(GateKernels<float>{}, entries);
  add_entries(RoutingKernels<float>{}, entries);
  add_entries(GateKernels<bf16>{}, entries);
  add_entries(RoutingKernels<bf16>{}, entries);
  add_entries(GateKernels<f16>{}, entries);
  add_entries(RoutingKernels<f16>{}, entries);
  add_entries(RouteKernels{}, entries);
  add_entries(GroupedKernels{}, entries);
  add_entries(GroupedFloatKernels{}, entries);
}

}  // namespace orrery::kernels::cuda
