// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "sim/base/offset_allocator.hpp"

using namespace orrery;

TEST_CASE("blocks come one after another and round up to 64 bytes", "[allocator]") {
  OffsetAllocator a;
  CHECK(a.allocate(1) == 0);
  CHECK(a.allocate(64) == 64);
  CHECK(a.allocate(65) == 128);
  CHECK(a.allocate(0) == 256);  // 128 + 128: a block of no bytes has a place of its own
  CHECK(a.live() == 64 + 64 + 128 + 64);
  CHECK(a.high_water() == 320);
}

TEST_CASE("the tightest gap is taken, and the lowest of equal ones", "[allocator]") {
  OffsetAllocator a;
  // Blocks of 256, 128, 128 with one of 64 between each pair, so that no two gaps join.
  const auto wide = *a.allocate(256);
  a.allocate(64);
  const auto low = *a.allocate(128);
  a.allocate(64);
  const auto high = *a.allocate(128);
  a.allocate(64);
  a.release(wide);
  a.release(high);
  a.release(low);
  CHECK(a.allocate(100) == low);
  CHECK(a.allocate(100) == high);
  CHECK(a.allocate(100) == wide);
}

TEST_CASE("neighbouring gaps join, whichever is given back last", "[allocator]") {
  const auto last = GENERATE(0, 1, 2);
  OffsetAllocator a{192};
  const std::int64_t offsets[] = {*a.allocate(64), *a.allocate(64), *a.allocate(64)};
  CHECK_FALSE(a.allocate(1));  // full
  for (int i = 0; i < 3; ++i)
    if (i != last) a.release(offsets[i]);
  a.release(offsets[last]);
  CHECK(a.live() == 0);
  CHECK(a.allocate(192) == 0);
  CHECK(a.high_water() == 192);
}

TEST_CASE("what does not fit is refused and changes nothing", "[allocator]") {
  OffsetAllocator a{127};  // one whole unit
  CHECK_FALSE(a.allocate(65));
  CHECK(a.allocate(64) == 0);
  CHECK_FALSE(a.allocate(0));
  CHECK_FALSE(OffsetAllocator{}.allocate(INT64_MAX));
}

TEST_CASE("blocks never overlap and nothing is lost", "[allocator][property]") {
  const auto seed = GENERATE(range(0u, 20u));
  CAPTURE(seed);
  std::mt19937 random{seed};
  constexpr std::int64_t kCapacity = 1 << 16;
  OffsetAllocator a{kCapacity};
  std::map<std::int64_t, std::int64_t> live;  // offset → size
  std::int64_t bytes = 0, end = 0;
  for (int i = 0; i < 2000; ++i) {
    if (random() % 3 != 0 || live.empty()) {
      const std::int64_t size = 64 * (1 + random() % 40);
      const auto at = a.allocate(size);
      if (!at) continue;
      const auto next = live.lower_bound(*at);
      REQUIRE((next == live.end() || *at + size <= next->first));
      REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= *at));
      live[*at] = size;
      bytes += size;
      end = std::max(end, *at + size);
    } else {
      const auto victim = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      a.release(victim->first);
      bytes -= victim->second;
      live.erase(victim);
    }
    REQUIRE(a.live() == bytes);
    REQUIRE(a.high_water() == end);
    REQUIRE(a.num_blocks() == live.size());
  }
  for (const auto& [offset, size] : live) a.release(offset);
  CHECK(a.allocate(kCapacity) == 0);  // one gap again
}
