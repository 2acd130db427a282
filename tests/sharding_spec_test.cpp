// SPDX-License-Identifier: Apache-2.0
// How tensors lie on a mesh of two axes, the ways from one to another, and what mesh a cluster is.
#include <catch2/catch.hpp>
#include <set>

#include "sim/search/sharding/op_strategies.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

/// All legal specs of a tensor.
std::vector<ShardingSpec> all_specs(const std::vector<std::int64_t>& shape, const MeshSizes& mesh) {
  std::vector<ShardingSpec> out;
  std::vector<MeshAxes> dims(shape.size(), kWhole);
  for (;;) {
    const ShardingSpec spec{dims};
    if (spec.is_legal() && divides(spec, shape, mesh)) out.push_back(spec);
    std::size_t d = 0;
    while (d < dims.size() && dims[d] == kS01) dims[d++] = kWhole;
    if (d == dims.size()) return out;
    ++dims[d];
  }
}

double one_each(const ConversionStep&, double) { return 1; }

/// Bellman-Ford over all specs, with nothing of `cheapest_conversion` but its steps.
double least_cost(const ShardingSpec& from, const ShardingSpec& to, const ShardedTensor& t, const MeshSizes& mesh,
                  const StepCost& cost) {
  const std::vector<ShardingSpec> all = all_specs(t.shape, mesh);
  std::map<ShardingSpec, double> best{{from, 0}};
  for (std::size_t round = 0; round < all.size(); ++round)
    for (const ShardingSpec& at : all) {
      if (!best.count(at)) continue;
      const double so_far = best.at(at), bytes = t.bytes / double(mesh.ranks(at.used()));
      for (const ConversionStep& s : steps_from(at, t.shape, mesh)) {
        const auto it = best.try_emplace(s.result, so_far + cost(s, bytes)).first;
        it->second = std::min(it->second, so_far + cost(s, bytes));
      }
    }
  return best.at(to);
}

}  // namespace

TEST_CASE("distances of specs are what the published penalties come to") {
  // 20 for each gather, 5 for each shard, 6 for each step but the first.
  CHECK(spec_distance(kS0, kS1) == 20 + 6 + 5);
  CHECK(spec_distance(kWhole, kS01) == 5 + 6 + 5);
  CHECK(spec_distance(kS01, kWhole) == 20 + 6 + 20);
  CHECK(spec_distance(kS1, kS01) == 20 + 6 + 5 + 6 + 5);  // S1 goes before S0 comes
  CHECK(spec_distance(kS01, kS1) == 20 + 6 + 20 + 6 + 5);
  CHECK(spec_distance(kS0, kS01) == 5);
  CHECK(spec_distance(kS01, kS0) == 20);
  CHECK(spec_distance(kS1, kS1) == 0);
}

TEST_CASE("the greedy search goes the published way") {
  const MeshSizes mesh{4, 4};
  const ShardedTensor t{{64, 32, 16}, 64 * 32 * 16};
  const auto way = greedy_conversion(parse_spec("[R,S01,R]"), parse_spec("[S01,R,R]"), t, mesh, one_each);
  REQUIRE(way);
  REQUIRE(way->steps.size() == 3);
  CHECK(way->steps[0].kind == ConversionKind::AllGather);
  CHECK(way->steps[0].axis == kS1);
  CHECK(way->steps[0].result.text() == "[R,S0,R]");
  CHECK(way->steps[1].kind == ConversionKind::AllToAll);
  CHECK(way->steps[1].axis == kS0);
  CHECK(way->steps[1].result.text() == "[S0,R,R]");
  CHECK(way->steps[2].kind == ConversionKind::Shard);
  CHECK(way->steps[2].axis == kS1);
  CHECK(way->steps[2].result.text() == "[S01,R,R]");
  CHECK(way->cost == 3);
}

