// SPDX-License-Identifier: Apache-2.0
// Devices of round numbers, and features of ops, for tests of laws.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <string_view>

#include "hw_models/gpu_model.hpp"
#include "hw_models/host_laws.hpp"

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

/// A feature that is counted in millions, of an op under caches of 1 and 16 MiB.
inline double millions(const LawForm& form, std::string_view name, const LawInput& input) {
  using namespace orrery::literals;
  const FeatureRow row = features_of(form, input, {1.0_MiB, 16.0_MiB});
  const auto found =
      std::find_if(form.features.begin(), form.features.end(), [&](const Feature& f) { return f.name == name; });
  REQUIRE(found != form.features.end());
  return 1e6 * row[static_cast<std::size_t>(found - form.features.begin())];
}

}  // namespace orrery::testing
