// SPDX-License-Identifier: Apache-2.0
// The queue of timers against an ordered list of all that were pushed.
#include "sim/engine/event_queue.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "sim/base/random.hpp"

using namespace orrery;

TEST_CASE("timers fire in order of time, and of one instant in the order in which they were pushed", "[engine]") {
  const auto waiting = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{6}, std::size_t{1000});
  const auto ahead =
      GENERATE(std::size_t{2}, std::size_t{50}, std::size_t{1} << 40);  // ps: few, some and no instants shared
  EventQueue queue;
  std::multimap<std::int64_t, std::uint32_t> known;  // keeps the order of equal keys
  std::vector<EventQueue::Fired> fired;
  Random random{waiting + ahead};
  std::int64_t now = 0;
  std::uint32_t id = 0;
  const auto push = [&] {
    const std::int64_t at = now + static_cast<std::int64_t>(random.below(ahead));
    queue.push(at, {id, id ^ 5});
    known.emplace(at, id++);
  };
  for (int step = 0; step < 3000; ++step) {
    while (known.size() < waiting) push();
    const auto [first, end] = known.equal_range(known.begin()->first);
    CHECK(queue.next_id() == first->second);
    REQUIRE(queue.next_ps() == first->first);
    now = queue.pop(fired);
    REQUIRE(now == first->first);
    REQUIRE(fired.size() == known.count(now));
    std::size_t i = 0;
    for (auto timer = first; timer != end; ++timer, ++i) {
      REQUIRE(fired[i].id == timer->second);
      REQUIRE(fired[i].version == (timer->second ^ 5));
    }
    known.erase(first, end);
    if (random.below(3) == 0) push();
  }
  while (!queue.empty()) known.erase(queue.pop(fired));
  CHECK(known.empty());
}
