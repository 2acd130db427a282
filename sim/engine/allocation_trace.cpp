// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/allocation_trace.hpp"

#include <algorithm>
#include <limits>

#include "sim/base/caching_allocator.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kNowhere = -1;

/// Whose blocks are live after `last` events, by label.
std::vector<AllocationReplay::Owner> owners_after(const AllocationTrace& trace, std::size_t last) {
  std::vector<std::int64_t> of_block(trace.num_blocks), of_label(trace.labels.size());
  for (std::size_t i = 0; i < last; ++i) {
    const auto& e = trace.events[i];
    if (e.kind == AllocationTrace::Kind::Take) {
      of_block[e.block] = e.bytes;
      of_label[e.label] += e.bytes;
    } else if (e.kind == AllocationTrace::Kind::Give) {
      of_label[e.label] -= of_block[e.block];
    }
  }
  std::vector<AllocationReplay::Owner> out;
  for (std::size_t l = 0; l < of_label.size(); ++l)
    if (of_label[l] > 0) out.push_back({static_cast<std::uint32_t>(l), of_label[l]});
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace

double AllocationReplay::fragmentation() const {
  if (points.empty() || points[peak].reserved == 0) return 0;
  return 1 - double(points[peak].allocated) / double(points[peak].reserved);
}

AllocationReplay replay(const AllocationTrace& trace, const AllocatorOptions& options, std::int64_t capacity) {
  const auto allocator = make_allocator(options, capacity);
  std::vector<std::int64_t> places(trace.num_blocks, kNowhere);
  AllocationReplay out;
  std::size_t live_events = 0;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const auto& e = trace.events[i];
    switch (e.kind) {
      case AllocationTrace::Kind::Take: {
        if (e.bytes == 0) continue;  // no bytes, no block
        auto place = allocator->allocate(e.bytes, e.stream);
        if (!place) {
          out.refused.push_back(i);
          allocator->set_capacity(std::numeric_limits<std::int64_t>::max());
          place = allocator->allocate(e.bytes, e.stream);
          if (!place) continue;  // more than any memory
        }
        places[e.block] = *place;
        break;
      }
      case AllocationTrace::Kind::Give:
        if (places[e.block] == kNowhere) continue;
        allocator->release(places[e.block], e.events);
        break;
      case AllocationTrace::Kind::EventOver:
        if (places[e.block] != kNowhere) allocator->complete_event(places[e.block]);
        break;
      case AllocationTrace::Kind::EmptyCache:
        if (auto* caching = dynamic_cast<CachingAllocator*>(allocator.get())) caching->empty_cache();
        break;
    }
    const AllocatorStats& s = allocator->stats();
    out.points.push_back({e.at_ps, s.allocated, s.active, s.reserved, s.requested});
    if (s.reserved > out.points[out.peak].reserved) out.peak = out.points.size() - 1;
    if (s.allocated > out.points[out.peak_live].allocated) {
      out.peak_live = out.points.size() - 1;
      live_events = i + 1;
    }
  }
  if (!out.points.empty() && live_events == 0) live_events = 1;
  out.stats = allocator->stats();
  out.owners = owners_after(trace, live_events);
  return out;
}

}  // namespace orrery
