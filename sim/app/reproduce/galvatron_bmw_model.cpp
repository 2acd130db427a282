// SPDX-License-Identifier: Apache-2.0
#include "sim/app/reproduce/galvatron_bmw_model.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

namespace orrery {
namespace {

constexpr double kSharedMore = 0.003;  // of all states, that shared ones take beside their share

class FlushCosts final : public GalvatronCosts {
 public:
  FlushCosts(const BmwModel& model, std::vector<GalvatronWay> ways, std::int64_t batch)
      : GalvatronCosts{std::move(ways), batch},
        model_{model},
        stage_samples_{batch / this->ways().front().ranks()},
        microbatches_{bmw_microbatches(model, pp(), stage_samples_)} {
    const auto& all = this->ways();
    has_again_ = std::any_of(all.begin(), all.end(), [](const GalvatronWay& w) { return w.again; });
  }

  std::vector<std::int64_t> stages() const override {
    const std::int64_t layers = std::ssize(model_.layers.layers);
    std::vector<std::int64_t> out(static_cast<std::size_t>(pp()), layers / pp());
    out.back() += layers % pp();
    return out;
  }
  bool is_as_before(std::size_t) const override { return false; }
  LayerCost layer(std::size_t l, const GalvatronWay& w, std::size_t stage) const override {
    const GalvatronLayer& layer = model_.layers.layers[l];
    const double held =
        4 * layer.parameters / w.tp * states_held(w) + galvatron_activations(layer, w) * double(kept(stage)) * w.tp;
    return {times(layer, w).all / 1000, static_cast<std::int64_t>(std::ceil(held))};
  }
  double change(const GalvatronWay& from, const GalvatronWay& to) const override {
    return galvatron_change(model_.layers, from, to, batch());
  }
  double other_mib(std::size_t stage) const override {
    const GalvatronModel& m = model_.layers;
    const double share = weights_kept(ways().front().ranks());
    const std::int64_t one = microbatches_.front();
    const auto of = [&](const GalvatronEnds& e, std::int64_t samples) {
      return e.states * share + e.activations * double(samples);
    };
    double mib = kGalvatronContext;
    if (has_again_) mib += std::floor(m.layers.front().activations[0] * double(one));
    if (pp() == 1) return mib + of({m.other_states, m.other_activations}, stage_samples_);
    if (stage == 0) mib += of(model_.first, kept(0));
    if (stage + 1 == static_cast<std::size_t>(pp())) mib += of(model_.last, one);
    return mib;
  }
  double seconds(const GalvatronPlan& plan, double) const override {
    double slowest = 0, before = 0, sums = 0;
    std::size_t first = 0;
    for (const std::int64_t n : plan.stages) {
      Times stage;
      for (std::size_t l = first; l < first + static_cast<std::size_t>(n); ++l) {
        const Times t = times(model_.layers.layers[l], plan.ways[l]);
        stage.all += t.all, stage.without_gradients += t.without_gradients;
      }
      first += static_cast<std::size_t>(n);
      slowest = std::max(slowest, stage.without_gradients);
      before += stage.without_gradients;
      sums = std::max(sums, stage.all - before);
    }
    return (slowest * double(std::ssize(microbatches_) - 1 + pp()) + sums) / 1000;
  }

 private:
  struct Times {
    double all = 0, without_gradients = 0;  // ms of one microbatch
  };

  int pp() const { return ways().front().pp; }
  Times times(const GalvatronLayer& layer, const GalvatronWay& w) const {
    const double samples = double(batch()) / double(microbatches_.size()) / w.dp;
    const GalvatronTimes t = galvatron_times(model_.layers, layer, w, samples);
    const double hops = pp() * 2 * samples * layer.elements * model_.layers.rules.bytes / kGalvatronMiB *
                        model_.hops[static_cast<std::size_t>(std::countr_zero(unsigned(pp())))];
    const double without = t.computing + t.gathering + hops / double(model_.layers.layers.size());
    return {without + t.gradients, without};
  }
  /// Samples whose activations a stage holds at once, of a replica that splits no matrices.
  std::int64_t kept(std::size_t stage) const {
    const auto n = std::min(microbatches_.size(), static_cast<std::size_t>(pp()) - stage);
    return std::accumulate(microbatches_.begin(), microbatches_.begin() + std::ptrdiff_t(n), std::int64_t{0});
  }
  bool accumulates() const { return microbatches_.size() > 1; }
  /// Of all states, what a rank holds where replicas share all but weights.
  double weights_kept(int replicas) const {
    const double whole = accumulates() ? 2.0 / 8 : 1.0 / 8;
    return (1 - whole) * (1.0 / replicas + kSharedMore) + whole;
  }
  double states_held(const GalvatronWay& w) const {
    if (w.dp == 1) return 1;
    if (!w.sharded) return weights_kept(w.dp);
    const double whole = accumulates() ? 1.0 / 8 : 0;
    return (1 - whole) * (1.0 / w.dp + kSharedMore) + whole;
  }

  const BmwModel& model_;
  std::int64_t stage_samples_;
  std::vector<std::int64_t> microbatches_;
  bool has_again_ = false;
};

}  // namespace

std::vector<std::int64_t> bmw_microbatches(const BmwModel& model, int pp, std::int64_t samples) {
  const std::int64_t wanted =
      pp == 1 ? 1 : std::clamp((samples + model.samples - 1) / model.samples, std::int64_t{1}, model.microbatches);
  const std::int64_t each = (samples + wanted - 1) / wanted;
  std::vector<std::int64_t> out;
  for (std::int64_t left = samples; left > 0; left -= each) out.push_back(std::min(each, left));
  return out;
}

GalvatronCostsOf bmw_costs(const BmwModel& model) {
  return [&](std::vector<GalvatronWay> ways, std::int64_t batch) {
    return std::make_unique<FlushCosts>(model, std::move(ways), batch);
  };
}

std::vector<GalvatronWay> with_layers_again(std::vector<GalvatronWay> ways) {
  std::vector<GalvatronWay> out;
  for (std::size_t i = 0; i < ways.size();) {
    const std::size_t first = i;
    while (i < ways.size() && ways[i].pp == ways[first].pp) ++i;
    for (const bool again : {false, true})
      for (std::size_t w = first; w < i; ++w) {
        out.push_back(ways[w]);
        out.back().again = again;
      }
  }
  return out;
}

}  // namespace orrery
