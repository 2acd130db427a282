// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/cuda/driver.hpp"

namespace orrery {

/// Events of one execution, made once and used again in the next.
class EventPool {
 public:
  explicit EventPool(GpuDriver& driver)
      : driver_{driver},
        events_(static_cast<std::size_t>(driver.num_devices())),
        used_(static_cast<std::size_t>(driver.num_devices())) {}

  /// An event of the device of a queue that passes when all that is enqueued there now is done.
  GpuEvent record(const GpuQueue& queue) {
    const GpuEvent event = take(queue.device);
    driver_.record(event, queue.stream);
    return event;
  }
  /// One that is for `nanoseconds` only.
  GpuEvent stamp(const GpuQueue& queue) {
    const GpuEvent event = take(queue.device);
    driver_.stamp(event, queue.stream);
    return event;
  }
  /// All events may be used again: nothing waits for them any more.
  void reset() { used_.assign(used_.size(), 0); }

 private:
  GpuEvent take(int of_device) {
    const auto device = static_cast<std::size_t>(of_device);
    if (used_[device] == events_[device].size()) events_[device].emplace_back(driver_, driver_.make_event(of_device));
    return events_[device][used_[device]++].get();
  }

  GpuDriver& driver_;
  std::vector<std::vector<GpuOwned<GpuEvent>>> events_;  // per device
  std::vector<std::size_t> used_;
};

}  // namespace orrery
