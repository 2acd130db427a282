// SPDX-License-Identifier: Apache-2.0
#include "sim/app/galvatron_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr double kBesideEachOther = 1.3;  // gradients and products
constexpr double kMoreTime = 1.1;
constexpr double kBackwardOfForward = 2;
constexpr double kShareMore = 0.025;    // of all states, that sharded ones take beside their share
constexpr double kContext = 1024;       // MiB of each rank
constexpr double kBetweenLayers = 2;    // MiB per sample to be gathered between ways, of any model
constexpr double kAfterSharded = 1e-4;  // s, so that sharded layers stand behind others of their kind
constexpr double kFractionLeft = 0.5;   // of a layer, that a stage has to have room for
constexpr std::int64_t kBatchStep = 8;
constexpr double kEqually = 1e-9;
constexpr double kMiB = 1024 * 1024;

/// ms per MiB. Groups of all ranks of a stage are neighbours.
double ring_ms(const GalvatronModel& m, int pp, int ranks, bool consecutive) {
  if (ranks == 1) return 0;
  for (const MeasuredRing& r : m.rings)
    if (r.pp == pp && r.ranks == ranks && r.consecutive == consecutive) return r.ms;
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
Beside beside(double gradients, double backward) {
  const double both = std::min(gradients, backward);
  return {both * kBesideEachOther, gradients - both, backward - both};
}

/// Of the backward pass, what gradients may be summed beside.
double part_beside(const GalvatronLayer& layer, const GalvatronWay& w) {
  if (w.tp == 1) return 1;
  if (layer.is_decoder && w.pp == 1) return 2.0 / 3;
  return 2 * w.tp == w.ranks() ? 0.5 : 1;
}

double layer_ms(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& w, std::int64_t batch) {
  const double samples = double(batch) / w.dp, sums = layer.is_decoder ? 6 : 4;
  const double forward = layer.forward * samples / w.tp, backward = kBackwardOfForward * forward;
  const double parts =
      ring_of_parts(model, w) * 2 * (w.tp - 1) / w.tp * samples * layer.elements * sums * sizeof(float) / kMiB;
  const double computing = forward + backward + parts;
  const double gradients = ring_of_replicas(model, w) * 2 * (w.dp - 1) / w.dp * layer.parameters / w.tp;
  double communication = 0;
  if (w.dp > 1) {
    const double part = part_beside(layer, w);
    const Beside b = beside(gradients, part * backward);
    const bool last_alone = w.pp > 1 && w.tp == 1 && !w.sharded;  // gradients of other stages are summed while it waits
    communication = b.together + b.backward + b.gradients / (last_alone ? w.pp : 1) - part * backward + model.overhead;
  }
  const double m = w.pp == 1 ? 1 : model.microbatches(samples, w);
  const double piped = computing * (w.pp + m - 1) / (w.pp * m) + communication;
  return kMoreTime * (piped + (w.sharded ? gradients / 2 : 0));
}

double layer_mib(const GalvatronLayer& layer, const GalvatronWay& w, std::int64_t batch) {
  const double states = 4 * layer.parameters / w.tp * (w.sharded ? 1.0 / w.dp + kShareMore : 1);
  return states + layer.activations[static_cast<std::size_t>(std::countr_zero(unsigned(w.tp)))] * double(batch) / w.dp;
}

double other_mib(const GalvatronModel& model, const GalvatronWay& w, std::int64_t batch) {
  return model.other_states + model.other_activations * double(batch) / w.ranks() + kContext;
}

/// Seconds between layers of one way and of another: what has to be gathered for the later one.
double change_seconds(const GalvatronModel& model, const GalvatronWay& from, const GalvatronWay& to,
                      std::int64_t batch) {
  const auto differs = [](const GalvatronWay& a, const GalvatronWay& b) {
    return a.tp > 1 && a.dp > 1 && b.tp > 1 && b.dp > 1 && a.consecutive != b.consecutive;
  };
  if (from.tp == to.tp && !differs(from, to)) return from.sharded && !to.sharded ? kAfterSharded : 0;
  if (to.tp < from.tp && !differs(from, to)) return 0;
  const double mib = kBetweenLayers * double(batch) / to.dp * (to.tp - 1) / to.tp;
  return mib * ring_of_parts(model, to) / 1000;
}

/// Ways of one number of stages.
class StagePlanner {
 public:
  StagePlanner(const GalvatronModel& model, std::vector<GalvatronWay> ways, std::int64_t batch)
      : model_{model}, ways_{std::move(ways)}, batch_{batch} {
    for (const GalvatronWay& a : ways_) {
      changes_.emplace_back();
      for (const GalvatronWay& b : ways_) changes_.back().push_back(change_seconds(model, a, b, batch));
    }
  }

  std::optional<GalvatronPlan> plan(const GalvatronBudget& budget) const {
    const auto other = static_cast<std::int64_t>(std::ceil(other_mib(model_, ways_.front(), batch_)));
    const bool is_even =
        std::count(model_.layers.begin(), model_.layers.end(), model_.layers.front()) == std::ssize(model_.layers);
    GalvatronPlan out{.batch = batch_, .stages = is_even ? even_stages() : stages_by_memory()};
    std::size_t first = 0;
    std::optional<LayerPlan> p;
    for (std::size_t i = 0; i < out.stages.size(); ++i) {
      const auto n = static_cast<std::size_t>(out.stages[i]);
      if (!is_even || i == 0)
        p = plan_layers(choices(first, n), budget.mib - (is_even || i == 0 ? other : 0), budget.quantum);
      if (!p || budget.mib <= other) return {};
      out.seconds += p->cost.seconds;
      for (const std::size_t way : p->ways) out.ways.push_back(ways_[way]);
      first += n;
    }
    return out;
  }

 private:
  LayerChoices choices(std::size_t first, std::size_t n) const {
    LayerChoices c{{}, changes_};
    for (std::size_t l = first; l < first + n; ++l) {
      c.layers.emplace_back();
      for (const GalvatronWay& w : ways_)
        c.layers.back().push_back(galvatron_cost(model_, model_.layers[l], w, batch_));
    }
    return c;
  }
  std::vector<std::int64_t> even_stages() const {
    const int pp = ways_.front().pp;
    return std::vector<std::int64_t>(static_cast<std::size_t>(pp), std::ssize(model_.layers) / pp);
  }
  double least_mib(const GalvatronLayer& layer) const {
    double least = layer_mib(layer, ways_.front(), batch_);
    for (const GalvatronWay& w : ways_) least = std::min(least, layer_mib(layer, w, batch_));
    return least;
  }
  /// Stages from the last one on take layers until they have their share of all memory; the first one, that has the
  /// embedding, what is left.
  std::vector<std::int64_t> stages_by_memory() const {
    const auto pp = static_cast<std::size_t>(ways_.front().pp);
    const double other = other_mib(model_, {.dp = ways_.front().pp * ways_.front().ranks()}, batch_);
    double all = other;
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
  std::vector<GalvatronWay> ways_;
  std::int64_t batch_;
  std::vector<std::vector<double>> changes_;
};

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

LayerCost galvatron_cost(const GalvatronModel& model, const GalvatronLayer& layer, const GalvatronWay& way,
                         std::int64_t batch) {
  return {layer_ms(model, layer, way, batch) / 1000,
          static_cast<std::int64_t>(std::ceil(layer_mib(layer, way, batch)))};
}

std::optional<GalvatronPlan> plan_galvatron(const GalvatronModel& model, std::span<const GalvatronWay> ways,
                                            const GalvatronBudget& budget, std::int64_t batch) {
  std::optional<GalvatronPlan> best;
  for (std::size_t i = 0; i < ways.size();) {
    std::vector<GalvatronWay> same;
    for (const int pp = ways[i].pp; i < ways.size() && ways[i].pp == pp; ++i) same.push_back(ways[i]);
    const std::optional<GalvatronPlan> p = StagePlanner{model, std::move(same), batch}.plan(budget);
    if (p && (!best || p->seconds < best->seconds)) best = p;
  }
  return best;
}

std::optional<GalvatronPlan> search_galvatron(const GalvatronModel& model, std::span<const GalvatronWay> ways,
                                              const GalvatronBudget& budget) {
  std::optional<GalvatronPlan> best;
  for (std::int64_t batch = kBatchStep;; batch += kBatchStep) {
    const std::optional<GalvatronPlan> p = plan_galvatron(model, ways, budget, batch);
    if (!p) return best;
    if (!best || p->samples_per_second() > best->samples_per_second() * (1 + kEqually)) best = p;
  }
}

}  // namespace orrery
