// SPDX-License-Identifier: Apache-2.0
#include "sim/app/sharding_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "sim/app/layer_search.hpp"
#include "sim/app/wiring.hpp"
#include "sim/base/parallel.hpp"
#include "sim/base/table.hpp"
#include "sim/strategy/block_profile.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

constexpr Seconds kProgramLimit{60};
constexpr int kBudgetAttempts = 8;
constexpr double kCloseEnough = 0.01;  // of the room, of a budget of activations

TrainOptions train_options(const TrainingRequest& q) {
  TrainOptions o;
  o.batch = q.batch, o.sequence = q.sequence;
  for (const auto& [value, name] : enum_names(Precision{}))
    if (name == q.dtype) o.dtype = value;
  return o;
}

/// Runs of blocks that are saved and of those that run again, with the segments of which the first input stays: "0-5
/// again in 2 segments, 6-11 saved; 18 forward passes over 12 blocks".
std::string segments_of(const ChainSchedule& s) {
  std::string out;
  std::size_t passes = s.first.size();
  for (const auto& [block, again] : s.again) passes += again.size();
  for (std::size_t i = 0, end = 0; i < s.first.size(); i = end) {
    std::int64_t segments = 0;
    for (end = i; end < s.first.size() && s.first[end].saves == s.first[i].saves; ++end)
      segments += s.first[end].keeps_output;
    out += fmt::format("{}{}{} {}", out.empty() ? "" : ", ", i, end > i + 1 ? fmt::format("-{}", end - 1) : "",
                       s.first[i].saves ? "saved" : fmt::format("again in {} segments", segments));
  }
  return out + fmt::format("; {} forward passes over {} blocks", passes, s.first.size());
}

class Shardings {
 public:
  Shardings(const Reproducer& r, const TrainingRequest& q, const Model& model)
      : r_{r},
        q_{q},
        model_{model},
        options_{train_options(q)},
        machine_{r.wiring.machine(read_cluster(q.cluster, "cluster"))},
        room_{q.usable().device} {}

  ShardingSearch run(const std::function<void(std::string_view, double)>& progress) {
    find_mesh();
    out_.block = lowered_block({model_, options_, *machine_.cost, out_.mesh.sizes()});
    add_programs();
    for (std::size_t k = 0; k < out_.block.ways.size(); ++k)
      if (const LoweredWay& w = out_.block.ways[k]; out_.block.is_open(k)) add({w, w, w}, "uniform");
    in_parallel(
        out_.trials.size(), [&](std::size_t i) { plan_memory(out_.trials[i]); },
        [&](double done) { progress("shardings", done); });
    std::stable_sort(out_.trials.begin(), out_.trials.end(),
                     [](const ShardedTrial& a, const ShardedTrial& b) { return a.trial.is_better_than(b.trial); });
    return std::move(out_);
  }

 private:
  void find_mesh() {
    out_.mesh = logical_mesh(device_pairs(*machine_.cost, static_cast<std::size_t>(q_.ranks)));
    if (!out_.mesh.is_in_order())
      throw UserError{"fast links of this cluster join devices that are no neighbours",
                      "number devices so that those with fast links follow each other"};
    out_.axes = {axis_cost(*machine_.cost, out_.mesh, kS0), axis_cost(*machine_.cost, out_.mesh, kS1)};
  }

  void add(const ShardedWays& ways, std::string from) {
    const auto same = [&](const ShardedTrial& t) { return t.ways == ways; };
    if (std::any_of(out_.trials.begin(), out_.trials.end(), same)) return;
    ShardedTrial t{.ways = ways, .from = std::move(from)};
    t.strategy = fmt::format("parallel: {{{}}}", sharded_options(ways, out_.mesh.sizes(), out_.block.stack.blocks));
    out_.trials.push_back(std::move(t));
  }

  void add_programs() {
    const MergedGraph merged = merge_followers(out_.block.stack.graph, out_.block.leaders);
    const auto budget = static_cast<std::int64_t>(std::min(room_, 1e18));
    for (const BudgetedSharding& s : sharding_series(merged.graph, budget, kProgramLimit)) {
      std::vector<std::size_t> of_node;
      for (const std::size_t v : merged.node_of) of_node.push_back(s.sharding.of_node[v]);
      add(out_.block.ways_of(of_node), fmt::format("program, {:.3g} x memory", s.factor));
      ++out_.programs;
    }
  }

