// SPDX-License-Identifier: Apache-2.0
// A wake-up that gets lost ends these tests by their time-out.
#include "runtime/awaited.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

using namespace orrery;

namespace {

/// Runs threads 0 … count − 1 to their end.
template <class Body>
void in_threads(std::uint32_t count, Body body) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE("a number that has changed is not waited for") {
  Awaited number{1};
  number.wait(0);
  CHECK(number.load() == 1);
}

TEST_CASE("threads that count in turns get to the end, however many sleep") {
  constexpr std::uint32_t kEach = 2000;
  for (const std::uint32_t threads : {2u, 3u, 8u}) {
    Awaited turn{0};
    std::uint32_t counted = 0;
    in_threads(threads, [&](std::uint32_t me) {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        for (std::uint32_t now = turn.load(); now % threads != me; now = turn.load()) turn.wait(now);
        ++counted;
        turn.fetch_add(1);
        turn.notify_all();
      }
    });
    CHECK(counted == threads * kEach);
  }
}

TEST_CASE("one change wakes all that wait, also those that have slept for long") {
  Awaited open{0}, through{0};
  in_threads(9, [&](std::uint32_t me) {
    if (me > 0) {
      open.wait(0);
      through.fetch_add(1);
      through.notify_all();
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    CHECK(through.load() == 0);
    open.store(1);
    open.notify_all();
    for (std::uint32_t n = through.load(); n < 8; n = through.load()) through.wait(n);
  });
  CHECK(through.load() == 8);
}
