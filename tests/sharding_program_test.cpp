// SPDX-License-Identifier: Apache-2.0
// Which way each op of a block is sharded: the integer program against all choices, and the plan in two stages against
// all pairs of a choice and a schedule.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>

#include "sim/base/random.hpp"
#include "sim/search/sharding/op_strategies.hpp"
#include "sim/search/sharding/two_stage.hpp"

using namespace orrery;

namespace {

constexpr double kClosed = std::numeric_limits<double>::infinity();
constexpr Seconds kLimit{60};

void for_each_choice(const ShardingGraph& g, const std::function<void(const std::vector<std::size_t>&)>& f) {
  std::vector<std::size_t> ways(g.nodes.size(), 0);
  for (;;) {
    f(ways);
    std::size_t v = 0;
    while (v < ways.size() && ++ways[v] == g.nodes[v].choices.size()) ways[v++] = 0;
    if (v == ways.size()) return;
  }
}

/// Seconds and bytes by their definition.
std::pair<double, std::int64_t> worth(const ShardingGraph& g, const std::vector<std::size_t>& ways) {
  double seconds = 0;
  std::int64_t bytes = 0;
  for (std::size_t v = 0; v < ways.size(); ++v) {
    const NodeChoice& c = g.nodes[v].choices[ways[v]];
    seconds += double(g.nodes[v].count) * (c.forward + c.backward + c.once);
    bytes += g.nodes[v].count * (c.model_bytes + c.saved_bytes);
  }
  for (const ShardingEdge& e : g.edges) {
    const ShardingEdge::Cost& c = e.costs[ways[e.from]][ways[e.to]];
    seconds += double(e.count) * (c.forward + c.backward);
  }
  return {seconds, bytes};
}

std::optional<double> best_of_all(const ShardingGraph& g, std::int64_t budget) {
  std::optional<double> best;
  for_each_choice(g, [&](const std::vector<std::size_t>& ways) {
    const auto [seconds, bytes] = worth(g, ways);
    if (bytes <= budget && seconds < kClosed && (!best || seconds < *best)) best = seconds;
  });
  return best;
}

NodeChoice drawn_choice(Random& random) {
  return {.name = {},
          .forward = random.uniform(),
          .backward = 2 * random.uniform(),
          .once = random.uniform() / 2,
          .model_bytes = static_cast<std::int64_t>(random.below(60)),
          .saved_bytes = static_cast<std::int64_t>(1 + random.below(40)),
          .output_bytes = static_cast<std::int64_t>(1 + random.below(8))};
}

ShardingEdge drawn_edge(Random& random, const ShardingGraph& g, std::size_t from, std::size_t to, std::int64_t count) {
  ShardingEdge e{from, to, {}, count};
  for (std::size_t k = 0; k < g.nodes[from].choices.size(); ++k) {
    e.costs.emplace_back();
    for (std::size_t l = 0; l < g.nodes[to].choices.size(); ++l) {
      const bool is_closed = random.below(8) == 0;
      e.costs.back().push_back(k == l ? ShardingEdge::Cost{}
                                      : ShardingEdge::Cost{is_closed ? kClosed : random.uniform(), random.uniform()});
    }
  }
  return e;
}

/// `nodes` ops one behind another, some residual edges, and one edge back where the block repeats.
ShardingGraph drawn_graph(Random& random, std::size_t nodes, std::size_t ways, std::int64_t blocks) {
  ShardingGraph g;
  for (std::size_t v = 0; v < nodes; ++v) {
    g.nodes.push_back({"op", {}, blocks});
    for (std::size_t k = 0; k < ways; ++k) g.nodes.back().choices.push_back(drawn_choice(random));
  }
  for (std::size_t v = 1; v < nodes; ++v) {
    g.edges.push_back(drawn_edge(random, g, v - 1, v, blocks));
    if (v > 1 && random.below(3) == 0)
      g.edges.push_back(drawn_edge(random, g, static_cast<std::size_t>(random.below(v - 1)), v, blocks));
  }
  if (blocks > 1) g.edges.push_back(drawn_edge(random, g, nodes - 1, 0, blocks - 1));
  return g;
}

ShardedStack drawn_stack(Random& random) {
  ShardedStack s;
  s.blocks = 2 + static_cast<std::int64_t>(random.below(4));
  s.graph = drawn_graph(random, 2, 3, s.blocks);
  s.graph.nodes.push_back({"outside", {}, 1});
  for (int k = 0; k < 2; ++k) s.graph.nodes.back().choices.push_back(drawn_choice(random));
  s.graph.edges.push_back(drawn_edge(random, s.graph, 2, 0, 1));
  s.graph.edges.push_back(drawn_edge(random, s.graph, 1, 2, 1));
  s.is_in_block = {true, true, false};
  return s;
}

}  // namespace

