// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "kernels/cuda/kernel.hpp"

namespace orrery::kernels::cuda {

/// A kernel and its function on the device, for cudaLaunchKernel.
struct Entry {
  const KernelTag* tag;
  const void* function;
};
using Entries = std::vector<Entry>;

/// All kernels that were compiled for the device. Defined in kernels/cuda/*.cu, so only there when built with CUDA.
Entries all_entries();

void add_elementwise_entries(Entries& entries);
void add_row_entries(Entries& entries);
void add_update_entries(Entries& entries);
void add_attention_entries(Entries& entries);
void add_attention_rows_entries(Entries& entries);
void add_attention_tile_entries(Entries& entries);
void add_expert_entries(Entries& entries);
void add_grouped_entries(Entries& entries);
void add_model_entries(Entries& entries);
void add_eight_bit_entries(Entries& entries);
void add_hopper_entries(Entries& entries);  // run on compute capability 9.0 only

}  // namespace orrery::kernels::cuda
