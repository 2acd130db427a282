// SPDX-License-Identifier: Apache-2.0
// What of two sequences of kernels is sure to be the same op: layers written by hand. Random ones are in
// gui_readings_seeds_test.cpp.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/gui_readings_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

Places sure(const std::string& a, const std::string& b) { return readings(sequence(a), sequence(b), 8).sure; }

}  // namespace

TEST_CASE("a product that may contain the op behind it is not sure to be the product alone", "[gui]") {
  // norm, up, act, down, norm: the act is gone. It may be in up or in down.
  CHECK(sure("NGAGN", "NGGN") == Places{{0, 0}, {4, 3}});
  CHECK(readings(sequence("NGAGN"), sequence("NGGN"), 8).likely == Places{{1, 1}, {3, 2}});
}

TEST_CASE("a missing op and one that looks like it make no wrong pair sure", "[gui]") {
  // up with its act inside, down, add, a cast of the same kind as act and add: one could read act and down as swapped.
  const Places all = sure("GAGA", "GGAA");
  for (const auto& [i, j] : all) {
    CHECK_FALSE((i == 0 && j == 0));
    CHECK_FALSE((i == 3 && j == 3));
  }
}

TEST_CASE("a kernel that is known to be fused stands for the ops between its neighbours", "[gui]") {
  const Readings r = readings(sequence("NGGARPG"), sequence("NGGAFG"), 8);
  REQUIRE(r.fused.size() == 1);
  CHECK((r.fused[0].a == 4 && r.fused[0].num_a == 2 && r.fused[0].b == 4 && r.fused[0].num_b == 1));
  CHECK(r.sure == Places{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {6, 5}});
}

TEST_CASE("ops that changed places are likely and not sure", "[gui]") {
  const Readings r = readings(sequence("NPGARM"), sequence("NPAGRM"), 8);
  for (const auto& [i, j] : r.sure) CHECK(i == j);
  const auto is_likely = [&](std::size_t i, std::size_t j) {
    return std::find(r.likely.begin(), r.likely.end(), std::pair{i, j}) != r.likely.end();
  };
  CHECK((is_likely(2, 3) && is_likely(3, 2)));
}

TEST_CASE("with runs of one, sure is what every longest common subsequence has", "[gui]") {
  const auto pairs = [](const std::string& a, const std::string& b) {
    return readings(sequence(a), sequence(b), 1).sure;
  };
  // The one G of b may be either G of a; A and N have one reading.
  CHECK(pairs("GGAN", "GAN") == Places{{2, 1}, {3, 2}});
  CHECK(pairs("GA", "NP").empty());
  CHECK(pairs("", "G").empty());
}

TEST_CASE("an op that changed places with a fused kernel behind it is not sure to be the one that was left", "[gui]") {
  // norm, up, gate, act, down, add, head: down moved behind the kernel that does add and head. It looks as if the
  // kernel did down and add.
  const Sequence layer = sequence("NGGAGAG"), kernels = sequence("NGGAFG");
  const Places apparent{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {6, 5}};
  CHECK(readings(layer, kernels, 8).sure == apparent);
  for (const auto& [i, j] : readings(layer, kernels, 8, {.swapped = 1}).sure) CHECK((i == j && i < 4));
}

TEST_CASE("three things done to a layer that look like one make no wrong pair sure where much is done", "[gui]") {
  // norm, up, gate, act, down, add, head: recorded without up, and with act and down, add and head the other way round.
  // It looks as if only the head were missing.
  const Sequence layer = sequence("NGGAGAG"), kernels = sequence("NGGAGA");
  const Places apparent{{0, 0}, {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}};
  CHECK(readings(layer, kernels, 8).sure.size() >= 3);
  for (const auto& [i, j] : readings(layer, kernels, 8, {.layers = 10, .swapped = 1, .changed = 1}).sure) {
    INFO(i << " " << j);
    CHECK((i == 0 && j == 0));
  }
}
