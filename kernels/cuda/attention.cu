// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention.hpp"

#include "kernels/cuda/attention_slopes.hpp"
#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_attention_entries(Entries& entries) {
  add_entries(AttentionKernels<float>{}, entries);
  add_entries(AttentionSlopeKernels<float>{}, entries);
  add_entries(AttentionKernels<bf16>{}, entries);
  add_entries(AttentionSlopeKernels<bf16>{}, entries);
  add_entries(AttentionKernels<f16>{}, entries);
  add_entries(AttentionSlopeKernels<f16>{}, entries);
}

}  // namespace orrery::kernels::cuda
