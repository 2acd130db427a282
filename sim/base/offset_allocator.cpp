// SPDX-License-Identifier: Apache-2.0
#include "sim/base/offset_allocator.hpp"

#include <algorithm>
#include <iterator>

#include "sim/base/error.hpp"

namespace orrery {

OffsetAllocator::OffsetAllocator(std::int64_t capacity) {
  if (capacity < 0) bug("an allocator of negative capacity");
  if (const std::int64_t whole = capacity / kUnit * kUnit; whole > 0) add_gap(0, whole);
}

std::optional<std::int64_t> OffsetAllocator::allocate(std::int64_t bytes) {
  if (bytes < 0) bug("an allocation of negative size");
  if (bytes > INT64_MAX - kUnit) return std::nullopt;
  const std::int64_t size = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) return std::nullopt;
  const auto [gap_size, offset] = *fit;
  remove_gap(gaps_.find(offset));
  if (gap_size > size) add_gap(offset + size, gap_size - size);
  blocks_.emplace(offset, size);
  live_ += size;
  high_water_ = std::max(high_water_, offset + size);
  return offset;
}

void OffsetAllocator::release(std::int64_t offset) {
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) bug("an allocator was given back a block that is not live");
  std::int64_t first = offset, size = block->second;
  blocks_.erase(block);
  live_ -= size;
  if (const auto after = gaps_.find(offset + size); after != gaps_.end()) {
    size += after->second;
    remove_gap(after);
  }
  if (auto before = gaps_.lower_bound(offset); before != gaps_.begin()) {
    before = std::prev(before);
    if (before->first + before->second == offset) {
      first = before->first;
      size += before->second;
      remove_gap(before);
    }
  }
  add_gap(first, size);
}

void OffsetAllocator::add_gap(std::int64_t offset, std::int64_t size) {
  gaps_.emplace(offset, size);
  by_size_.emplace(size, offset);
}

void OffsetAllocator::remove_gap(std::map<std::int64_t, std::int64_t>::iterator gap) {
  by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

}  // namespace orrery
