// SPDX-License-Identifier: Apache-2.0
#include "sim/app/reproduce/galvatron_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr double kBackwardOfForward = 2;
constexpr double kSumsAgain = 1.5;     // of sums between parts, where the forward pass is made again
constexpr int kRanksOfGathered = 8;    // only of so many is counted what fewer parts in another order gather
constexpr double kShareMore = 0.025;   // of all states, that sharded ones take beside their share
constexpr double kBetweenLayers = 2;   // MiB per sample to be gathered between ways, of any model
constexpr double kFractionLeft = 0.5;  // of a layer, that a stage has to have room for
constexpr double kEqually = 1e-9;

/// ms per MiB. Groups of all ranks of a stage are neighbours.
double ring_ms(const GalvatronModel& m, int pp, int ranks, bool consecutive) {
  if (ranks == 1) return 0;
  for (const MeasuredRing& r : m.rings)
    if ((r.pp == pp || r.pp == 0) && r.ranks == ranks && r.consecutive == consecutive) return r.ms;
  bug("a ring that was not measured");
}
double ring_of_parts(const GalvatronModel& m, const GalvatronWay& w) {
  return ring_ms(m, w.pp, w.tp, w.dp == 1 || w.consecutive);
}
double ring_of_replicas(const GalvatronModel& m, const GalvatronWay& w) {
  return ring_ms(m, w.pp, w.dp, w.tp == 1 || !w.consecutive);
}

/// Two that run beside each other until one ends: for how long they do, and what is left of the other.
struct Beside {
  double together, gradients, backward;
};
Beside beside(double gradients, double backward, double slower) {
  const double both = std::min(gradients, backward);
  return {both * slower, gradients - both, backward - both};
}

/// Of the backward pass, what gradients may be summed beside.
double part_beside(const GalvatronLayer& layer, const GalvatronWay& w) {
  if (w.tp == 1) return 1;
  if (layer.is_decoder && w.pp == 1) return 2.0 / 3;
  return 2 * w.tp == w.ranks() ? 0.5 : 1;
}

double layer_ms(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& w, std::int64_t batch) {
  const double samples = double(batch) / w.dp;
  const GalvatronTimes t = galvatron_times(model, layer, w, samples);
  const double m = w.pp == 1 ? 1 : model.microbatches(samples, w);
  return model.rules.more_time * (t.computing * (w.pp + m - 1) / (w.pp * m) + t.gradients + t.gathering);
}

double layer_mib(const GalvatronLayer& layer, const GalvatronWay& w, std::int64_t batch) {
  const double states = 4 * layer.parameters / w.tp * (w.sharded ? 1.0 / w.dp + kShareMore : 1);
  return states + galvatron_activations(layer, w) * double(batch) / w.dp;
}

double other_mib(const GalvatronModel& model, const GalvatronWay& w, std::int64_t batch) {
  return model.other_states + model.other_activations * double(batch) / w.ranks() + kGalvatronContext;
}

/// Of its first version.
class GPipeCosts final : public GalvatronCosts {
 public:
  GPipeCosts(const GalvatronModel& model, std::vector<GalvatronWay> ways, std::int64_t batch)
      : GalvatronCosts{std::move(ways), batch},
        model_{model},
        is_even_{std::count(model.layers.begin(), model.layers.end(), model.layers.front()) ==
                 std::ssize(model.layers)} {}

  std::vector<std::int64_t> stages() const override { return is_even_ ? even_stages() : stages_by_memory(); }
  bool is_as_before(std::size_t stage) const override { return is_even_ && stage > 0; }
  LayerCost layer(std::size_t l, const GalvatronWay& way, std::size_t) const override {
    return galvatron_cost(model_, model_.layers[l], way, batch());
  }
  double change(const GalvatronWay& from, const GalvatronWay& to) const override {
    return galvatron_change(model_, from, to, batch());
  }
  double other_mib(std::size_t stage) const override {
    return is_even_ || stage == 0 ? orrery::other_mib(model_, ways().front(), batch()) : 0;
  }
  double seconds(const GalvatronPlan&, double of_layers) const override { return of_layers; }

