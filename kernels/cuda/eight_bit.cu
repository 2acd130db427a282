// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eight_bit.hpp"

#include "kernels/cuda/thread.cuh"

namespace orrery::kernels::cuda {

void add_eight_bit_entries(Entries& entries) {
  add_entries(EightBitKernels<bf16>{}, entries);
  add_entries(EightBitKernels<f16>{}, entries);
  add_entries(EightBitScaleKernels{}, entries);
}

}  // namespace orrery::kernels::cuda
