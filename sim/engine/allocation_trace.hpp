// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/base/allocator.hpp"

namespace orrery {

/// What one rank asked of the allocator of its device, in order.
struct AllocationTrace {
  enum class Kind : std::uint8_t { Take, Give, EventOver, EmptyCache };
  struct Event {
    Kind kind = Kind::Take;
    std::int32_t stream = 0;
    std::uint32_t block = 0;  // a number of its own for each block that is taken
    std::uint32_t label = 0;  // whose it is, in `labels`
    std::int32_t events = 0;  // Give: of other streams, which EventOver follow
    std::int64_t bytes = 0;
    std::int64_t at_ps = 0;
  };
  std::vector<Event> events;
  std::vector<std::string> labels;
  std::uint32_t num_blocks = 0;
};

/// An allocator's state after an event of a trace.
struct AllocationPoint {
  std::int64_t at_ps = 0;
  std::int64_t allocated = 0, active = 0, reserved = 0, requested = 0;
};

/// A trace as an allocator takes it.
struct AllocationReplay {
  AllocatorStats stats;                 // after the last event
  std::vector<AllocationPoint> points;  // one per event that changed something
  std::size_t peak = 0;                 // the point of the largest reserved, the first of them
  std::size_t peak_live = 0;            // of the largest allocated
  struct Owner {
    std::uint32_t label = 0;
    std::int64_t bytes = 0;  // as asked for
  };
  std::vector<Owner> owners;  // of what was live at `peak_live`, by label, largest first
  std::vector<std::size_t>
      refused;  // events of the trace that found no room: as if the memory were larger from there on

  /// Share of what is reserved at its peak that nobody has.
  double fragmentation() const;
};

/// Replays a trace through a fresh allocator over a memory of `capacity` bytes.
AllocationReplay replay(const AllocationTrace& trace, const AllocatorOptions& options, std::int64_t capacity);

}  // namespace orrery
