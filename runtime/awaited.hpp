// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace orrery {

/// A number whose change threads wait for. libstdc++'s atomics call sched_yield four times before they sleep. Where
/// more ranks than cores wait for one another that is twice as fast as sleeping at once; but beside other programs each
/// call costs a time slice of theirs, of milliseconds, while a thread that sleeps is woken at once. Here threads sleep
/// at once for a while when a call took so long: a test of 4 to 16 ranks on two cores took 9, 49 and 393 s beside 0, 1
/// and 2 programs that compute, and takes 9, 16 and 24.
class Awaited : public std::atomic<std::uint32_t> {
 public:
  using atomic::atomic;

  /// Returns when it is not `value`.
  void wait(std::uint32_t value) const noexcept;
  /// Wakes all that wait. To be called behind each change that somebody may wait for.
  void notify_all() noexcept;
  void notify_one() = delete;  // the base's wakes only those that wait by its own `wait`

 private:
  bool has_changed_soon(std::uint32_t value) const noexcept;

  mutable std::atomic<std::uint32_t> asleep_{0};
};

}  // namespace orrery
