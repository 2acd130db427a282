// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/grouped_tile.hpp"
#include "kernels/cuda/staged_thread.cuh"

namespace orrery::kernels::cuda {

void add_grouped_entries(Entries& entries) {
  for_each_tile_list([&](auto list) { add_entries<StagedThread>(list, entries); });
}

}  // namespace orrery::kernels::cuda
