// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/step_model.hpp"

#include <algorithm>
#include <cmath>

#include "sim/engine/memory_model.hpp"

namespace orrery {
namespace {

// So many that what a host cannot keep up with, beside a loss that it can, is so in longer steps, too.
constexpr std::int64_t kFewLayers = 12, kMoreLayers = 24;
constexpr double kMostPasses = 2000;  // of a layer over a microbatch: steps with fewer are simulated whole
constexpr std::int64_t kFewStages = 2, kMoreStages = 3;

/// a + x·(b − a)
StageBytes between(const StageBytes& a, const StageBytes& b, double x) {
  const auto at = [&](double StageBytes::*part) { return a.*part + x * (b.*part - a.*part); };
  return {at(&StageBytes::peak), at(&StageBytes::kept), at(&StageBytes::update), at(&StageBytes::moments)};
}
PredictedStep between(const PredictedStep& a, const PredictedStep& b, double x) {
  return {a.seconds + x * (b.seconds - a.seconds), between(a.first, b.first, x), between(a.last, b.last, x)};
}

double kept_bytes(const Plan& plan, ClassId c) {
  double bytes = 0;
  for (const TensorId t : resident_tensors(plan, c)) bytes += plan.size(t).base();
  return bytes;
}

/// What stays, with what an update copies of the parameters that the class updates.
StageBytes stage_bytes(const Plan& plan, ClassId c, const PublishedStep& step) {
  StageBytes s{.kept = kept_bytes(plan, c)};
  s.update = s.kept;
  for (const Op& op : plan.ops_of(plan.classes[c.index()])) {
    const auto* a = std::get_if<AdamW>(&plan.work(op));
    if (!a) continue;
    s.moments += size_of(a->moments(), 2 * a->elements).base();
    if (step.train.optimizer.widen_gradients) s.update += size_of(DType::F32, a->elements).base();
    if (step.rounds_weights) s.update += size_of(a->dtype, a->elements).base();
  }
  return s;
}

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
  train.optimizer.widen_gradients = false;
  parallel.mesh = step_.mesh.text(size.stages);
  const Model model = step_.network.model(size.layers * size.stages * step_.mesh.chunks);
  Plan plan = lower_train_step(model, train, parallel, nullptr);
  return plans_.emplace(size, as_it_ran(std::move(plan), step_)).first->second;
}

const PredictedStep& StepModel::simulated(Question& q, const Size& size) {
  const auto [it, is_new] = q.known.try_emplace(size);
  if (!is_new) return it->second;
  const bool of_memory = q.asked == Asked::TimeAndMemory;
  Engine engine{*q.machine.cost, *q.machine.resources, {.record = Record::Totals, .track_memory = of_memory}};
  it->second.seconds = double(engine.execute(plan(size), {}).end_ps) * 1e-12;
  if (of_memory) add_memory(it->second, size, engine.take().peaks);
  return it->second;
}

void StepModel::add_memory(PredictedStep& r, const Size& size, const std::vector<Peak>& peaks) {
  const Plan& p = plan(size);
  r.first = stage_bytes(p, ClassId{std::size_t{0}}, step_);
  r.last = stage_bytes(p, ClassId{p.classes.size() - 1}, step_);
  const std::int64_t last = (size.stages - 1) * step_.mesh.inner_ranks;
  for (const Peak& peak : peaks) {
    if (peak.tier != Tier::Device) continue;
    const auto rank = static_cast<std::int64_t>(peak.rank.index());
    if (rank < step_.mesh.inner_ranks) r.first.peak = std::max(r.first.peak, double(peak.bytes));
    if (rank >= last) r.last.peak = std::max(r.last.peak, double(peak.bytes));
  }
}

/// Linear in the layers of a part.
PredictedStep StepModel::with_layers(Question& q, double layers, std::int64_t microbatches, std::int64_t stages) {
  const auto whole = static_cast<std::int64_t>(layers);
  if (layers == double(whole) && whole <= kMoreLayers) return simulated(q, {whole, microbatches, stages, q.recompute});
  const PredictedStep a = simulated(q, {kFewLayers, microbatches, stages, q.recompute}),
                      b = simulated(q, {kMoreLayers, microbatches, stages, q.recompute});
  return between(a, b, (layers - double(kFewLayers)) / double(kMoreLayers - kFewLayers));
}

/// Interleaved schedules take microbatches in rounds of as many as there are stages.
std::int64_t StepModel::least_microbatches(std::int64_t stages) const {
  if (step_.mesh.chunks > 1) return 2 * stages;
  return stages > 1 ? stages + 1 : 2;
}

PredictedStep StepModel::predict(const Machine& machine) { return predict_on(machine, Asked::TimeAndMemory); }

double StepModel::seconds(const Machine& machine) { return predict_on(machine, Asked::Time).seconds; }

PredictedStep StepModel::predict_on(const Machine& machine, Asked asked) {
  Question q{machine, asked, step_.train.recompute};
  const PredictedStep all = predict_all(q);
  if (step_.recomputed >= 1 || q.recompute == Recompute::None) return all;
  q.recompute = Recompute::None;
  return between(predict_all(q), all, step_.recomputed);
}

PredictedStep StepModel::predict_all(Question& q) {
  const RowMesh& mesh = step_.mesh;
  const double parts = double(mesh.stages * mesh.chunks);
  const double layers = std::ceil(double(step_.network.layers) / parts - 1e-9);
  const std::int64_t m = step_.train.microbatches;
  if (layers * parts * double(m) <= kMostPasses)
    return simulated(q, {static_cast<std::int64_t>(layers), m, mesh.stages, q.recompute});
  const std::int64_t p = std::min(mesh.stages, kFewStages);
  const std::int64_t round = mesh.chunks > 1 ? p : 1;
  const std::int64_t few = mesh.stages <= p ? std::min(m, least_microbatches(p)) : least_microbatches(p);
  const PredictedStep base = with_layers(q, layers, few, p);
  PredictedStep out = base;
  if (m != few) {
    const PredictedStep more = with_layers(q, layers, few + round, p);
    out.seconds += double(m - few) / double(round) * (more.seconds - base.seconds);
    if (m > few && more.last.peak > out.last.peak) out.last = more.last;
  }
  if (mesh.stages > p) {
    const std::int64_t passes = least_microbatches(kMoreStages);
    const PredictedStep longer = with_layers(q, layers, passes, kMoreStages);
    const PredictedStep more = with_layers(q, layers, few + round, p);
    const double same = base.seconds + double(passes - few) / double(round) * (more.seconds - base.seconds);
    const double mean = double(step_.network.layers) / parts / layers;
    out.seconds += double(mesh.stages - p) * (longer.seconds - same) * mean;
    out.first.peak += double(std::min(mesh.stages, m) - p) * (longer.first.peak - base.first.peak);
    out.last = longer.last;
  }
  return out;
}

}  // namespace orrery
