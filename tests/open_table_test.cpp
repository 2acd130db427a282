// SPDX-License-Identifier: Apache-2.0
// An open table against an ordered one.
#include "sim/base/open_table.hpp"

#include <catch2/catch.hpp>
#include <map>

#include "sim/base/random.hpp"

using namespace orrery;

namespace {

struct Entry {
  std::uint64_t number = 0;  // 0: free
  std::int64_t value = 0;
  std::uint64_t key() const { return number; }
  bool is_free() const { return number == 0; }
};

}  // namespace

TEST_CASE("an open table holds what was inserted and not taken out", "[base]") {
  // Multiples of a power of two fall on the same few places; few keys at a time make chains that are taken apart.
  const auto step = GENERATE(std::uint64_t{1}, std::uint64_t{1} << 20, std::uint64_t{1} << 52);
  const auto keys = GENERATE(std::size_t{4}, std::size_t{40}, std::size_t{400});
  OpenTable<Entry> table;
  std::map<std::uint64_t, std::int64_t> known;
  CHECK(table.find(step) == nullptr);
  CHECK(table.take(step).is_free());
  Random random{keys};
  for (std::int64_t i = 0; i < 20000; ++i) {
    const std::uint64_t key = step * (1 + random.below(keys));
    const auto there = known.find(key);
    const Entry* const found = table.find(key);
    REQUIRE((found != nullptr) == (there != known.end()));
    if (there == known.end()) {
      REQUIRE(table.insert({key, i}).value == i);
      known[key] = i;
    } else if (random.below(2) == 0) {
      REQUIRE(found->value == there->second);
      REQUIRE(table.take(key).value == there->second);
      known.erase(there);
    }
    REQUIRE(table.size() == known.size());
  }
  std::map<std::uint64_t, std::int64_t> all;
  table.for_each([&](const Entry& e) { all[e.number] = e.value; });
  CHECK(all == known);
}
