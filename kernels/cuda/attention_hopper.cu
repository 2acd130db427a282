// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_hopper.hpp"

#include "kernels/cuda/hopper_thread.cuh"

namespace orrery::kernels::cuda {

void add_hopper_entries(Entries& entries) { add_entries<HopperThread>(HopperAttentionKernels{}, entries); }

}  // namespace orrery::kernels::cuda
