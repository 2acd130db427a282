// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/eight_bit.hpp"
#include "tests/cuda_emulation.hpp"

namespace orrery::testing {

using namespace kernels::cuda;

void add_eight_bit_runners(GridRunners& runners) {
  add_runners(EightBitKernels<bf16>{}, runners);
  add_runners(EightBitKernels<f16>{}, runners);
  add_runners(EightBitScaleKernels{}, runners);
}

}  // namespace orrery::testing
