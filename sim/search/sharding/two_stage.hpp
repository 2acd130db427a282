// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "sim/search/sharding/program.hpp"
#include "sim/strategy/chain_schedule.hpp"

namespace orrery {

/// Equal blocks one behind another, with something around them. Of edges between nodes of a block those from a node to
/// a later one lie in each block, others between each two of them.
struct ShardedStack {
  ShardingGraph graph;
  std::vector<bool> is_in_block;  // per node; these count as many as there are blocks
  std::int64_t blocks = 1;
};

/// The blocks as a chain for recomputation: seconds of passes with all communication in them, and what each saves.
/// Conversions in front of a block are made again with it.
Chain chain_of(const ShardedStack& stack, const std::vector<std::size_t>& of_node);

/// Shardings of least time for budgets of bytes that grow by factors of 1.3 from `budget`/1.3² on, until memory makes
/// none slower; each once, in this order. Recomputation then takes from them what is above the budget.
struct BudgetedSharding {
  double factor = 1;  // of the first budget that led to it
  ShardingChoice sharding;
};
std::vector<BudgetedSharding> sharding_series(const ShardingGraph& graph, std::int64_t budget, Seconds limit);

/// A sharding, and what its blocks run again.
struct TwoStagePlan {
  double factor = 1;
  ShardingChoice sharding;
  ChainSchedule schedule;
  double seconds = 0;
};

/// Colossal-Auto's plan (arXiv 2302.02599): shardings of the series, each with Rotor's schedule for what parameters
/// leave of the budget; the fastest of them. Not always the best of all pairs: a sharding that no budget of the series
/// leads to may run less again. Nothing where none fits.
std::optional<TwoStagePlan> plan_in_two_stages(const ShardedStack& stack, std::int64_t budget, Seconds limit,
                                               int slots = 500);

/// A given sharding with Rotor's schedule.
std::optional<TwoStagePlan> plan_recomputation(const ShardedStack& stack, const ShardingChoice& sharding,
                                               std::int64_t budget, int slots = 500);

}  // namespace orrery
