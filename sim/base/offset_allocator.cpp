// SPDX-License-Identifier: Apache-2.0
#include "sim/base/offset_allocator.hpp"

#include <algorithm>
#include <bit>
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
  blocks_.insert({offset, size, bytes});
  stats_.allocated = stats_.active += size;
  stats_.requested += bytes;
  stats_.extent = stats_.reserved = std::max(stats_.extent, offset + size);
  raise();
  return offset;
}

void OffsetAllocator::give_back(std::int64_t offset) {
  const Range gap = blocks_.take(offset);
  if (gap.size == 0) bug("an allocator was given back a block that is not live");
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
    const Range block = blocks_.take(given.offset);
    if (block.size == 0) bug("an allocator was given back a block that is not live");
    stats_.allocated -= block.size;
    stats_.requested -= block.requested;
  }
  for (const Range& block : taken) {
    blocks_.insert(block);
    stats_.allocated += block.size;
    stats_.requested += block.requested;
  }
  stats_.active = stats_.allocated;
  gaps_.assign(gaps.begin(), gaps.end());
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

std::size_t OffsetAllocator::Blocks::home(std::int64_t offset) const {
  return static_cast<std::size_t>(static_cast<std::uint64_t>(offset / kUnit) * 0x9e3779b97f4a7c15ull >> shift_);
}

void OffsetAllocator::Blocks::grow() {
  const std::vector<Range> old =
      std::exchange(places_, std::vector<Range>(std::max<std::size_t>(16, 2 * places_.size())));
  shift_ = 64 - std::countr_zero(places_.size());
  size_ = 0;
  for (const Range& block : old)
    if (block.size > 0) insert(block);
}

void OffsetAllocator::Blocks::insert(const Range& block) {
  if (2 * size_ >= places_.size()) grow();
  std::size_t at = home(block.offset);
  while (places_[at].size > 0) at = (at + 1) & (places_.size() - 1);
  places_[at] = block;
  ++size_;
}

OffsetAllocator::Range OffsetAllocator::Blocks::take(std::int64_t offset) {
  if (size_ == 0) return {};
  const std::size_t mask = places_.size() - 1;
  std::size_t at = home(offset);
  while (places_[at].size > 0 && places_[at].offset != offset) at = (at + 1) & mask;
  const Range found = std::exchange(places_[at], Range{});
  if (found.size == 0) return found;
  --size_;
  // Those behind it move up where they would not be found across the free place.
  for (std::size_t next = (at + 1) & mask; places_[next].size > 0; next = (next + 1) & mask)
    if (((next - home(places_[next].offset)) & mask) >= ((next - at) & mask)) {
      places_[at] = std::exchange(places_[next], Range{});
      at = next;
    }
  return found;
}

}  // namespace orrery
