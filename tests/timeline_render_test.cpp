// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/timeline/render_text.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;

TEST_CASE("a picture has one line per stream, letters of classes and dots for idle time", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  const OpId sum = p.add("sum", all_reduce(), Stream::Comm, {a});
  Timeline t;
  ran(t, a, 0, 0, 10);
  ran(t, sum, 0, 9, 20);
  // 36 columns less 16 of "rank 0 copy_out " are 20 cells of 1 us.
  const std::string text = render_text(t, describe(p.plan), {.width = 36, .glyphs = Glyphs::Ascii});
  CHECK_THAT(text, Catch::Contains("\nrank 0 compute  GGGGGGGGGG..........\n"));
  CHECK_THAT(text, Catch::Contains("\nrank 0 comm     .........CCCCCCCCCCC\n"));
  CHECK_THAT(text, Catch::EndsWith("G gemm  C collective\n"));
}

TEST_CASE("a cell that is busy for less than half is in lower case", "[timeline]") {
  SmallPlan p;
  const OpId a = p.add("a", gemm());
  Timeline t;
  ran(t, a, 0, 0, 4);
  t.makespan_ps = 100 * kMicrosecond;  // ten cells of 10 us
  const std::string text = render_text(t, describe(p.plan), {.width = 26, .glyphs = Glyphs::Ascii});
  CHECK_THAT(text, Catch::Contains("rank 0 compute  g.........\n"));
}

TEST_CASE("ranks that do not fit the picture are counted", "[timeline]") {
  SmallPlan p{3};
  const OpId a = p.add("a", gemm());
  Timeline t;
  for (std::size_t rank = 0; rank < 3; ++rank) ran(t, a, rank, 0, 5);
  const std::string text = render_text(t, describe(p.plan), {.width = 40, .max_ranks = 1});
  CHECK_THAT(text, Catch::Contains("… and 2 more ranks\n"));
  CHECK_THAT(text, !Catch::Contains("rank 1"));
}

TEST_CASE("a timeline without time says so", "[timeline]") { CHECK(render_text(Timeline{}, {}) == "nothing ran\n"); }
