// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_testing.hpp"

namespace orrery::testing {

/// One for all tests: libraries and kernels are loaded once.
std::shared_ptr<GpuDriver> gpu_under_test() {
  static const std::shared_ptr<GpuDriver> driver = open_gpu_driver();
  return driver;
}

}  // namespace orrery::testing
