// SPDX-License-Identifier: Apache-2.0
#include "sim/base/offset_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {

OffsetAllocator::OffsetAllocator(std::int64_t capacity) {
  if (capacity < 0) bug("an allocator of negative capacity");
  set_capacity(capacity);
}

void OffsetAllocator::set_capacity(std::int64_t bytes) {
  const std::int64_t whole = bytes / kUnit * kUnit;
  if (whole <= capacity_) return;
  const std::int64_t from = std::exchange(capacity_, whole);
  add_gap({from, whole - from});
}

std::optional<std::int64_t> OffsetAllocator::allocate(std::int64_t bytes, std::int32_t) {
  if (bytes < 0) bug("an allocation of negative size");
  if (bytes > INT64_MAX - kUnit) return refuse();
  const std::int64_t size = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  auto fit = gaps_.end();
  std::int64_t least = INT64_MAX;
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->size < size || (gap->size >= least && fit != gaps_.end())) continue;
    least = gap->size;
    fit = gap;
    if (least == size) break;
  }
  if (fit == gaps_.end()) return refuse();
  const std::int64_t offset = fit->offset;
  if (fit->size > size)
    *fit = {offset + size, fit->size - size};
  else
    gaps_.erase(fit);
  blocks_.insert({{offset, size, bytes}});
  stats_.allocated = stats_.active += size;
  stats_.requested += bytes;
  stats_.extent = stats_.reserved = std::max(stats_.extent, offset + size);
  raise();
  return offset;
}

void OffsetAllocator::give_back(std::int64_t offset) {
  const Range gap = take_block(offset);
  stats_.allocated = stats_.active -= gap.size;
  stats_.requested -= gap.requested;
  add_gap(gap);
}

void OffsetAllocator::take_over(std::span<const Range> gone, std::span<const Range> taken, std::span<const Range> gaps,
                                std::int64_t rise, std::int64_t end) {
  const std::int64_t allocated = stats_.allocated, requested = stats_.requested;
  stats_.peak_allocated = std::max(stats_.peak_allocated, allocated + rise);
  stats_.peak_active = std::max(stats_.peak_active, allocated + rise);
  stats_.peak_requested = std::max(stats_.peak_requested, requested + rise);
  stats_.extent = stats_.reserved = std::max(stats_.extent, end);
  stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
  for (const Range& given : gone) {
    const Range block = take_block(given.offset);
    stats_.allocated -= block.size;
    stats_.requested -= block.requested;
  }
  for (const Range& block : taken) {
    blocks_.insert({block});
    stats_.allocated += block.size;
    stats_.requested += block.requested;
  }
  stats_.active = stats_.allocated;
  gaps_.assign(gaps.begin(), gaps.end());
}

OffsetAllocator::Range OffsetAllocator::take_block(std::int64_t offset) {
  const Range range = blocks_.take(static_cast<std::uint64_t>(offset / kUnit)).range;
  if (range.size == 0 || range.offset != offset) bug("an allocator was given back a block that is not live");
  return range;
}

void OffsetAllocator::add_gap(Range gap) {
  const std::int64_t offset = gap.offset;
  const auto after = std::lower_bound(gaps_.begin(), gaps_.end(), offset,
                                      [](const Range& r, std::int64_t wanted) { return r.offset < wanted; });
  const bool joins_after = after != gaps_.end() && after->offset == offset + gap.size;
  const bool joins_before = after != gaps_.begin() && std::prev(after)->offset + std::prev(after)->size == offset;
  if (joins_after) gap.size += after->size;
  if (joins_before) gap = {std::prev(after)->offset, std::prev(after)->size + gap.size};
  if (joins_before)
    *std::prev(after) = gap;
  else if (joins_after)
    *after = gap;
  else
    gaps_.insert(after, gap);
  if (joins_before && joins_after) gaps_.erase(after);
}

}  // namespace orrery