TEST_CASE("no way between two specs is cheaper than the one that is found, and some are cheaper than the greedy one") {
  const MeshSizes mesh{2, 4};
  const ShardedTensor t{{16, 8, 24}, 16 * 8 * 24 * 2};
  const StepCost cost = published_steps(mesh, {1e-5, 6e-11}, {2e-5, 5e-12});
  const std::vector<ShardingSpec> all = all_specs(t.shape, mesh);
  CHECK(all.size() == 3 * 3 + 2 * 3 + 1);  // S0 and S1 in any dimension, one of them, none
  int cheaper = 0, pairs = 0;
  for (const ShardingSpec& from : all)
    for (const ShardingSpec& to : all) {
      INFO(from.text() << " to " << to.text());
      const auto greedy = greedy_conversion(from, to, t, mesh, cost);
      const auto exact = cheapest_conversion(from, to, t, mesh, cost);
      REQUIRE(greedy);
      REQUIRE(exact);
      CHECK(exact->cost == Approx(least_cost(from, to, t, mesh, cost)).epsilon(1e-12));
      CHECK(exact->cost <= greedy->cost * (1 + 1e-12));
      CHECK((exact->steps.empty() ? from : exact->steps.back().result) == to);
      cheaper += exact->cost < greedy->cost * (1 - 1e-9);
      ++pairs;
    }
  WARN(cheaper << " of " << pairs << " conversions are cheaper than by the greedy search");
  CHECK(cheaper > 0);
  CHECK(cheaper < pairs / 2);
}

TEST_CASE("steps keep specs legal and divide sizes") {
  const MeshSizes mesh{2, 4};
  for (const ShardingSpec& from : all_specs({16, 8, 24}, mesh))
    for (const ConversionStep& s : steps_from(from, {16, 8, 2}, mesh)) {
      CHECK(s.result.is_legal());
      if (s.kind != ConversionKind::AllGather) CHECK(divides(s.result, {16, 8, 2}, mesh));
    }
  CHECK_THROWS_WITH(parse_spec("[S0,S01]"), Catch::Contains("`[S0,S01]` is no sharding of a tensor"));
  CHECK_THROWS_WITH(parse_spec("[S10]"), Catch::Contains("`[S10]` is no sharding of a tensor"));
  CHECK_THROWS_WITH(parse_spec("S0"), Catch::Contains("`S0` is no sharding of a tensor"));
}

TEST_CASE("products have the published ways, and no other assignment of axes to loops is left out but two") {
  const std::vector<ProductAxes> ways = linear_strategies();
  CHECK(ways.size() == 14);
  std::set<std::string> names;
  for (const ProductAxes& a : ways) {
    CHECK(names.insert(a.text()).second);
    CHECK(ShardingSpec{{a.m, a.n, a.k}}.is_legal());
  }
  for (const char* name : {"S01R = S01R x RR", "RR = RS01 x S01R", "RS01 = RR x RS01", "RS1 = RS0 x S0S1",
                           "RR = RS0 x S0R", "RS0 = RR x RS0", "S0S1 = S0R x RS1", "S0R = S0S1 x S1R", "RR = RR x RR"})
    CHECK(names.count(name) == 1);
  CHECK(names.count("S0R = S0R x RR") == 0);
  std::set<std::string> batched;
  for (const ProductAxes& a : batched_strategies()) {
    CHECK(a.batch != kWhole);
    CHECK(ShardingSpec{{a.batch, a.m, a.n, a.k}}.is_legal());
    batched.insert(a.text());
  }
  CHECK(batched.size() == 9);
  CHECK(batched.count("S0RR = S0RS1 x S0S1R") == 1);
  CHECK(!follow(FollowerKind::Norm, parse_spec("[R,S0]")));
  CHECK(follow(FollowerKind::Norm, parse_spec("[S1,R]"))->text() == "[S1,R]");
  CHECK(follow(FollowerKind::Transpose, parse_spec("[S1,S0]"))->text() == "[S0,S1]");
}