TEST_CASE("no choice of ways for up to six ops is faster than that of the integer program") {
  Random random{1};
  int found = 0, impossible = 0;
  for (int i = 0; i < 120; ++i) {
    const std::size_t nodes = 1 + random.below(6);
    const ShardingGraph g = drawn_graph(random, nodes, 1 + random.below(4), 1 + std::int64_t(random.below(3)));
    const auto budget = static_cast<std::int64_t>(1 + random.below(160 * nodes));
    const std::optional<ShardingChoice> chosen = choose_shardings(g, budget, kLimit);
    const std::optional<double> best = best_of_all(g, budget);
    CAPTURE(i, budget);
    REQUIRE(chosen.has_value() == best.has_value());
    if (!chosen) {
      ++impossible;
      continue;
    }
    ++found;
    const auto [seconds, bytes] = worth(g, chosen->of_node);
    CHECK(chosen->is_optimal);
    CHECK(bytes <= budget);
    CHECK(bytes == chosen->bytes);
    CHECK(seconds == Approx(chosen->seconds).epsilon(1e-12));
    CHECK(seconds == Approx(*best).epsilon(1e-6));
  }
  CHECK(found > 40);
  CHECK(impossible > 10);
}

TEST_CASE("all published ways of the products of a block are chosen as well as by trying them") {
  // Four products on 2 x 4 with the published costs; between them the cheapest conversions.
  const MeshSizes mesh{2, 4};
  const AlphaBeta slow{1e-4, 6e-11}, fast{2e-5, 5e-12};
  const CostForm form = published_form(mesh, slow, fast);
  const StepCost steps = published_steps(mesh, slow, fast);
  constexpr std::int64_t kRows = 1024, kHidden = 512;
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {kHidden, 3 * kHidden}, {kHidden, kHidden}, {kHidden, 4 * kHidden}, {4 * kHidden, kHidden}};
  ShardingGraph g;
  std::vector<std::vector<ProductAxes>> open;
  for (const auto& [in, out] : sizes) {
    ProductChoices c = product_choices(linear_strategies(), {.m = kRows, .n = out, .k = in}, mesh, form, 12);
    g.nodes.push_back({"product", std::move(c.choices), 1});
    open.push_back(std::move(c.open));
  }
  for (std::size_t v = 1; v < open.size(); ++v) {
    ShardingEdge e{v - 1, v, {}, 1};
    const ShardedTensor t{{kRows, sizes[v].first}, double(kRows * sizes[v].first * 2)};
    for (const ProductAxes& a : open[v - 1]) {
      e.costs.emplace_back();
      for (const ProductAxes& b : open[v]) {
        const ShardingSpec from{{a.m, a.n}}, to{{b.m, b.k}};
        e.costs.back().push_back(
            {cheapest_conversion(from, to, t, mesh, steps)->cost, cheapest_conversion(to, from, t, mesh, steps)->cost});
      }
    }
    g.edges.push_back(std::move(e));
  }
  CHECK(open[0].size() == 14);
  for (const std::int64_t budget : {40'000'000, 12'000'000, 9'000'000}) {
    const auto chosen = choose_shardings(g, budget, kLimit);
    const auto best = best_of_all(g, budget);
    REQUIRE(chosen.has_value() == best.has_value());
    if (chosen) CHECK(chosen->seconds == Approx(*best).epsilon(1e-6));
  }
}

TEST_CASE("equal blocks that share variables are one block with a loop, whatever the depth") {
  Random random{3};
  ShardingGraph g = drawn_graph(random, 4, 3, 2);
  const auto shallow = choose_shardings(g, INT64_MAX / 4, kLimit);
  for (ShardingNode& n : g.nodes) n.count = 96;
  for (ShardingEdge& e : g.edges) e.count = e.from < e.to ? 96 : 95;
  const auto deep = choose_shardings(g, INT64_MAX / 4, kLimit);
  REQUIRE((shallow && deep));
  CHECK(deep->seconds == Approx(*best_of_all(g, INT64_MAX / 4)).epsilon(1e-6));
}