 private:
  std::vector<std::int64_t> even_stages() const {
    const int pp = ways().front().pp;
    return std::vector<std::int64_t>(static_cast<std::size_t>(pp), std::ssize(model_.layers) / pp);
  }
  double least_mib(const GalvatronLayer& layer) const {
    double least = layer_mib(layer, ways().front(), batch());
    for (const GalvatronWay& w : ways()) least = std::min(least, layer_mib(layer, w, batch()));
    return least;
  }
  /// Stages from the last one on take layers until they have their share of all memory; the first one, that has the
  /// embedding, what is left.
  std::vector<std::int64_t> stages_by_memory() const {
    const auto pp = static_cast<std::size_t>(ways().front().pp);
    double all = orrery::other_mib(model_, {.dp = ways().front().pp * ways().front().ranks()}, batch());
    for (const GalvatronLayer& layer : model_.layers) all += least_mib(layer);
    std::vector<std::int64_t> stages(pp, 0);
    std::size_t left = model_.layers.size();
    for (std::size_t i = pp; i-- > 1;)
      for (double mib = 0; left > 0; ++stages[i]) {
        const double next = least_mib(model_.layers[left - 1]);
        if (all / double(pp) - mib < kFractionLeft * next) break;
        mib += next, --left;
      }
    stages[0] = static_cast<std::int64_t>(left);
    if (pp > 1 && left == 0) ++stages[0], --stages[1];
    return stages;
  }

  const GalvatronModel& model_;
  bool is_even_;
};

/// Ways of layers for one number of stages.
std::optional<GalvatronPlan> plan_stages(const GalvatronCosts& costs, const GalvatronBudget& budget) {
  const std::vector<GalvatronWay>& ways = costs.ways();
  LayerChoices choices;
  for (const GalvatronWay& a : ways) {
    choices.changes.emplace_back();
    for (const GalvatronWay& b : ways) choices.changes.back().push_back(costs.change(a, b));
  }
  GalvatronPlan out{.batch = costs.batch(), .stages = costs.stages()};
  std::size_t first = 0;
  double seconds = 0;
  std::optional<LayerPlan> p;
  for (std::size_t i = 0; i < out.stages.size(); ++i) {
    const std::size_t end = first + static_cast<std::size_t>(out.stages[i]);
    if (!costs.is_as_before(i)) {
      choices.layers.clear();
      for (std::size_t l = first; l < end; ++l) {
        choices.layers.emplace_back();
        for (const GalvatronWay& w : ways) choices.layers.back().push_back(costs.layer(l, w, i));
      }
      const std::int64_t room = budget.mib - static_cast<std::int64_t>(std::ceil(costs.other_mib(i)));
      if (room <= 0) return {};
      p = plan_layers(choices, room, budget.quantum);
    }
    if (!p) return {};
    seconds += p->cost.seconds;
    for (const std::size_t way : p->ways) out.ways.push_back(ways[way]);
    first = end;
  }
  out.seconds = costs.seconds(out, seconds);
  return out;
}

}  // namespace

std::vector<GalvatronWay> galvatron_ways(int ranks) {
  std::vector<GalvatronWay> all;
  for (int pp = 1; pp <= ranks; pp *= 2)
    for (int tp = 1; tp <= ranks / pp; tp *= 2) {
      const int dp = ranks / pp / tp;
      for (const bool sharded : {false, true})
        for (const bool consecutive : {false, true})
          if ((dp > 1 || !sharded) && ((dp > 1 && tp > 1) || !consecutive))
            all.push_back({pp, tp, dp, consecutive, sharded});
    }
  return all;
}