TEST_CASE("a way to multiply costs its local product and the sums that it leaves open") {
  // 8 x 6 x 10 on 2 x 2, RS1 = RS0 x S0S1: local 8 x 3 x 5, a sum over axis 0 forward, over axis 1 backward, no rows
  // cut, so that gradients of weights are whole.
  const MeshSizes mesh{2, 2};
  CostForm form{[](const ProductSizes& s) { return double(s.m * s.n * s.k); },
                [](CollectiveKind, MeshAxes axes, double bytes) { return 1000 * axes + bytes; }};
  const ProductSizes sizes{.batch = 1, .m = 8, .n = 6, .k = 10, .element_bytes = 2};
  const ProductChoices c = product_choices({{.n = kS1, .k = kS0}, {.m = kS01}}, sizes, mesh, form, 12);
  REQUIRE(c.choices.size() == 2);
  CHECK(c.choices[0].forward == 8 * 3 * 5 + 1000 + 2 * 8 * 3);
  CHECK(c.choices[0].backward == 2 * 8 * 3 * 5 + 2000 + 2 * 8 * 5);
  CHECK(c.choices[0].once == 0);
  CHECK(c.choices[0].model_bytes == (2 * 2 + 12) * 3 * 5);
  CHECK(c.choices[0].saved_bytes == 2 * 8 * 5);
  CHECK(c.choices[1].forward == 2 * 6 * 10);
  CHECK(c.choices[1].once == 3000 + 2 * 6 * 10);
  CHECK(product_choices({{.n = kS01}}, sizes, mesh, form, 0).open.empty());  // 6 columns over 4 ranks
}

TEST_CASE("fast pairs become rows, equal links a square") {
  // The partially connected box of Colossal-Auto: NVLink between 0 and 1 and between 2 and 3 (there 4 and 5).
  DevicePairs pairs(4, std::vector<AlphaBeta>(4, {1.9e-5, 7.0e-11}));
  for (const auto& [a, b] : {std::pair{0, 1}, {2, 3}}) pairs[a][b].beta = pairs[b][a].beta = 4.7e-12;
  LogicalMesh mesh = logical_mesh(pairs);
  CHECK(mesh.rows == std::vector<std::vector<std::size_t>>{{0, 1}, {2, 3}});
  CHECK(mesh.is_in_order());
  CHECK(mesh.group(kS1) == std::vector<RankId>{RankId{0}, RankId{1}});
  CHECK(mesh.group(kS0) == std::vector<RankId>{RankId{0}, RankId{2}});
  CHECK(mesh.group(kS01).size() == 4);
  // Links that are not neighbours.
  pairs = DevicePairs(4, std::vector<AlphaBeta>(4, {1.9e-5, 7.0e-11}));
  for (const auto& [a, b] : {std::pair{0, 2}, {1, 3}}) pairs[a][b].beta = pairs[b][a].beta = 4.7e-12;
  mesh = logical_mesh(pairs);
  CHECK(mesh.rows == std::vector<std::vector<std::size_t>>{{0, 2}, {1, 3}});
  CHECK(!mesh.is_in_order());
  // Fast links that do not reach all devices tell nothing; differences of less than a tenth neither.
  pairs[1][3].beta = pairs[3][1].beta = 7.0e-11;
  CHECK(logical_mesh(pairs).rows == std::vector<std::vector<std::size_t>>{{0, 1}, {2, 3}});
  pairs = DevicePairs(8, std::vector<AlphaBeta>(8, {1e-5, 1.0e-11}));
  pairs[2][7].beta = pairs[7][2].beta = 1.05e-11;
  CHECK(logical_mesh(pairs).sizes().first == 2);
  CHECK(logical_mesh(pairs).sizes().second == 4);
  CHECK(logical_mesh(DevicePairs(1, std::vector<AlphaBeta>(1))).sizes().size() == 1);
}
