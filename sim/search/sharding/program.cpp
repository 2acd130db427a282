// SPDX-License-Identifier: Apache-2.0
#include "sim/search/sharding/program.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/base/error.hpp"
#include "sim/search/mip.hpp"

namespace orrery {
namespace {

/// Choices of ops and of pairs of them as binary variables. Seconds are in parts of the largest, bytes in parts of the
/// budget.
class ShardingProgram {
 public:
  ShardingProgram(const ShardingGraph& graph, std::int64_t budget) : g_{graph}, budget_{double(budget)} {
    for (const ShardingNode& n : g_.nodes)
      for (const NodeChoice& c : n.choices)
        if (std::isfinite(c.seconds())) unit_ = std::max(unit_, double(n.count) * c.seconds());
    for (std::size_t v = 0; v < g_.nodes.size(); ++v) add_node(v);
    for (const ShardingEdge& e : g_.edges) add_edge(e);
    Mip::Terms held;
    for (std::size_t v = 0; v < g_.nodes.size(); ++v)
      for (std::size_t k = 0; k < chosen_[v].size(); ++k)
        held.emplace_back(chosen_[v][k], double(g_.nodes[v].count) * double(g_.nodes[v].choices[k].bytes()) / budget_);
    mip_.at_most(std::move(held), 1);
  }

  std::optional<ShardingChoice> solve(Seconds limit) const {
    const MipSolution s = orrery::solve(mip_, limit);
    if (s.x.empty()) return std::nullopt;
    std::vector<std::size_t> of_node;
    for (const std::vector<int>& choices : chosen_)
      for (std::size_t k = 0; k < choices.size(); ++k)
        if (s.x[static_cast<std::size_t>(choices[k])] > 0.5) of_node.push_back(k);
    ShardingChoice out = sum_of(g_, std::move(of_node));
    out.is_optimal = s.status == MipStatus::Optimal;
    return out;
  }

 private:
  int add(double seconds) {
    const bool is_open = std::isfinite(seconds);
    return mip_.add({.high = is_open ? 1.0 : 0.0, .cost = is_open ? seconds / unit_ : 0});
  }

  void add_node(std::size_t v) {
    Mip::Terms one;
    std::vector<int>& choices = chosen_.emplace_back();
    for (const NodeChoice& c : g_.nodes[v].choices) {
      choices.push_back(add(double(g_.nodes[v].count) * c.seconds()));
      one.emplace_back(choices.back(), 1);
    }
    mip_.equal(std::move(one), 1);
  }

  void add_edge(const ShardingEdge& e) {
    const std::vector<int>&from = chosen_[e.from], &to = chosen_[e.to];
    Mip::Terms one;
    std::vector<Mip::Terms> rows(from.size()), columns(to.size());
    for (std::size_t k = 0; k < from.size(); ++k)
      for (std::size_t l = 0; l < to.size(); ++l) {
        const int pair = add(double(e.count) * e.costs[k][l].seconds());
        one.emplace_back(pair, 1);
        rows[k].emplace_back(pair, 1);
        columns[l].emplace_back(pair, 1);
      }
    const auto bound = [&](Mip::Terms pairs, int choice) {
      pairs.emplace_back(choice, -1);
      mip_.at_most(std::move(pairs), 0);
    };
    for (std::size_t k = 0; k < from.size(); ++k) bound(std::move(rows[k]), from[k]);
    for (std::size_t l = 0; l < to.size(); ++l) bound(std::move(columns[l]), to[l]);
    mip_.equal(std::move(one), 1);
  }

  const ShardingGraph& g_;
  double budget_, unit_ = 1e-300;
  Mip mip_;
  std::vector<std::vector<int>> chosen_;
};

void add_to(NodeChoice& sum, const NodeChoice& more) {
  sum.forward += more.forward, sum.backward += more.backward, sum.once += more.once;
  sum.model_bytes += more.model_bytes, sum.saved_bytes += more.saved_bytes;
  sum.output_bytes = more.output_bytes;
}

/// An edge between two merged nodes, added to one that is there already.
void add_edge_to(ShardingGraph& graph, const ShardingEdge& e) {
  const auto same = std::find_if(graph.edges.begin(), graph.edges.end(), [&](const ShardingEdge& o) {
    return o.from == e.from && o.to == e.to && o.count == e.count;
  });
  if (same == graph.edges.end()) {
    graph.edges.push_back(e);
    return;
  }
  for (std::size_t k = 0; k < e.costs.size(); ++k)
    for (std::size_t l = 0; l < e.costs[k].size(); ++l) {
      same->costs[k][l].forward += e.costs[k][l].forward;
      same->costs[k][l].backward += e.costs[k][l].backward;
    }
}

}  // namespace

ShardingChoice sum_of(const ShardingGraph& graph, std::vector<std::size_t> of_node) {
  ShardingChoice out{.of_node = std::move(of_node)};
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const NodeChoice& c = graph.nodes[v].choices[out.of_node[v]];
    out.seconds += double(graph.nodes[v].count) * c.seconds();
    out.bytes += graph.nodes[v].count * c.bytes();
  }
  for (const ShardingEdge& e : graph.edges)
    if (e.count > 0) out.seconds += double(e.count) * e.costs[out.of_node[e.from]][out.of_node[e.to]].seconds();
  return out;
}

std::optional<ShardingChoice> choose_shardings(const ShardingGraph& graph, std::int64_t budget, Seconds limit) {
  if (budget <= 0) return std::nullopt;
  return ShardingProgram{graph, budget}.solve(limit);
}

MergedGraph merge_followers(const ShardingGraph& graph, const std::vector<std::size_t>& leaders) {
  MergedGraph out;
  out.node_of.resize(graph.nodes.size());
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
    const ShardingNode& n = graph.nodes[v];
    const std::size_t leader = leaders[v];
    if (leader == v) {
      out.node_of[v] = out.graph.nodes.size();
      out.graph.nodes.push_back(n);
      continue;
    }
    if (leader > v || leaders[leader] != leader || graph.nodes[leader].choices.size() != n.choices.size() ||
        graph.nodes[leader].count != n.count)
      bug("an op follows one that is not like it");
    out.node_of[v] = out.node_of[leader];
    for (std::size_t k = 0; k < n.choices.size(); ++k) add_to(out.graph.nodes[out.node_of[v]].choices[k], n.choices[k]);
  }
  for (ShardingEdge e : graph.edges) {
    e.from = out.node_of[e.from], e.to = out.node_of[e.to];
    if (e.from != e.to) {
      add_edge_to(out.graph, e);
      continue;
    }
    ShardingNode& n = out.graph.nodes[e.from];
    const double share = double(e.count) / double(n.count);  // one of n − 1 between n blocks
    for (std::size_t k = 0; k < n.choices.size(); ++k) {
      n.choices[k].forward += share * e.costs[k][k].forward;
      n.choices[k].backward += share * e.costs[k][k].backward;
    }
  }
  return out;
}

}  // namespace orrery
