// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/elementwise.hpp"

#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_elementwise_entries(Entries& entries) {
  add_entries(MapKernels<float>{}, entries);
  add_entries(MapKernels<bf16>{}, entries);
  add_entries(MapKernels<f16>{}, entries);
  add_entries(CastKernels{}, entries);
  add_entries(MoveKernels{}, entries);
}

Entries all_entries() {
  Entries entries;
  add_elementwise_entries(entries);
  add_row_entries(entries);
  add_update_entries(entries);
  add_attention_entries(entries);
  add_attention_rows_entries(entries);
  add_attention_tile_entries(entries);
  add_grouped_entries(entries);
  add_hopper_entries(entries);
  add_expert_entries(entries);
  add_model_entries(entries);
  add_eight_bit_entries(entries);
  return entries;
}

}  // namespace orrery::kernels::cuda
