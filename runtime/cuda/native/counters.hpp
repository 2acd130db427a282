// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/counters.hpp"

namespace orrery {

/// What a chip counts in how many passes, as CUPTI's host library says, which needs no device. `chip` is a name like
/// "GH100". Throws DeviceError for names of counters that the chip does not have, MissingError without the library.
struct CounterPlan {
  std::vector<std::uint8_t> image;
  std::size_t passes = 0;
};
CounterPlan plan_counters(const std::string& chip, const std::vector<std::string>& names);

/// Counters of the device whose context is current. Throws MissingError without CUPTI, DeviceError when it says no.
std::unique_ptr<CounterSource> open_counters(int device, std::vector<std::string> names);

}  // namespace orrery
