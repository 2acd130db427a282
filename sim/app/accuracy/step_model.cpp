// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/step_model.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr std::int64_t kFewLayers = 1, kMoreLayers = 2;
constexpr std::int64_t kFewStages = 2, kMoreStages = 3;

}  // namespace

const Plan& StepModel::plan(const Size& size) {
  const auto known = plans_.find(size);
  if (known != plans_.end()) return known->second;
  TrainOptions train = step_.train;
  ParallelOptions parallel = step_.parallel;
  train.microbatches = size.microbatches;
  train.recompute = size.recompute;
  if (size.recompute == Recompute::None) train.recompute_parts = TrainOptions{}.recompute_parts;
  train.batch = size.microbatches * step_.mesh.samples * step_.mesh.replicas;
  parallel.mesh = step_.mesh.text(size.stages);
  const Model model = step_.network.model(size.layers * size.stages * step_.mesh.chunks);
  return plans_.emplace(size, lower_train_step(model, train, parallel, nullptr)).first->second;
}

const StepModel::Result& StepModel::simulated(const Size& size) {
  const auto [it, is_new] = known_.try_emplace(size);
  if (!is_new) return it->second;
  Result& r = it->second;
  Engine engine{*machine_->cost, *machine_->resources, {.record = Record::Totals}};
  r.seconds = double(engine.execute(plan(size), {}).end_ps) * 1e-12;
  const std::int64_t last = (size.stages - 1) * step_.mesh.inner_ranks;
  for (const Peak& p : engine.take().peaks) {
    if (p.tier != Tier::Device) continue;
    const auto rank = static_cast<std::int64_t>(p.rank.index());
    if (rank < step_.mesh.inner_ranks) r.first = std::max(r.first, double(p.bytes));
    if (rank >= last) r.last = std::max(r.last, double(p.bytes));
  }
  return r;
}

/// Linear in the layers of a part.
StepModel::Result StepModel::with_layers(double layers, std::int64_t microbatches, std::int64_t stages) {
  const std::int64_t few = step_.parallel.data.kind == DataKind::Zero3 ? kMoreLayers : kFewLayers;
  const std::int64_t more = few == kMoreLayers ? 2 * kMoreLayers : kMoreLayers;
  const auto whole = static_cast<std::int64_t>(layers);
  if (layers == double(whole) && whole <= more) return simulated({whole, microbatches, stages, recompute_});
  const Result a = simulated({few, microbatches, stages, recompute_}),
               b = simulated({more, microbatches, stages, recompute_});
  const double steps = (layers - double(few)) / double(more - few);
  return {a.seconds + steps * (b.seconds - a.seconds), a.first + steps * (b.first - a.first),
          a.last + steps * (b.last - a.last)};
}

/// Interleaved schedules take microbatches in rounds of as many as there are stages.
std::int64_t StepModel::least_microbatches(std::int64_t stages) const {
  if (step_.mesh.chunks > 1) return 2 * stages;
  return stages > 1 ? stages + 1 : 2;
}

PredictedStep StepModel::predict(const Machine& machine) {
  machine_ = &machine;
  known_.clear();
  recompute_ = step_.train.recompute;
  const PredictedStep all = predict_all();
  if (step_.recomputed >= 1 || recompute_ == Recompute::None) return all;
  recompute_ = Recompute::None;
  const PredictedStep none = predict_all();
  return {none.seconds + step_.recomputed * (all.seconds - none.seconds),
          none.peak_bytes + step_.recomputed * (all.peak_bytes - none.peak_bytes)};
}

PredictedStep StepModel::predict_all() {
  const RowMesh& mesh = step_.mesh;
  const double parts = double(mesh.stages * mesh.chunks);
  const double layers = std::ceil(double(step_.network.layers) / parts - 1e-9);
  const std::int64_t m = step_.train.microbatches, p = std::min(mesh.stages, kFewStages);
  const std::int64_t round = mesh.chunks > 1 ? p : 1;
  const std::int64_t few = mesh.stages <= p ? std::min(m, least_microbatches(p)) : least_microbatches(p);
  const Result base = with_layers(layers, few, p);
  Result out = base;
  if (m != few) {
    const Result more = with_layers(layers, few + round, p);
    out.seconds += double(m - few) / double(round) * (more.seconds - base.seconds);
    if (m > few) out.last = std::max(out.last, more.last);
  }
  if (mesh.stages > p) {
    const std::int64_t q = kMoreStages, passes = least_microbatches(q);
    const Result longer = with_layers(layers, passes, q);
    const Result more = with_layers(layers, few + round, p);
    const double same = base.seconds + double(passes - few) / double(round) * (more.seconds - base.seconds);
    const double mean = double(step_.network.layers) / parts / layers;
    out.seconds += double(mesh.stages - p) * (longer.seconds - same) * mean;
    out.first += double(std::min(mesh.stages, m) - p) * (longer.first - base.first);
    out.last = longer.last;
  }
  return {out.seconds, std::max(out.first, out.last)};
}

}  // namespace orrery
