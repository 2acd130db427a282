// SPDX-License-Identifier: Apache-2.0
#include "sim/program/embedding/row_cache.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "sim/program/embedding/id_stream.hpp"

using namespace orrery;

namespace {

/// A cache that looks through all of its rows for the one to leave.
class StraightCache {
 public:
  StraightCache(CachePolicy policy, std::size_t slots) : policy_{policy}, slots_{slots} {}

  bool find(std::int64_t row) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Row& r) { return r.row == row; });
  }
  void use(std::int64_t row) {
    for (Row& r : rows_)
      if (r.row == row) {
        ++r.count;
        r.last = ++clock_;
      }
  }
  /// Whether the row came in, and who left.
  std::pair<bool, std::optional<std::int64_t>> admit(std::int64_t row) {
    std::optional<std::int64_t> victim;
    if (rows_.size() == slots_) {
      auto best = rows_.end();
      for (auto r = rows_.begin(); r != rows_.end(); ++r) {
        if (policy_ == CachePolicy::LightLfu && r->count >= RowCache::kPermanentCount) continue;
        if (best == rows_.end() || rank(*r) < rank(*best)) best = r;
      }
      if (best == rows_.end()) return {false, {}};
      victim = best->row;
      rows_.erase(best);
    }
    rows_.push_back({row, 1, ++clock_});
    return {true, victim};
  }

 private:
  struct Row {
    std::int64_t row, count, last;
  };
  std::pair<std::int64_t, std::int64_t> rank(const Row& r) const {
    return {policy_ == CachePolicy::Lru ? 0 : r.count, r.last};
  }
  CachePolicy policy_;
  std::size_t slots_;
  std::vector<Row> rows_;
  std::int64_t clock_ = 0;
};

}  // namespace

TEST_CASE("a cache keeps the rows that looking through all of them would keep", "[embedding]") {
  const CachePolicy policy = GENERATE(CachePolicy::Lru, CachePolicy::Lfu, CachePolicy::LightLfu);
  const std::int32_t slots = GENERATE(1, 2, 7, 40);
  const double exponent = GENERATE(0.0, 0.8, 3.0);
  INFO(enum_name(policy) << ", " << slots << " slots, exponent " << exponent);
  RowCache cache{policy, slots};
  StraightCache straight{policy, static_cast<std::size_t>(slots)};
  const BoundedZipf rows{100, exponent};
  Random random{static_cast<std::uint64_t>(slots)};
  int refused = 0, left = 0;
  for (int step = 0; step < 4000; ++step) {
    const std::int64_t row = rows(random);
    const auto slot = cache.find(row);
    REQUIRE(slot.has_value() == straight.find(row));
    if (slot) {
      REQUIRE(cache.row_of(*slot) == row);
      cache.use(*slot);
      straight.use(row);
      continue;
    }
    const auto admission = cache.admit(row);
    const auto [admitted, victim] = straight.admit(row);
    REQUIRE(admission.has_value() == admitted);
    refused += !admitted;
    if (!admission) continue;
    REQUIRE(admission->victim == victim);
    left += victim.has_value();
  }
  CHECK(cache.size() <= slots);
  if (policy != CachePolicy::LightLfu) CHECK(refused == 0);
  if (policy == CachePolicy::LightLfu && exponent == 3 && slots == 1) CHECK(refused > 0);
  if (exponent < 3) CHECK(left > 0);
}

TEST_CASE("the tenth use keeps a row for good under light LFU alone", "[embedding]") {
  for (CachePolicy policy : {CachePolicy::Lfu, CachePolicy::LightLfu}) {
    RowCache cache{policy, 1};
    REQUIRE(cache.admit(3)->slot == 0);
    for (int use = 2; use < RowCache::kPermanentCount; ++use) cache.use(0);
    CHECK(cache.admit(4)->victim == 3);  // nine uses
    for (int use = 1; use < RowCache::kPermanentCount; ++use) cache.use(0);
    CHECK(cache.admit(5).has_value() == (policy == CachePolicy::Lfu));
  }
}
