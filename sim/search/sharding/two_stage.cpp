// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/two_stage.hpp"

#include <algorithm>

namespace orrery {
namespace {

constexpr double kBudgetFactor = 1.3;
constexpr int kTighter = 2;       // budgets below the given one
constexpr int kMostBudgets = 40;  // 1.3^40 is 36,000

/// What of a plan lies outside of the chain: seconds, and bytes that stay.
struct Outside {
  double seconds = 0;
  std::int64_t bytes = 0;
};

Outside outside_of(const ShardedStack& s, const std::vector<std::size_t>& of_node) {
  Outside out;
  for (std::size_t v = 0; v < s.graph.nodes.size(); ++v) {
    const NodeChoice& c = s.graph.nodes[v].choices[of_node[v]];
    const auto n = s.graph.nodes[v].count;
    out.bytes += n * (s.is_in_block[v] ? c.model_bytes : c.bytes());
    out.seconds += double(n) * (s.is_in_block[v] ? c.once : c.seconds());
  }
  for (const ShardingEdge& e : s.graph.edges)
    if (!s.is_in_block[e.to]) out.seconds += double(e.count) * e.costs[of_node[e.from]][of_node[e.to]].seconds();
  return out;
}

}  // namespace

Chain chain_of(const ShardedStack& s, const std::vector<std::size_t>& of_node) {
  ChainBlock block{.forward = 0, .backward = 0};
  for (std::size_t v = 0; v < s.graph.nodes.size(); ++v) {
    if (!s.is_in_block[v]) continue;
    const NodeChoice& c = s.graph.nodes[v].choices[of_node[v]];
    block.forward += c.forward, block.backward += c.backward;
    block.saved += c.saved_bytes;
    block.input = c.output_bytes;  // of the last op, which the next block reads
  }
  Chain chain{std::vector<ChainBlock>(static_cast<std::size_t>(s.blocks), block), block.input};
  for (const ShardingEdge& e : s.graph.edges) {
    if (!s.is_in_block[e.to]) continue;
    const ShardingEdge::Cost& c = e.costs[of_node[e.from]][of_node[e.to]];
    const bool inside = s.is_in_block[e.from] && e.from < e.to;
    for (std::size_t b = 0; b < chain.blocks.size(); ++b)
      if (inside || (b == 0) != s.is_in_block[e.from]) {
        chain.blocks[b].forward += c.forward;
        chain.blocks[b].backward += c.backward;
      }
  }
  return chain;
}

std::vector<BudgetedSharding> sharding_series(const ShardingGraph& graph, std::int64_t budget, Seconds limit) {
  std::vector<BudgetedSharding> out;
  const std::optional<ShardingChoice> free = choose_shardings(graph, INT64_MAX / 2, limit);
  if (!free) return out;
  double factor = 1;
  for (int i = 0; i < kTighter; ++i) factor /= kBudgetFactor;
  for (int i = 0; i < kMostBudgets; ++i, factor *= kBudgetFactor) {
    const auto bytes = static_cast<std::int64_t>(double(budget) * factor);
    const bool has_room = free->bytes <= bytes;
    const std::optional<ShardingChoice> found = has_room ? free : choose_shardings(graph, bytes, limit);
    const auto same = [&](const BudgetedSharding& s) { return s.sharding.of_node == found->of_node; };
    if (found && std::none_of(out.begin(), out.end(), same)) out.push_back({factor, *found});
    if (has_room) break;
  }
  return out;
}

std::optional<TwoStagePlan> plan_recomputation(const ShardedStack& stack, const ShardingChoice& sharding,
                                               std::int64_t budget, int slots) {
  const Outside outside = outside_of(stack, sharding.of_node);
  const Chain chain = chain_of(stack, sharding.of_node);
  if (outside.bytes >= budget) return std::nullopt;
  std::optional<ChainSchedule> schedule = rotor(chain, budget - outside.bytes, slots);
  if (!schedule) return std::nullopt;
  const double work = cost_of(chain, *schedule).work;
  return TwoStagePlan{1, sharding, std::move(*schedule), outside.seconds + work};
}

std::optional<TwoStagePlan> plan_in_two_stages(const ShardedStack& stack, std::int64_t budget, Seconds limit,
                                               int slots) {
  std::optional<TwoStagePlan> best;
  for (const BudgetedSharding& s : sharding_series(stack.graph, budget, limit)) {
    std::optional<TwoStagePlan> plan = plan_recomputation(stack, s.sharding, budget, slots);
    if (!plan || (best && plan->seconds >= best->seconds)) continue;
    plan->factor = s.factor;
    best = std::move(plan);
  }
  return best;
}

}  // namespace orrery
