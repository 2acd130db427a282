// SPDX-License-Identifier: Apache-2.0
// Training steps whose tensors move between tiers, in capped arenas, against the step that keeps all on the device.
#pragma once

#include <algorithm>
#include <stdexcept>

#include "tests/parallel_testing.hpp"
#include "tests/unit_cost.hpp"

namespace orrery::testing {

inline TrainOptions offload_options() {
  TrainOptions o;
  o.batch = 4;
  o.sequence = 8;
  o.steps = 3;
  o.dtype = Precision::F64;
  o.optimizer = clipped_optimizer();
  return o;
}

/// Networks of 24 small blocks: model data is most of what a step needs.
inline Model deep_model(const std::string& family) {
  if (family == "gpt2") return gpt2_of({.layers = 24});
  if (family == "llama") return llama_of({.layers = 24, .kv_heads = 1});
  if (family == "mixtral") return mixtral_of({.inner = 24, .layers = 12, .kv_heads = 1});
  throw std::out_of_range{family};
}

inline std::unique_ptr<Strategy> strategy_of(const std::string& name, const std::string& options) {
  return find_strategy(name).make(parse_yaml(options, "strategy"));
}

/// What steps whose tensors move came to; gradients are gone where their place is used again.
struct OffloadRun {
  Trained trained;
  Timeline timeline;
};

inline OffloadRun train_timed(const Model& model, const TrainOptions& o, Plan lowered, Executor& executor) {
  OffloadRun run;
  run.trained = train_steps(model, o, std::move(lowered), executor,
                            [&](const Plan&, Trained&) { run.timeline = executor.take(); });
  return run;
}

inline OffloadRun train_capped(const Model& model, const TrainOptions& o, Plan lowered, const HostOptions& host = {}) {
  return train_timed(model, o, std::move(lowered), *make_host_executor(host));
}

inline HostOptions capped(Tier tier, std::int64_t bytes) {
  HostOptions o;
  o.tier_bytes[static_cast<std::size_t>(tier)] = bytes;
  return o;
}

inline std::int64_t peak_of(const Timeline& t, Tier tier) {
  std::int64_t most = 0;
  for (const Peak& p : t.peaks)
    if (p.tier == tier) most = std::max(most, p.bytes);
  return most;
}

inline std::int64_t moves_of(const Timeline& t, Tier from, Tier to) {
  for (const Transfers& x : t.transfers)
    if (x.from == from && x.to == to) return x.moves;
  return 0;
}

inline std::int64_t bytes_between(const Timeline& t, Tier from, Tier to) {
  for (const Transfers& x : t.transfers)
    if (x.from == from && x.to == to) return x.bytes;
  return 0;
}

/// Copies of a plan whose names begin so.
inline std::int64_t planned_moves(const Plan& plan, std::string_view name) {
  std::int64_t count = 0;
  for (const Op& op : plan.ops)
    count += std::holds_alternative<Copy>(plan.work(op)) && plan.name_of(op).substr(0, name.size()) == name;
  return count;
}

/// What the copies of a plan on one rank add up to, in the order in which timelines list it.
inline std::vector<Transfers> planned_transfers(const Plan& plan) {
  std::map<std::pair<Tier, Tier>, Transfers> sums;
  for (const Op& op : plan.ops)
    if (const auto* c = std::get_if<Copy>(&plan.work(op))) {
      Transfers& t = sums.try_emplace({c->from, c->to}, Transfers{RankId{0}, c->from, c->to}).first->second;
      ++t.moves;
      t.bytes += static_cast<std::int64_t>(c->bytes.base());
    }
  std::vector<Transfers> out;
  for (const auto& [tiers, t] : sums) out.push_back(t);
  return out;
}

inline std::int64_t elements_of(const Model& model) {
  std::int64_t sum = 0;
  for (const Parameter& p : model.parameters) sum += p.elements();
  return sum;
}

/// Differences of losses and weights; gradients are gone where their place is used again.
inline double difference(const Trained& a, const Trained& b) {
  double worst = worst_difference(a.weights, b.weights);
  for (std::size_t i = 0; i < b.losses.size(); ++i)
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
  return a.losses.size() == b.losses.size() ? worst : 1;
}

/// A small network, what a strategy is told, and how a step is cut.
struct OffloadCase {
  const char *model, *options;
  std::int64_t microbatches = 1;
};

/// How far losses and weights, and gradients where they are asked for, are off those of one device that keeps all.
enum class Compared : std::uint8_t { Weights, Gradients };
/// `lower`: model, training options and the case's options to a plan.
template <class Lower>
double off_one_device(const OffloadCase& c, Lower lower, Compared compared = Compared::Weights) {
  const Model model = small_model(c.model);
  TrainOptions o = offload_options();
  o.microbatches = c.microbatches;
  const Trained reference = train(model, o, *single());
  Plan plan = lower(model, o, c.options);
  if (compared == Compared::Gradients) return worst_difference(train(model, o, std::move(plan)), reference);
  return difference(train_capped(model, o, std::move(plan)).trained, reference);
}
/// The same of a registered strategy, gradients compared.
inline double off_one_device(const std::string& strategy, const OffloadCase& c) {
  return off_one_device(
      c,
      [&](const Model& model, const TrainOptions& o, const char* options) {
        return strategy_of(strategy, options)->train_step(model, o, &host_workspaces());
      },
      Compared::Gradients);
}

/// A deep network of a family in a quarter of the device memory that the plain plan takes: how far its weights are off.
struct QuarterRun {
  std::int64_t quarter = 0;
  double difference = 0;
  Timeline timeline;
};

/// `lower`: model, options and bytes to the plan that has to do with them.
template <class Lower>
QuarterRun train_in_a_quarter(const std::string& family, Lower lower) {
  const Model model = deep_model(family);
  TrainOptions o = offload_options();
  o.batch = 1;
  o.recompute = Recompute::Full;
  const OffloadRun reference = train_capped(model, o, single()->train_step(model, o, &host_workspaces()));
  const std::int64_t quarter = peak_of(reference.timeline, Tier::Device) / 4;
  OffloadRun run = train_capped(model, o, lower(model, o, quarter), capped(Tier::Device, quarter));
  return {quarter, difference(run.trained, reference.trained), std::move(run.timeline)};
}

inline Timeline simulate_steps(const Plan& plan, std::int64_t steps) {
  const UnitCost cost;
  const NoSharing sharing;
  Engine engine{cost, sharing};
  for (std::int64_t s = 1; s <= steps; ++s) {
    Bindings bindings;
    bindings[Symbol::Step] = s;
    engine.execute(plan, bindings);
  }
  return engine.take();
}

}  // namespace orrery::testing
