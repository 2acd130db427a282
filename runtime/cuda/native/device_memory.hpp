// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/arena.hpp"
#include "runtime/cuda/native/check.hpp"
#include "runtime/cuda/pinned_pieces.hpp"
#include "sim/base/library.hpp"

namespace orrery {

/// What of the driver the memory needs: addresses first, pages behind them later.
struct VirtualMemoryCalls {
  explicit VirtualMemoryCalls(const Library& driver);

  decltype(cuMemAddressReserve)* reserve = nullptr;
  decltype(cuMemAddressFree)* free = nullptr;
  decltype(cuMemCreate)* create = nullptr;
  decltype(cuMemRelease)* release = nullptr;
  decltype(cuMemMap)* map = nullptr;
  decltype(cuMemUnmap)* unmap = nullptr;
  decltype(cuMemSetAccess)* set_access = nullptr;
  decltype(cuMemGetAllocationGranularity)* granularity = nullptr;
};

/// Memory of one device that other devices reach where the hardware lets them. Grows by 64 MiB at least.
std::unique_ptr<DeviceMemory> make_device_memory(std::shared_ptr<const VirtualMemoryCalls> calls, int device);
/// Blocks of cudaMalloc.
std::unique_ptr<DeviceMemory> make_plain_memory(int device);

/// Page-locked memory of the host; grows as that of a device, a piece at a time.
std::unique_ptr<DeviceMemory> make_pinned_memory(std::shared_ptr<PinnedPieces> pieces);

}  // namespace orrery
