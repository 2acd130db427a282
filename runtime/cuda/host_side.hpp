// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "kernels/cuda/kernel.hpp"
#include "runtime/cuda/driver.hpp"
#include "sim/plan/plan.hpp"

namespace orrery {

/// What a plan on GPUs has on the host: functions that streams call when they have come to them, pinned places for
/// numbers that ops and such functions exchange, and the word that kernels leave when data does not fit.
class HostSide {
 public:
  explicit HostSide(GpuDriver& driver);

  /// Calls work() on a thread of the driver, in the order of the stream. What it throws is thrown by `check`; later
  /// functions are then left out.
  void call(GpuStream stream, std::function<void()> work);
  /// A place of at most 16 bytes until the next reset.
  std::uintptr_t slot();
  /// A pinned buffer of kBuffer bytes that ops of one stream use one after another; begins at a page.
  std::uintptr_t buffer(GpuStream stream);
  static constexpr std::int64_t kBuffer = 4 << 20;

  kernels::cuda::Fault fault(OpId op) const;
  /// Throws what a function has thrown, or DeviceError for what a kernel has left.
  void check(const Plan& plan);
  /// Nothing that was enqueued is on its way any more, and none of it comes again.
  void reset();

  /// What is bound while functions run; they read it then, not when they are enqueued.
  const Bindings* bindings = nullptr;

 private:
  struct Errand {
    HostSide* side;
    std::function<void()> work;
  };
  static void run(void* errand) noexcept;
  std::uintptr_t take(std::int64_t bytes, std::int64_t alignment);

  GpuDriver& driver_;
  std::unique_ptr<DeviceMemory> pinned_;
  std::int64_t used_ = 0;
  std::vector<std::uintptr_t> slots_;
  std::size_t next_slot_ = 0;
  std::map<GpuStream, std::uintptr_t> buffers_;  // looked up only
  std::deque<Errand> errands_;
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace orrery
