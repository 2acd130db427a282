// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>

#include "runtime/disk_file.hpp"
#include "sim/base/allocator.hpp"

namespace orrery {

/// What lies behind the offsets of an arena: memory that is touched page by page, a file, nothing, or what a device
/// gives.
enum class Backing : std::uint8_t { Memory, File, DirectFile, None, Device };

/// Memory that a device gives. Its addresses are there from the start, what lies behind them comes as the arena grows;
/// or each block is asked for on its own.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Whether blocks are asked for one by one, by `allocate` and `release`; an arena then only counts.
  virtual bool is_plain() const { return false; }
  virtual std::optional<std::uintptr_t> allocate(std::int64_t) { return std::nullopt; }
  /// Waits until the device does nothing.
  virtual void release(std::uintptr_t) {}
  virtual std::uintptr_t base() const = 0;
  virtual std::int64_t capacity() const = 0;
  /// Makes the first `bytes` usable; false when there is no more.
  virtual bool grow(std::int64_t bytes) = 0;
  virtual void clear(std::uintptr_t place, std::int64_t bytes) = 0;
  virtual void read(std::uintptr_t place, void* to, std::int64_t bytes) = 0;
  virtual void write(std::uintptr_t place, const void* from, std::int64_t bytes) = 0;
};

/// Such memory that the processor reaches as its own.
class HostReachedMemory : public DeviceMemory {
 public:
  void clear(std::uintptr_t place, std::int64_t bytes) final {
    std::memset(reinterpret_cast<void*>(place), 0, static_cast<std::size_t>(bytes));
  }
  void read(std::uintptr_t place, void* to, std::int64_t bytes) final {
    std::memcpy(to, reinterpret_cast<const void*>(place), static_cast<std::size_t>(bytes));
  }
  void write(std::uintptr_t place, const void* from, std::int64_t bytes) final {
    std::memcpy(reinterpret_cast<void*>(place), from, static_cast<std::size_t>(bytes));
  }
};

/// The storage of one tier of one rank. A place is an address, or an offset when a file or nothing lies behind it.
class Arena {
 public:
  Arena(std::int64_t capacity, Backing backing, const AllocatorOptions& allocator = {});
  Arena(std::unique_ptr<DeviceMemory> device, const AllocatorOptions& allocator);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::optional<std::uintptr_t> take(std::int64_t bytes, std::int32_t stream = 0);
  void give_back(std::uintptr_t place);
  /// Makes what was given out before read as zeros again; fresh storage does so by itself.
  void clear(std::uintptr_t place, std::int64_t bytes, std::int64_t used_before);

  std::int64_t capacity() const { return capacity_; }
  const AllocatorStats& stats() const { return allocator_->stats(); }
  Backing backing() const { return backing_; }
  DiskFile* file() const { return file_.get(); }  // null when there is none
  DeviceMemory* device() const { return device_.get(); }

 private:
  std::unique_ptr<Allocator> allocator_;
  std::int64_t capacity_, addresses_;
  Backing backing_;
  std::uintptr_t base_ = 0;
  std::unique_ptr<DiskFile> file_;
  std::unique_ptr<DeviceMemory> device_;
  std::map<std::uintptr_t, std::int64_t> plain_;  // blocks that were asked for one by one, and where they would lie
};

}  // namespace orrery
