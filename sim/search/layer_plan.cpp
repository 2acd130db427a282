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

/// Adds the next point in order of bytes, then seconds, if it is faster than all that takes less.
void add_to(Frontier& frontier, const Point& next) {
  if (frontier.empty() || next.cost.seconds < frontier.back().cost.seconds) frontier.push_back(next);
}

/// Of both; of equal points the one of the first.
Frontier merged(const Frontier& first, const Frontier& second) {
  Frontier out;
  out.reserve(first.size() + second.size());
  auto a = first.begin(), b = second.begin();
  while (a != first.end() && b != second.end()) {
    const bool is_second =
        a->cost.bytes != b->cost.bytes ? b->cost.bytes < a->cost.bytes : b->cost.seconds < a->cost.seconds;
    add_to(out, is_second ? *b++ : *a++);
  }
  for (; a != first.end(); ++a) add_to(out, *a);
  for (; b != second.end(); ++b) add_to(out, *b);
  return out;
}

/// Of all, two neighbours at a time: of many points few are left from merge to merge.
Frontier merged(std::vector<Frontier> all) {
  if (all.empty()) return {};
  for (; all.size() > 1; all.resize((all.size() + 1) / 2))
    for (std::size_t i = 0; i < all.size(); i += 2)
      all[i / 2] = i + 1 < all.size() ? merged(all[i], all[i + 1]) : std::move(all[i]);
  return std::move(all.front());
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
      const auto add = [&](Frontier& to, const LayerCost& before, double change, std::size_t way, std::size_t from) {
        const LayerCost c{before.seconds + change + costs[s].seconds, before.bytes + bytes_[l][s]};
        if (c.bytes + behind_[l] <= room_) add_to(to, {c, way, from});
      };
      if (l == 0) {
        add(next[s], {}, 0, 0, 0);
        continue;
      }
      std::vector<Frontier> behind_ways(reached_.back().size());
      for (std::size_t way = 0; way < behind_ways.size(); ++way)
        for (std::size_t i = 0; i < reached_.back()[way].size(); ++i)
          add(behind_ways[way], reached_.back()[way][i].cost, choices_.changes.empty() ? 0 : choices_.changes[way][s],
              way, i);
      next[s] = merged(std::move(behind_ways));
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
