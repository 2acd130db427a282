// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/cuda/driver.hpp"

namespace orrery {

/// Clock, power and temperature of devices, by NVML.
class Sensors {
 public:
  virtual ~Sensors() = default;
  /// Zeros for what NVML does not tell.
  virtual GpuState read(int device) = 0;
};
/// Null when there is no NVML on this computer.
std::unique_ptr<Sensors> open_sensors();

}  // namespace orrery
