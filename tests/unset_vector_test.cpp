// SPDX-License-Identifier: Apache-2.0
// Arrays that move to large pages as they grow.
#include "sim/base/unset_vector.hpp"

#include <catch2/catch.hpp>
#include <cstdint>

using namespace orrery;

namespace {

struct alignas(64) Line {
  std::uint64_t value = 0;
};

template <class Vector>
void check_growth() {
  constexpr std::size_t kCount = 3 * kLargePage / sizeof(typename Vector::value_type);
  Vector v;
  for (std::size_t i = 0; i < kCount; ++i) v.push_back({i});
  REQUIRE(v.capacity() * sizeof(v[0]) >= kLargePage);
  CHECK(reinterpret_cast<std::uintptr_t>(v.data()) % kLargePage == 0);
  Vector copy = v;
  v.resize(4);
  v.shrink_to_fit();  // back among small ones
  CHECK(v.capacity() * sizeof(v[0]) < kLargePage);
  CHECK(v[3].value == 3);
  bool same = true;
  for (std::size_t i = 0; i < kCount; ++i) same = same && copy[i].value == i;
  CHECK(same);
}

}  // namespace

TEST_CASE("large arrays begin with a large page and keep what they hold as they grow and shrink", "[base]") {
  check_growth<UnsetVector<Line>>();
  check_growth<std::vector<Line, LargePageAllocator<Line>>>();
}
