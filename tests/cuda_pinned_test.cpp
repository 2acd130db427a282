// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "runtime/cuda/pinned_pieces.hpp"

using namespace orrery;

TEST_CASE("copies end where a piece of locked memory ends", "[cuda]") {
  PinnedPieces pieces;
  CHECK(pieces.within(1000, 500) == 500);  // nothing is locked
  pieces.add(1000, 100);
  pieces.add(1100, 200);  // the next one, locked later
  CHECK(pieces.within(1000, 50) == 50);
  CHECK(pieces.within(1000, 100) == 100);
  CHECK(pieces.within(1040, 100) == 60);
  CHECK(pieces.within(1100, 500) == 200);
  CHECK(pieces.within(1299, 10) == 1);
  CHECK(pieces.within(1300, 10) == 10);  // behind all of them
  CHECK(pieces.within(500, 400) == 400);
  pieces.remove(1000);
  CHECK(pieces.within(1040, 100) == 100);
}