  TrainingTrial predicted(const ShardedTrial& t, const std::string& recompute) const {
    return predict_training(r_, q_, t.strategy, recompute);
  }

  /// The second stage: what runs again so that the rest fits.
  void plan_memory(ShardedTrial& t) const {
    t.recompute = "none", t.segments = "all saved";
    t.trial = predicted(t, t.recompute);
    if (t.trial.fits() || !t.trial.is_open()) return;
    const Plan plan = lowered(t);
    KnownReuse reuse;
    const Surroundings around{plan, {}, *machine_.cost, reuse};
    const auto blocks = static_cast<int>(out_.block.stack.blocks);
    const Chains chains{profile_chain(plan, 0, blocks),
                        profile_chain(plan, 0, blocks, [&](const Plan& p, const Op& op) {
                          return op_seconds(*machine_.cost, p, op, around.of(op.work));
                        })};
    try_budgets(t, chains, room_ - beside(t, chains.timed));
  }

  Plan lowered(const ShardedTrial& t) const {
    const Node strategy = parse_yaml("{" + t.strategy + "}", "a sharding");
    return find_strategy("parallel").make(*strategy.find("parallel"))->train_step(model_, options_, nullptr);
  }

  /// The blocks as `recompute: rotor` sees them, by FLOP, and in seconds with all communication. Where blocks are alike
  /// both lead to one schedule, but for what goes into the first block.
  struct Chains {
    Chain counted, timed;
  };

  /// What a step holds beside its chain, at the peak of all saved.
  static double beside(const ShardedTrial& t, const Chain& chain) {
    ChainSchedule all;
    for (int b = 0; b < std::ssize(chain.blocks); ++b) all.first.push_back({b, true, true});
    return t.trial.device_bytes().value_or(0) - double(cost_of(chain, all).peak);
  }

  /// Budgets of activations, moved by what a step is too large or too small, until the fastest that fits is found.
  void try_budgets(ShardedTrial& t, const Chains& chains, double budget) const {
    const auto least = double(least_budget(chains.counted));
    for (int i = 0; i < kBudgetAttempts; ++i) {
      budget = std::max(budget, least);
      const auto bytes = static_cast<std::int64_t>(budget);
      const std::string recompute = fmt::format("rotor, activation_budget: {} B", bytes);
      const TrainingTrial trial = predicted(t, recompute);
      const auto run = rotor(chains.counted, bytes), best = rotor(chains.timed, bytes);
      if (!trial.is_open() || !run || !best) return;
      if (trial.is_better_than(t.trial)) {
        t.trial = trial, t.recompute = recompute;
        t.segments = segments_of(*run);
        t.over_timed = cost_of(chains.timed, *run).work / cost_of(chains.timed, *best).work;
      }
      const double free = room_ - trial.device_bytes().value_or(0);
      if (std::abs(free) < kCloseEnough * room_ || (free < 0 && budget <= least)) return;
      budget += free;
    }
  }

  const Reproducer& r_;
  const TrainingRequest& q_;
  const Model& model_;
  TrainOptions options_;
  Machine machine_;
  double room_;
  ShardingSearch out_;
};

}  // namespace

ShardingSearch search_shardings(const Reproducer& reproducer, const TrainingRequest& request, const Model& model,
                                const std::function<void(std::string_view, double)>& progress) {
  const std::vector<std::size_t> kinds = kinds_of_blocks(model);
  if (kinds.empty() || std::any_of(kinds.begin(), kinds.end(), [](std::size_t k) { return k != 0; }))
    throw UserError{fmt::format("{} is no stack of equal blocks, which share their way", model.name),
                    "leave --planner out: splits are searched for all models"};
  if (request.ranks < 2) throw UserError{"one device shards nothing", "give --devices, or a cluster with several"};
  return Shardings{reproducer, request, model}.run(progress);
}

namespace {

std::string axis_text(const ShardingSearch& found, std::size_t axis) {
  const std::int64_t ranks = axis == 0 ? found.mesh.sizes().first : found.mesh.sizes().second;
  const AlphaBeta& c = found.axes[axis];
  return ranks < 2 ? fmt::format("axis {}: 1 device", axis)
                   : fmt::format("axis {}: {} devices, alpha {}, {}", axis, ranks, to_text(Seconds{c.alpha}),
                                 to_text(BytesPerSecond{1 / c.beta}));
}

std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }

Table op_table(const LoweredBlock& block, const ShardedWays& ways) {
  Table table{
      {{"op"}, {"how it lies"}, {"forward", Align::Right}, {"backward", Align::Right}, {"saved", Align::Right}}};
  const std::vector<std::size_t> choices = block.nodes_of(ways);
  for (std::size_t v = 0; v < choices.size(); ++v) {
    const NodeChoice& c = block.stack.graph.nodes[v].choices[choices[v]];
    table.add({block.stack.graph.nodes[v].name, c.name, milliseconds(c.forward), milliseconds(c.backward),
               to_text(Bytes{double(c.saved_bytes)})});
  }
  return table;
}

std::string ways_text(const LoweredBlock& block, const ShardedWays& w) {
  const auto name = [&](const LoweredWay& way) {
    const std::vector<std::size_t> at = block.nodes_of({way, way, way});
    return block.stack.graph.nodes.back().choices[at.back()].name + (way.scatters ? " scattered" : "");
  };
  return w.attention == w.feed_forward && w.attention == w.outside
             ? name(w.outside)
             : fmt::format("{} | {} | {}", name(w.outside), name(w.attention), name(w.feed_forward));
}

}  // namespace

std::string to_text(const ShardingSearch& found, std::size_t rows) {
  const MeshSizes mesh = found.mesh.sizes();
  std::string out = fmt::format("logical mesh {} x {}\n  {}\n  {}\n\n", mesh.first, mesh.second, axis_text(found, 0),
                                axis_text(found, 1));
  const ShardedTrial& best = found.trials.front();
  if (best.trial.is_open()) out += op_table(found.block, best.ways).text("  ") + "\n";
  Table table{{{"outside | attention | feed-forward"},
               {"chosen by"},
               {"blocks"},
               {"device", Align::Right},
               {"step", Align::Right},
               {"MFU", Align::Right},
               {"most time"}}};
  for (std::size_t i = 0; i < std::min(rows, found.trials.size()); ++i) {
    const ShardedTrial& t = found.trials[i];
    const std::string step = t.trial.is_open() ? to_text(Seconds{t.trial.step}) : "-";
    table.add({ways_text(found.block, t.ways), t.from, t.trial.fits() ? t.segments : t.trial.limit,
               t.trial.peak(Tier::Device, Tier::Device), step, fmt::format("{:.1f} %", 100 * t.trial.mfu),
               t.trial.slowed});
  }
  return out + table.text("  ");
}

nlohmann::json to_json(const ShardingSearch& found) {
  nlohmann::json axes = nlohmann::json::array(), ops = nlohmann::json::array(), plans = nlohmann::json::array();
  const MeshSizes mesh = found.mesh.sizes();
  for (const std::size_t a : {0, 1})
    axes.push_back(
        {{"devices", a == 0 ? mesh.first : mesh.second}, {"alpha", found.axes[a].alpha}, {"beta", found.axes[a].beta}});
  const std::vector<std::size_t> choices = found.block.nodes_of(found.trials.front().ways);
  for (std::size_t v = 0; v < choices.size(); ++v) {
    const NodeChoice& c = found.block.stack.graph.nodes[v].choices[choices[v]];
    ops.push_back({{"op", found.block.stack.graph.nodes[v].name},
                   {"way", c.name},
                   {"forward", c.forward},
                   {"backward", c.backward},
                   {"saved_bytes", c.saved_bytes}});
  }
  for (const ShardedTrial& t : found.trials) {
    nlohmann::json row = to_json(t.trial);
    row.update({{"ways", ways_text(found.block, t.ways)},
                {"chosen_by", t.from},
                {"strategy", "{" + t.strategy + "}"},
                {"recompute", t.recompute},
                {"segments", t.segments},
                {"over_timed_schedule", t.over_timed}});
    plans.push_back(std::move(row));
  }
  return {{"mesh", {{"rows", mesh.first}, {"columns", mesh.second}, {"axes", axes}}},
          {"ops", ops},
          {"programs", found.programs},
          {"plans", plans}};
}

}  // namespace orrery
