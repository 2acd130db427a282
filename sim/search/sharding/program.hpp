// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/base/units.hpp"

namespace orrery {

/// One way to shard an op: what it costs a rank, communication included, and what it holds.
struct NodeChoice {
  std::string name;
  double forward = 0, backward = 0, once = 0;  // `once`: behind the passes, sums of gradients and the update
  std::int64_t model_bytes = 0;                // parameters, their gradients and states
  std::int64_t saved_bytes = 0;                // that wait for the backward pass
  std::int64_t output_bytes = 0;

  double seconds() const { return forward + backward + once; }
  std::int64_t bytes() const { return model_bytes + saved_bytes; }
};

/// `count` equal ops of equal blocks, which have one way.
struct ShardingNode {
  std::string name;
  std::vector<NodeChoice> choices;
  std::int64_t count = 1;
};

/// A tensor that goes from one op to another; infinite seconds: the two ways cannot follow each other.
struct ShardingEdge {
  struct Cost {
    double forward = 0, backward = 0;
    double seconds() const { return forward + backward; }
  };
  std::size_t from = 0, to = 0;
  std::vector<std::vector<Cost>> costs;  // [choice of from][choice of to]
  std::int64_t count = 1;
};

struct ShardingGraph {
  std::vector<ShardingNode> nodes;
  std::vector<ShardingEdge> edges;
};

struct ShardingChoice {
  std::vector<std::size_t> of_node;
  double seconds = 0;
  std::int64_t bytes = 0;
  bool is_optimal = true;
};

/// What a choice comes to.
ShardingChoice sum_of(const ShardingGraph& graph, std::vector<std::size_t> of_node);

/// The choice of least seconds that holds at most `budget` bytes, all ops taken as live together (Alpa, arXiv
/// 2201.12023; Colossal-Auto, arXiv 2302.02599): binary s[v][k] for ways of ops and e[u,v][k][l] for pairs of them,
///   minimise Σ count·s·seconds + Σ count·e·seconds under
///   Σ_k s[v][k] = 1,  Σ_l e[k][l] ≤ s[u][k],  Σ_k e[k][l] ≤ s[v][l],  Σ_kl e[k][l] = 1,  Σ count·s·bytes ≤ budget.
/// Equal blocks share their variables: a program of 96 blocks is as large as one of 2. Nothing where no choice fits, or
/// none was found in time.
std::optional<ShardingChoice> choose_shardings(const ShardingGraph& graph, std::int64_t budget, Seconds limit);

/// Ops that have the way of another one with the same choices (element by element, norms): `leaders[v]`, or v itself.
/// Their costs are added to those of their leader, and with them what lies between.
struct MergedGraph {
  ShardingGraph graph;
  std::vector<std::size_t> node_of;  // per node of the whole graph
};
MergedGraph merge_followers(const ShardingGraph& graph, const std::vector<std::size_t>& leaders);

}  // namespace orrery
