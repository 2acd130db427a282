// SPDX-License-Identifier: Apache-2.0
// What the caching allocator gives back to the device, and segments that grow page by page.
#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/base/caching_allocator.hpp"

namespace orrery {

/// Large segments without a split, in passes of those that are as old as the mean or older, until enough is given back.
void CachingAllocator::collect_garbage() {
  if (allowed() == INT64_MAX) return;
  const auto threshold = static_cast<std::int64_t>(options_.garbage_collection_threshold * double(allowed()));
  const std::int64_t target = stats_.reserved - threshold;
  if (target <= 0) return;
  Pool& large = pool(false);
  const auto age = [&](const Free& f) { return double(large.searches - blocks_.at(f.place).searches_before); };
  const auto is_whole = [&](const Free& f) { return !is_split(blocks_.find(f.place)); };
  double total = 0;
  std::int64_t count = 0, released = 0;
  for (const Free& f : large.free)
    if (is_whole(f)) {
      total += age(f);
      ++count;
    }
  for (bool some = true; some && count > 0 && released < target;) {
    some = false;
    const double mean = total / double(count);
    for (auto it = large.free.begin(); it != large.free.end();) {
      const Free f = *it++;
      if (!is_whole(f) || blocks_.at(f.place).expandable || age(f) < mean) continue;
      some = true;
      released += f.size;
      total -= age(f);
      --count;
      release_segment(blocks_.find(f.place));
    }
  }
}

/// With a largest size of split blocks: the smallest cached block above it that is large enough, else such blocks from
/// the largest down until they are enough together.
bool CachingAllocator::release_oversize(const Request& r) {
  if (max_split_ == INT64_MAX) return false;
  Pool& p = pool(r.small);
  const std::int64_t wanted = std::max(r.size, max_split_);
  const auto fit = p.free.lower_bound({r.stream, wanted, INT64_MIN});
  if (fit != p.free.end() && fit->stream == r.stream) {
    const At block = blocks_.find(fit->place);
    if (!block->second.expandable && !is_split(block)) release_segment(block);
    return true;
  }
  std::int64_t released = 0;
  for (auto it = fit; it != p.free.begin() && released < wanted;) {
    const Free f = *std::prev(it);
    if (f.stream != r.stream || f.size < max_split_) break;
    const At block = blocks_.find(f.place);
    if (block->second.expandable) {
      --it;
      continue;
    }
    release_segment(block);  // `it` stays valid: it is the one behind
    released += f.size;
  }
  return released >= wanted;
}

/// Waits for all events: those that are told later are over already.
void CachingAllocator::empty_cache() {
  poll_events();
  std::vector<std::int64_t> waiting;
  for (const auto& [place, b] : blocks_)
    if (b.waits) waiting.push_back(place);
  for (const std::int64_t place : waiting) {
    const At block = blocks_.find(place);
    waited_for_[place] += std::exchange(block->second.events, 0);
    make_free(block);
  }
  for (Pool& p : pools_) {
    std::vector<std::int64_t> pages;
    for (auto it = p.free.begin(); it != p.free.end();) {
      const At block = blocks_.find((it++)->place);
      if (block->second.expandable)
        pages.push_back(block->first);
      else if (!is_split(block))
        release_segment(block);
    }
    for (const std::int64_t place : pages) unmap(blocks_.find(place));
  }
}

void CachingAllocator::release_segment(At block) {
  erase_free(block);
  ++stats_.num_device_frees;
  stats_.reserved -= block->second.size;
  addresses_.release(block->first);
  blocks_.erase(block);
}

std::optional<CachingAllocator::At> CachingAllocator::from_expandable(const Request& r) {
  const std::optional<At> start = expandable_start(r);
  if (!start) return std::nullopt;
  At block = *start;
  if (block->second.mapped)
    erase_free(block);
  else if (!map(block, std::min(block->second.size, r.size)))
    return std::nullopt;
  while (block->second.size < r.size) {
    At next = std::next(block);
    if (!map(next, std::min(r.size - block->second.size, next->second.size))) {
      insert_free(block);
      return std::nullopt;
    }
    block = join(block, next);
  }
  return block;
}

/// The lowest range without pages that is large enough, with the free block before it and the one behind; a new range
/// when there is none. Blocks from the returned one on are idle.
std::optional<CachingAllocator::At> CachingAllocator::expandable_start(const Request& r) {
  Pool& p = pool(r.small);
  for (auto it = p.unmapped.lower_bound({r.stream, 0, INT64_MIN}); it != p.unmapped.end() && it->stream == r.stream;
       ++it) {
    At candidate = blocks_.find(it->place);
    if (const auto previous = before(candidate); previous && !(*previous)->second.live && !(*previous)->second.waits)
      candidate = *previous;
    if (has_room(candidate, r.size)) return candidate;
  }
  const std::int64_t page = page_size(r.small);
  const std::int64_t device = std::min(capacity_, std::int64_t{1} << 42);
  const std::int64_t wanted = std::max(device + device / 8, r.size);
  const std::int64_t range = (wanted + page - 1) / page * page;
  const auto place = addresses_.allocate(range);
  if (!place) return std::nullopt;
  const Block b{
      .size = range, .segment = *place, .stream = r.stream, .small = r.small, .mapped = false, .expandable = true};
  const At block = blocks_.emplace(*place, b).first;
  insert_free(block);
  return block;
}

bool CachingAllocator::has_room(At from, std::int64_t bytes) const {
  const std::int64_t segment = from->second.segment;
  for (auto it = Blocks::const_iterator{from};
       bytes > 0 && it != blocks_.end() && it->second.segment == segment && !it->second.live && !it->second.waits; ++it)
    bytes -= it->second.size;
  return bytes <= 0;
}

/// Whole pages from the start of a block without any. The block is in no list afterwards, and joined with the free
/// block behind it.
bool CachingAllocator::map(At& block, std::int64_t bytes) {
  const std::int64_t page = page_size(block->second.small);
  const std::int64_t mapped = (bytes + page - 1) / page * page;
  if (mapped > capacity_ - stats_.reserved) return false;
  erase_free(block);
  Block& b = block->second;
  if (mapped < b.size) {
    Block rest = b;
    rest.size -= mapped;
    b.size = mapped;
    insert_free(blocks_.emplace(block->first + mapped, rest).first);
  }
  b.mapped = true;
  stats_.reserved += mapped;
  stats_.num_device_allocs += mapped / page;
  if (const auto next = after(block); next && can_join(b, (*next)->second)) {
    erase_free(*next);
    block = join(block, *next);
  }
  return true;
}

/// Takes the whole pages out of a free block.
void CachingAllocator::unmap(At block) {
  const std::int64_t page = page_size(block->second.small), origin = block->second.segment;
  const std::int64_t begin = block->first, end = begin + block->second.size;
  const std::int64_t first = origin + (begin - origin + page - 1) / page * page,
                     last = origin + (end - origin) / page * page;
  if (first >= last) return;
  erase_free(block);
  const Block whole = block->second;
  blocks_.erase(block);
  const auto add = [&](std::int64_t from, std::int64_t to, bool mapped) {
    Block b = whole;
    b.size = to - from;
    b.mapped = mapped;
    return blocks_.emplace(from, b).first;
  };
  if (begin < first) insert_free(add(begin, first, true));
  if (last < end) insert_free(add(last, end, true));
  At middle = add(first, last, false);
  stats_.reserved -= last - first;
  stats_.num_device_frees += (last - first) / page;
  if (const auto previous = before(middle); previous && can_join((*previous)->second, middle->second)) {
    erase_free(*previous);
    middle = join(*previous, middle);
  }
  if (const auto next = after(middle); next && can_join(middle->second, (*next)->second)) {
    erase_free(*next);
    middle = join(middle, *next);
  }
  insert_free(middle);
}

}  // namespace orrery
