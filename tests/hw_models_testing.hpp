// SPDX-License-Identifier: Apache-2.0
// Devices of round numbers for tests of laws.
#pragma once

#include "hw_models/gpu_model.hpp"

namespace orrery::testing {

/// 100 SMs, 100 TFLOP/s, memory that never limits; no laws.
inline GpuParameters bare_gpu() {
  using namespace orrery::literals;
  GpuParameters p;
  p.memory = 80.0_GiB;
  p.memory_bandwidth = 1e6 * 1.0_GBps;
  p.sm_count = 100;
  p.peak = {{"bf16", 100.0_TFLOPps}};
  p.vector_rate = 1e6 * 1.0_TFLOPps;
  p.host_rate = 1.0_GFLOPps;
  p.host_memory_bandwidth = 1.0_GBps;
  return p;
}

}  // namespace orrery::testing