GalvatronTimes galvatron_times(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& w,
                               double samples) {
  const GalvatronRules& rules = model.rules;
  const double forward = layer.forward * samples / w.tp;
  const double backward = (kBackwardOfForward + (w.again ? rules.again : 0)) * forward;
  const double sums = (layer.is_decoder ? 6 : 4) * (w.again ? kSumsAgain : 1);
  const double parts =
      ring_of_parts(model, w) * 2 * (w.tp - 1) / w.tp * samples * layer.elements * sums * rules.bytes / kGalvatronMiB;
  const double gradients =
      ring_of_replicas(model, w) * 2 * (w.dp - 1) / w.dp * layer.parameters / w.tp * rules.bytes / sizeof(float);
  GalvatronTimes t{forward + backward + parts, 0, w.sharded ? gradients / 2 : 0};
  if (w.dp == 1) return t;
  const double part = part_beside(layer, w);
  const Beside b = beside(gradients, part * backward, rules.beside);
  const bool last_alone = rules.is_last_stage_alone && w.pp > 1 && w.tp == 1 && !w.sharded;
  t.gradients = b.together + b.backward + b.gradients / (last_alone ? w.pp : 1) - part * backward + model.overhead;
  return t;
}

double galvatron_change(const GalvatronModel& model, const GalvatronWay& from, const GalvatronWay& to,
                        std::int64_t batch) {
  const auto differs = [](const GalvatronWay& a, const GalvatronWay& b) {
    return a.tp > 1 && a.dp > 1 && b.tp > 1 && b.dp > 1 && a.consecutive != b.consecutive;
  };
  if (from.tp == to.tp && !differs(from, to)) {
    if (from.again == to.again) return from.sharded && !to.sharded ? model.rules.after_sharded : 0;
    return from.sharded == to.sharded && to.again ? model.rules.before_again : 0;
  }
  if (to.tp < from.tp && (from.ranks() != kRanksOfGathered || !differs(from, to))) return 0;
  const double mib = kBetweenLayers * double(batch) / to.dp * (to.tp - 1) / to.tp;
  return mib * ring_of_parts(model, to) / 1000;
}

double galvatron_activations(const GalvatronLayer& layer, const GalvatronWay& way) {
  return way.again ? layer.input : layer.activations[static_cast<std::size_t>(std::countr_zero(unsigned(way.tp)))];
}

LayerCost galvatron_cost(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& way,
                         std::int64_t batch) {
  return {layer_ms(model, layer, way, batch) / 1000,
          static_cast<std::int64_t>(std::ceil(layer_mib(layer, way, batch)))};
}

std::optional<GalvatronPlan> plan_galvatron(const GalvatronCostsOf& costs_of, std::span<const GalvatronWay> ways,
                                            const GalvatronBudget& budget, std::int64_t batch) {
  std::optional<GalvatronPlan> best;
  for (std::size_t i = 0; i < ways.size();) {
    std::vector<GalvatronWay> same;
    for (const int pp = ways[i].pp; i < ways.size() && ways[i].pp == pp; ++i) same.push_back(ways[i]);
    const std::optional<GalvatronPlan> p = plan_stages(*costs_of(std::move(same), batch), budget);
    if (p && (!best || p->seconds < best->seconds)) best = p;
  }
  return best;
}

std::optional<GalvatronPlan> search_galvatron(const GalvatronCostsOf& costs_of, std::span<const GalvatronWay> ways,
                                              const GalvatronBudget& budget, const GalvatronBatches& batches) {
  std::optional<GalvatronPlan> best;
  for (std::int64_t batch = batches.step; batch <= batches.most; batch += batches.step) {
    const std::optional<GalvatronPlan> p = plan_galvatron(costs_of, ways, budget, batch);
    if (!p) return best;
    if (!best || p->samples_per_second() > best->samples_per_second() * (1 + kEqually)) best = p;
  }
  return best;
}

GalvatronCostsOf galvatron_costs(const GalvatronModel& model) {
  return [&](std::vector<GalvatronWay> ways, std::int64_t batch) {
    return std::make_unique<GPipeCosts>(model, std::move(ways), batch);
  };
}

}  // namespace orrery
