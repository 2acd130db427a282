// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace orrery {

/// Threads that wait between executions, so that an execution starts none.
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
  void serve(std::size_t index);

  std::mutex mutex_;
  std::condition_variable start_, done_;
  Jobs* jobs_ = nullptr;
  std::size_t count_ = 0, left_ = 0;
  std::uint64_t generation_ = 0;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace orrery
