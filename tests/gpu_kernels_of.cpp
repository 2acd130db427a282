// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_kernels_of.hpp"

#include "runtime/cuda/families.hpp"

namespace orrery::testing {

std::vector<std::string> works_without_kernel(const Plan& plan) {
  std::vector<std::string> missing;
  for (const Work& work : plan.works)
    if (!find_gpu_kernel(work)) missing.push_back(to_text(work));
  return missing;
}

}  // namespace orrery::testing
