// SPDX-License-Identifier: Apache-2.0
// Ways of halves of a block that the sharding program may choose: what their plans compute is what one device computes.
#include <catch2/catch.hpp>

#include "sim/search/sharding/lowered_block.hpp"
#include "tests/composition_testing.hpp"

using namespace orrery;
using namespace orrery::testing;

TEST_CASE("each axis of a mesh splits rows or matrices, and some ways scatter what comes out", "[parallel]") {
  CHECK(lowered_ways({1, 1}).size() == 1);
  CHECK(lowered_ways({1, 4}).size() == 3);
  const std::vector<LoweredWay> ways = lowered_ways({2, 4});
  CHECK(ways.size() == 6);
  for (const LoweredWay& w : ways) CHECK((w.rows | w.matrices) == kS01);
  const LoweredWay replicas{kS01, kWhole}, stripes{kWhole, kS01}, slow{kS0, kS1, true}, fast{kS1, kS0};
  CHECK(sharded_options({replicas, replicas, replicas}, {2, 4}, 3) == "mesh: dp8");
  CHECK(sharded_options({slow, slow, slow}, {2, 4}, 3) == "mesh: dp2 tp4, sequence_parallel: true");
  CHECK(sharded_options({replicas, fast, fast}, {2, 4}, 3) ==
        "mesh: dp8, layers: [{blocks: 0-2, mesh: tp2 dp4, sequence_parallel: false}]");
  CHECK(sharded_options({stripes, replicas, slow}, {2, 4}, 1) ==
        "mesh: tp8, layers: [{blocks: 0, mesh: dp8, sequence_parallel: false, ffn_mesh: dp2 tp4, "
        "ffn_sequence_parallel: true}]");
}

TEST_CASE("all pairs of ways of attention and feed-forward layers compute what one device computes", "[parallel]") {
  References references;
  double worst = 0;
  int trained = 0, refused = 0;
  for (const MeshSizes mesh : {MeshSizes{2, 2}, MeshSizes{1, 4}}) {
    const std::vector<LoweredWay> ways = lowered_ways(mesh);
    for (std::size_t a = 0; a < ways.size(); ++a)
      for (std::size_t f = 0; f < ways.size(); ++f) {
        const LoweredWay& outside = ways[(a + 2 * f) % ways.size()];
        const std::string strategy = "{" + sharded_options({outside, ways[a], ways[f]}, mesh, 8) + "}";
        const Composition c{f % 2 == 0 ? "gpt2" : "llama", strategy.c_str(), a % 2 == 0 ? "{}" : "{recompute: full}"};
        INFO(c.model << " " << strategy);
        const TrainOptions o = options_of(c, Precision::F64, 1);
        try {
          const double difference =
              worst_difference(train(named_model(c.model), o, *parallel(c.strategy)), references.of(c, o));
          CHECK(difference < 1e-9);
          worst = std::max(worst, difference);
          ++trained;
        } catch (const UserError&) {
          ++refused;  // rows of scattering ways that other ways have in another order
        }
      }
  }
  WARN(trained << " plans, " << refused << " refused, largest relative difference " << worst);
  CHECK(trained >= 40);
  CHECK(refused <= 5);
}
