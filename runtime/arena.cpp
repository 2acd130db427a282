// SPDX-License-Identifier: Apache-2.0
#include "runtime/arena.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/base/error.hpp"
#include "sim/base/pages.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBlock = 1 << 20;

void unmap(std::uintptr_t first, std::uintptr_t last) {
  if (last > first) munmap(reinterpret_cast<void*>(first), last - first);
}

/// Memory that is touched page by page, on large pages where the system has them: a step then misses the TLB less
/// often, and where its tensors lie in a cache does not depend on which small pages the system had left.
std::uintptr_t map_memory(std::int64_t capacity) {
  const auto bytes = static_cast<std::uintptr_t>(capacity);
  void* p =
      mmap(nullptr, bytes + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) fail_call("mmap");
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)), first = reinterpret_cast<std::uintptr_t>(p);
  const std::uintptr_t base = (first + kLargePage - 1) / kLargePage * kLargePage;
  unmap(first, base);
  unmap(base + (bytes + page - 1) / page * page, first + (bytes + kLargePage + page - 1) / page * page);
  want_large_pages(reinterpret_cast<void*>(base), bytes);
  return base;
}

}  // namespace

Arena::Arena(std::int64_t capacity, Backing backing, const AllocatorOptions& allocator)
    : allocator_{make_allocator(allocator, capacity)},
      capacity_{capacity},
      addresses_{address_space(allocator, capacity)},
      backing_{backing} {
  if (backing == Backing::Memory && capacity > 0) base_ = map_memory(addresses_);
  if (backing == Backing::File) file_ = std::make_unique<DiskFile>(PageCache::Used);
  if (backing == Backing::DirectFile) file_ = std::make_unique<DiskFile>(PageCache::Passed);
}

Arena::Arena(std::unique_ptr<DeviceMemory> device, const AllocatorOptions& allocator)
    : allocator_{make_allocator(allocator, device->capacity())},
      capacity_{device->capacity()},
      addresses_{device->capacity()},
      backing_{Backing::Device},
      base_{device->base()},
      device_{std::move(device)} {}

Arena::~Arena() {
  for (const auto& [place, offset] : plain_) device_->release(place);
  if (backing_ == Backing::Memory && base_ != 0) unmap(base_, base_ + static_cast<std::uintptr_t>(addresses_));
}

std::optional<std::uintptr_t> Arena::take(std::int64_t bytes, std::int32_t stream) {
  const auto offset = allocator_->allocate(bytes, stream);
  if (!offset) return std::nullopt;
  if (device_ && device_->is_plain()) {
    const auto place = device_->allocate(bytes);
    if (place)
      plain_[*place] = *offset;
    else
      allocator_->release(*offset);
    return place;
  }
  if (device_ && !device_->grow(allocator_->stats().extent)) {
    allocator_->release(*offset);
    return std::nullopt;
  }
  return base_ + static_cast<std::uintptr_t>(*offset);
}

void Arena::give_back(std::uintptr_t place) {
  if (const auto plain = plain_.find(place); plain != plain_.end()) {
    allocator_->release(plain->second);
    plain_.erase(plain);
    device_->release(place);
    return;
  }
  allocator_->release(static_cast<std::int64_t>(place - base_));
}

void Arena::clear(std::uintptr_t place, std::int64_t bytes, std::int64_t used_before) {
  const auto offset = static_cast<std::int64_t>(place - base_);
  if (device_) device_->clear(place, bytes);
  if (backing_ == Backing::Memory) {
    const std::int64_t dirty = std::clamp<std::int64_t>(used_before - offset, 0, bytes);
    if (dirty > 0) std::memset(reinterpret_cast<void*>(place), 0, static_cast<std::size_t>(dirty));
  } else if (file_) {
    const std::vector<std::byte> zeros(static_cast<std::size_t>(std::min(bytes, kBlock)));
    for (std::int64_t done = 0; done < bytes; done += kBlock)
      file_->write(offset + done, zeros.data(), std::min(kBlock, bytes - done));
  }
}

}  // namespace orrery
