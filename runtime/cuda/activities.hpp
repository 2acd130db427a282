// SPDX-License-Identifier: Apache-2.0
// Records of what ran on a device when, joined to the ops that caused it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sim/plan/plan.hpp"

namespace orrery {

/// Something that ran on a device, or a call that waited or asked for memory: when, by the device's clock, and for
/// which mark of GpuDriver::mark; 0: for none. Both times are 0 where they are not known.
struct Activity {
  enum class Kind : std::uint8_t { Kernel, Copy, Fill, HostWait, StreamWait, Allocation, Release };
  std::uint64_t mark = 0;
  std::int64_t start_ns = 0, end_ns = 0;
  Kind kind = Kind::Kernel;
  std::int64_t bytes = 0;  // of copies, fills and memory

  /// Whether it took time on the device: the others are calls of the host.
  bool is_on_device() const { return kind == Kind::Kernel || kind == Kind::Copy || kind == Kind::Fill; }
};

/// The same instant by two clocks.
struct ClockPair {
  std::int64_t device_ns = 0, host_ns = 0;
};

/// What was recorded since the last time.
struct ActivityLog {
  std::vector<Activity> activities;
  std::uint64_t dropped = 0;  // records that there was no room for
  ClockPair first, last;      // before and after
};

class ActivitySource {
 public:
  virtual ~ActivitySource() = default;
  /// Waits for all records of what has ended.
  virtual ActivityLog take() = 0;
};

/// The op that a mark stands for.
struct MarkedOp {
  OpId op;
  std::uint32_t lane = 0;  // any number of the lane
};

/// When an op ran: from the start of its first record to the end of its last one, by the clock of the host.
struct JoinedSpan {
  std::int64_t start_ns = 0, end_ns = 0;
  bool is_measured = false;  // had a record
};

/// Spans of marked ops; mark i + 1 is that of marked[i]. Ops without records take no time at the end of the op before
/// them on their lane. Between the two pairs of clocks the device's clock is taken to run evenly. `unknown` counts
/// records of marks that are none of these.
struct Joined {
  std::vector<JoinedSpan> spans;
  std::uint64_t unknown = 0;
};
Joined join_activities(const ActivityLog& log, std::span<const MarkedOp> marked);

/// What the records of some executions came to: how much of each kind, and the calls of the host by the op that caused
/// them.
struct ActivityAccount {
  struct Calls {
    std::int64_t waits = 0, wait_ns = 0;          // of the host
    std::int64_t stream_waits = 0;                // that were asked of streams
    std::int64_t allocations = 0, allocated = 0;  // and bytes
    std::int64_t releases = 0, released = 0;
    bool is_any() const { return waits + stream_waits + allocations + releases > 0; }
  };
  std::int64_t kernels = 0, copies = 0, copied = 0, fills = 0, filled = 0;
  Calls outside;                       // of no op
  std::map<std::string, Calls> of_op;  // by the name of the op

  void add(const ActivityLog& log, std::span<const MarkedOp> marked, const Plan& plan);
};

/// An instant of the device's clock by the clock of the host.
std::int64_t host_time(const ActivityLog& log, std::int64_t device_ns);

}  // namespace orrery
