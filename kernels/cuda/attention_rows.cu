// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_rows.hpp"

#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_attention_rows_entries(Entries& entries) {
  add_entries(AttentionRowsKernels<float>{}, entries);
  add_entries(WideAttentionRowsKernels{}, entries);
  add_entries(AttentionRowsKernels<bf16>{}, entries);
  add_entries(AttentionRowsKernels<f16>{}, entries);
}

}  // namespace orrery::kernels::cuda
