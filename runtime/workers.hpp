// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/awaited.hpp"

namespace orrery {

/// Threads that wait between executions, so that an execution starts none. Each waits for a signal of its own: threads
/// that were woken to queue for one lock would end up on one core.
class Workers {
 public:
  /// One numbered job for each of `count` threads.
  class Jobs {
   public:
    virtual ~Jobs() = default;
    virtual void run(std::size_t index) noexcept = 0;
  };

  Workers() = default;
  ~Workers();
  /// Makes sure that there are `count` threads.
  void reserve(std::size_t count);
  /// Runs job 0 … count − 1, each on a thread of its own, and returns when all have ended.
  void run(Jobs& jobs, std::size_t count);

 private:
  struct Worker {
    Awaited calls{0};
    Jobs* jobs = nullptr;  // of the last call; none: to stop
    std::thread thread;
  };
  void serve(Worker& worker, std::size_t index);
  static void call(Worker& worker, Jobs* jobs);

  Awaited left_{0};
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace orrery
