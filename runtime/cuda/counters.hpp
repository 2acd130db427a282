// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery {

/// What of a device is counted, by the names that NVIDIA gives it: bytes that its memory has given and taken, and the
/// share of time in which the tensor cores of its processors were at work, in percent.
inline constexpr const char* kBytesRead = "dram__bytes_read.sum";
inline constexpr const char* kBytesWritten = "dram__bytes_write.sum";
inline constexpr const char* kTensorShare = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";

/// Counters of one device over some work.
class CounterSource {
 public:
  virtual ~CounterSource() = default;
  /// Values in the order of the names that were asked for. Calls `work`, which has to wait for the device and to do the
  /// same each time, as often as the counters need passes. Throws DeviceError with one line that says what to do where
  /// counting is not permitted.
  virtual std::vector<double> measure(const std::function<void()>& work) = 0;
};

}  // namespace orrery
