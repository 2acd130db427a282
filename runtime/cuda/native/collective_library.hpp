// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "runtime/cuda/driver.hpp"

namespace orrery {

/// Collectives of ranks on different devices, by NCCL: of this process, or of several.
class CollectiveLibrary {
 public:
  virtual ~CollectiveLibrary() = default;
  /// Enqueues one collective on all streams; false for kinds and types that it does not do.
  virtual bool run(std::span<const GpuCollective> members) = 0;
  /// As of GpuDriver. Each group has a communicator, whose identifier the process of its first rank makes and the
  /// others are told.
  virtual void connect(std::span<const GpuGroup> groups, const std::shared_ptr<Peers>& peers) = 0;
  virtual void run(const GpuGroup& group, std::span<const GpuCollective> members) = 0;
  virtual void exchange(const GpuGroup& group, std::span<const GpuExchange> members) = 0;
  /// While collectives are on their way: throws DeviceError when one has lost a member, or a process is gone, and gives
  /// up all of them, so that no stream waits for ever.
  virtual void check() = 0;
};
/// Null when the build or the computer has no NCCL. `before_abort` is called before all collectives are given up.
std::unique_ptr<CollectiveLibrary> open_collective_library(std::function<void()> before_abort);

}  // namespace orrery