TEST_CASE("a graph whose followers are merged into their leaders has the same best choice") {
  Random random{4};
  for (int i = 0; i < 30; ++i) {
    ShardingGraph g = drawn_graph(random, 5, 3, 2);
    const std::vector<std::size_t> leaders{0, 0, 2, 2, 4};
    for (ShardingEdge& e : g.edges)
      for (std::size_t k = 0; k < 3; ++k)
        for (std::size_t l = 0; l < 3; ++l) {
          const bool follows = leaders[e.from] == leaders[e.to];
          e.costs[k][l] = follows && k != l ? ShardingEdge::Cost{kClosed, 0} : e.costs[k][l];
          if (k == l) e.costs[k][l] = {0.25 * double(k), 0.5};
        }
    const MergedGraph merged = merge_followers(g, leaders);
    CHECK(merged.graph.nodes.size() == 3);
    const auto budget = static_cast<std::int64_t>(500 + random.below(400));
    const auto whole = choose_shardings(g, budget, kLimit), small = choose_shardings(merged.graph, budget, kLimit);
    CAPTURE(i, budget);
    REQUIRE(whole.has_value() == small.has_value());
    if (!whole) continue;
    CHECK(small->seconds == Approx(whole->seconds).epsilon(1e-6));
    for (std::size_t v = 0; v < 5; ++v) CHECK(whole->of_node[v] == whole->of_node[leaders[v]]);
  }
}

TEST_CASE("a chain of blocks has all their communication in its passes") {
  Random random{5};
  ShardedStack s = drawn_stack(random);
  for (ShardingEdge& e : s.graph.edges)
    for (auto& row : e.costs)
      for (auto& c : row) c = {0.125, 0.25};
  const std::vector<std::size_t> ways{1, 2, 0};
  const Chain chain = chain_of(s, ways);
  double all = s.graph.nodes[2].choices[0].seconds() + 0.375;  // outside, and the way to it
  for (const ChainBlock& b : chain.blocks) all += b.forward + b.backward;
  for (int v = 0; v < 2; ++v)
    all += double(s.blocks) * s.graph.nodes[std::size_t(v)].choices[ways[std::size_t(v)]].once;
  CHECK(all == Approx(worth(s.graph, ways).first));
  CHECK(chain.blocks.size() == std::size_t(s.blocks));
  CHECK(chain.blocks[0].saved == s.graph.nodes[0].choices[1].saved_bytes + s.graph.nodes[1].choices[2].saved_bytes);
}

TEST_CASE("the plan in two stages is as fast as all pairs of a sharding and a schedule, or nearly so") {
  Random random{6};
  int equal = 0, found = 0, missed = 0;
  double worst = 1, sum = 0;
  for (int i = 0; i < 150; ++i) {
    const ShardedStack s = drawn_stack(random);
    const auto budget = static_cast<std::int64_t>(60 + random.below(400));
    const auto slots = static_cast<int>(budget);
    const auto plan = plan_in_two_stages(s, budget, kLimit, slots);
    std::optional<double> joint;
    for_each_choice(s.graph, [&](const std::vector<std::size_t>& ways) {
      const ShardingChoice c = sum_of(s.graph, ways);
      if (!std::isfinite(c.seconds)) return;
      const auto p = plan_recomputation(s, c, budget, slots);
      if (p && (!joint || p->seconds < *joint)) joint = p->seconds;
    });
    CAPTURE(i, budget);
    if (plan) REQUIRE(joint);
    missed += joint && !plan;
    if (!plan) continue;
    ++found;
    CHECK(plan->seconds >= *joint * (1 - 1e-9));
    const double gap = plan->seconds / *joint;
    equal += gap < 1 + 1e-9;
    worst = std::max(worst, gap);
    sum += gap;
  }
  WARN(equal << " of " << found << " plans are as fast as any, others at worst " << 100 * (worst - 1) << " % slower, "
             << 100 * (sum / found - 1) << " % in the mean; " << missed
             << " budgets have a plan that it does not find");
  CHECK(missed < found / 10);
  CHECK(found > 80);
  CHECK(equal > found / 2);
}
