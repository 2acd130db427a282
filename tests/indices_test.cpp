// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/indices.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace orrery;

namespace {

using Indices = std::vector<double>;

Indices part(const Indices& all, std::ptrdiff_t first, std::ptrdiff_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

}  // namespace

TEST_CASE("T5 buckets are exact for near and logarithmic for far positions", "[strategy]") {
  const auto bucket = [](int relative, bool bidirectional = true) {
    return t5_buckets(150, 1, 300, 32, 128, bidirectional)[static_cast<std::size_t>(150 + relative)];
  };
  // 32 buckets, 16 for each sign, 8 of them exact; distance 16 is 8 + ⌊8·ln 2/ln 16⌋ = 10, and 128 and more is the last
  CHECK(bucket(0) == 0);
  CHECK(bucket(-7) == 7);
  CHECK(bucket(7) == 23);
  CHECK(bucket(-8) == 8);
  CHECK(bucket(-16) == 10);
  CHECK(bucket(-140) == 15);
  CHECK(bucket(140) == 31);
  CHECK(bucket(5, false) == 0);
  CHECK(bucket(-15, false) == 15);
  CHECK(bucket(-149, false) == 31);
}

TEST_CASE("the offsets in a window have their centre on the diagonal and use every entry", "[strategy]") {
  const Indices index = swin_offsets(4);
  CHECK(index[0] == 3 * 7 + 3);
  CHECK(index[1] == 3 * 7 + 2);   // position 0 less position 1: Δx = −1
  CHECK(index[16] == 3 * 7 + 4);  // position 1 less position 0
  CHECK(index[15] == 0);          // first less last: Δ = (−3, −3)
  CHECK(std::set<double>(index.begin(), index.end()).size() == 49);
}

TEST_CASE("shifted windows visit every token once, back again, and mask those that were not neighbours", "[strategy]") {
  const Indices index = swin_partition(2, 4, 2, 1), back = swin_restore(2, 4, 2, 1), mask = swin_mask(4, 2, 1);
  CHECK(part(index, 0, 8) == Indices{5, 6, 9, 10, 7, 4, 11, 8});
  CHECK(index[16] == 16 + 5);
  CHECK(std::set<double>(index.begin(), index.end()).size() == 32);
  for (std::size_t r = 0; r < index.size(); ++r) CHECK(back[static_cast<std::size_t>(index[r])] == double(r));
  CHECK(part(mask, 0, 16) == Indices(16, 0.0));           // the first window is whole
  CHECK(part(mask, 16, 4) == Indices{0, -100, 0, -100});  // columns 3 and 0 in the second
  CHECK(part(mask, 48, 4) == Indices{0, -100, -100, -100});
}

TEST_CASE("patch merging reads the four tokens of a square in the published order", "[strategy]") {
  CHECK(merge_rows(1, 4) == Indices{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15});
}
