// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/spin.hpp"

#include <chrono>

namespace orrery::kernels {

void spin(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>{seconds};
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace orrery::kernels
