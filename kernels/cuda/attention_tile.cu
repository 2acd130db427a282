// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_tile_slopes.hpp"
#include "kernels/cuda/staged_thread.cuh"

namespace orrery::kernels::cuda {

void add_attention_tile_entries(Entries& entries) {
  for_each_attention_tile_list([&](auto list) { add_entries<StagedThread>(list, entries); });
}

}  // namespace orrery::kernels::cuda
