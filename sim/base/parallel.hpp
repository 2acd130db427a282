// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace orrery {

/// Calls f(0) … f(n − 1) on as many threads as there are cores, and `after(part done)` now and then on the caller's.
/// The first exception stops all and comes out. The caller puts results where i says, so they do not depend on threads.
inline void in_parallel(
    std::size_t n, const std::function<void(std::size_t)>& f,
    const std::function<void(double)>& after = [](double) {}) {
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> failures(std::max(1u, std::thread::hardware_concurrency()));
  const auto work = [&](std::size_t thread) {
    try {
      for (std::size_t i = next++; i < n; i = next++) {
        if (thread == 0) after(double(i) / double(n));
        f(i);
      }
    } catch (...) {
      failures[thread] = std::current_exception();
      next = n;
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t t = 1; t < failures.size() && t < n; ++t) others.emplace_back(work, t);
    work(0);
  }
  for (const std::exception_ptr& e : failures)
    if (e) std::rethrow_exception(e);
}

}  // namespace orrery
