// SPDX-License-Identifier: Apache-2.0
#include "sim/search/layer_plan.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

/// Layers up to some, of which the last one has a certain way; and the plan without it that this comes from.
struct Point {
  LayerCost cost;
  std::size_t way = 0, from = 0;
};
using Frontier = std::vector<Point>;  // more bytes, fewer seconds

/// Only what is faster than all that takes less.
Frontier frontier_of(std::vector<Point> points) {
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) {
    return a.cost.bytes != b.cost.bytes ? a.cost.bytes < b.cost.bytes : a.cost.seconds < b.cost.seconds;
  });
  Frontier out;
  for (const Point& p : points)
    if (out.empty() || p.cost.seconds < out.back().cost.seconds) out.push_back(p);
  return out;
}

std::int64_t whole_quanta(std::int64_t bytes, std::int64_t quantum) {
  const std::int64_t over = ((bytes % quantum) + quantum) % quantum;
  return over == 0 ? bytes : bytes + (quantum - over);
}

class LayerPlanner {
 public:
  LayerPlanner(const LayerChoices& choices, std::int64_t room, std::int64_t quantum) : choices_{choices}, room_{room} {
    for (const auto& of_layer : choices.layers) {
      bytes_.emplace_back();
      std::optional<std::int64_t> least;
      for (const LayerCost& c : of_layer) {
        bytes_.back().push_back(whole_quanta(c.bytes, quantum));
        if (std::isfinite(c.seconds)) least = std::min(least.value_or(bytes_.back().back()), bytes_.back().back());
      }
      behind_.push_back(least.value_or(0));
    }
    std::int64_t behind = 0;
    for (std::size_t l = behind_.size(); l-- > 0;) behind += std::exchange(behind_[l], behind);
  }

  std::optional<LayerPlan> plan() {
    if (choices_.layers.empty()) return room_ >= 0 ? std::optional{LayerPlan{}} : std::nullopt;
    for (std::size_t l = 0; l < choices_.layers.size(); ++l) add_layer(l);
    std::size_t way = 0;
    const Point* last = nullptr;
    for (std::size_t s = 0; s < reached_.back().size(); ++s)
      if (const Frontier& f = reached_.back()[s]; !f.empty() && (last == nullptr || is_better(f.back(), *last)))
        last = &f.back(), way = s;
    if (last == nullptr) return {};
    LayerPlan out{std::vector<std::size_t>(choices_.layers.size()), last->cost};
    for (std::size_t l = out.ways.size(); l-- > 0;) {
      out.ways[l] = way;
      way = last->way;
      if (l > 0) last = &reached_[l - 1][way][last->from];
    }
    return out;
  }

 private:
  static bool is_better(const Point& a, const Point& b) {
    return a.cost.seconds != b.cost.seconds ? a.cost.seconds < b.cost.seconds : a.cost.bytes < b.cost.bytes;
  }

  void add_layer(std::size_t l) {
    const std::vector<LayerCost>& costs = choices_.layers[l];
    std::vector<Frontier> next(costs.size());
    for (std::size_t s = 0; s < costs.size(); ++s) {
      if (!std::isfinite(costs[s].seconds)) continue;
      std::vector<Point> points;
      const auto add = [&](const LayerCost& before, double change, std::size_t way, std::size_t from) {
        const LayerCost c{before.seconds + change + costs[s].seconds, before.bytes + bytes_[l][s]};
        if (c.bytes + behind_[l] <= room_) points.push_back({c, way, from});
      };
      if (l == 0) add({}, 0, 0, 0);
      for (std::size_t before = 0; l > 0 && before < reached_.back().size(); ++before)
        for (std::size_t i = 0; i < reached_.back()[before].size(); ++i)
          add(reached_.back()[before][i].cost, choices_.changes.empty() ? 0 : choices_.changes[before][s], before, i);
      next[s] = frontier_of(std::move(points));
    }
    reached_.push_back(std::move(next));
  }

  const LayerChoices& choices_;
  std::int64_t room_;
  std::vector<std::vector<std::int64_t>> bytes_;  // in whole quanta
  std::vector<std::int64_t> behind_;              // that all layers behind each take at least
  std::vector<std::vector<Frontier>> reached_;    // [layer][way]
};

}  // namespace

std::optional<LayerPlan> plan_layers(const LayerChoices& choices, std::int64_t room, std::int64_t quantum) {
  return LayerPlanner{choices, room, quantum}.plan();
}

}  // namespace orrery
