// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_testing.hpp"
#include "tests/emulated_gpu.hpp"

namespace orrery::testing {

std::shared_ptr<GpuDriver> gpu_under_test() {
  return std::make_shared<EmulatedGpu>(EmulationOptions{.memory_bytes = 1 << 30});
}

}  // namespace orrery::testing
