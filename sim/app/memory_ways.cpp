// SPDX-License-Identifier: Apache-2.0
#include "sim/app/memory_ways.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "sim/app/largest.hpp"
#include "sim/app/tier_ways.hpp"
#include "sim/model/load.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kMostBatch = 1 << 14, kMostSequence = 1 << 23, kSequenceStep = 128;

constexpr std::string_view kRecomputed[] = {"selective", "rotor"};

/// What activations may take when all else lies on the device as it does without any: nothing where that is too much.
std::optional<double> activation_budget(const Report& full, double device_memory) {
  constexpr double kPart = 0.98;  // of the device: blocks around the activations have some of their own
  double beside = 0;
  for (const MemoryReport::Owner& o : full.memory.by_role)
    if (o.role != "activation") beside += double(o.bytes);
  const double left = kPart * device_memory - beside;
  return left > 0 ? std::optional{left} : std::nullopt;
}

class Trials {
 public:
  Trials(const Reproducer& r, TrainingRequest q, const MemoryWay& way) : r_{r}, q_{std::move(q)}, way_{way} {}

  /// Without recomputation, and with all of it; where only the latter fits, what lies between them.
  FitRow run() {
    FitRow row{way_.name, {}, {}, {}};
    row.trials.push_back(one("none"));
    if (!way_.recomputes) row.trials.push_back(one("full"));
    if (!row.trials[0].fits() && row.trials.size() > 1 && row.trials[1].fits())
      for (const std::string_view recompute : kRecomputed) between(row, recompute);
    row.best = *std::min_element(row.trials.begin(), row.trials.end(),
                                 [](const TrainingTrial& a, const TrainingTrial& b) { return a.is_better_than(b); });
    return row;
  }

  TrainingTrial one(const std::string& recompute) {
    Report report;
    const TrainingTrial t = predict_training(r_, q_, way_.strategy, recompute, &report);
    if (recompute == "full" && t.is_open()) full_ = report;
    return t;
  }

 private:
  void between(FitRow& row, std::string_view recompute) {
    if (recompute != "rotor") {
      row.trials.push_back(one(std::string{recompute}));
    } else if (way_.budgeted && full_) {
      if (const auto budget = activation_budget(*full_, q_.room.device))
        row.trials.push_back(one(fmt::format("rotor, activation_budget: {:.0f} B", *budget)));
    }
  }

  const Reproducer& r_;
  TrainingRequest q_;
  const MemoryWay& way_;
  std::optional<Report> full_;
};

TrainingRequest grown(TrainingRequest q, FitGrowth growth, std::int64_t n, const std::vector<NetworkSize>& sizes) {
  if (growth == FitGrowth::Batch) q.batch = n * q.ranks * q.microbatches;
  if (growth == FitGrowth::Sequence) q.sequence = n * kSequenceStep;
  if (growth == FitGrowth::Model) q.model = with_size(q.model, sizes[static_cast<std::size_t>(n - 1)]);
  q.model = with_positions(q.model, q.sequence);
  return q;
}

}  // namespace

std::vector<MemoryWay> memory_ways(std::int64_t ranks, const MemoryRoom& room) {
  std::vector<MemoryWay> out;
  if (ranks == 1) out.push_back({"single", "single: {}"});
  if (ranks > 1) {
    out.push_back({"ddp", fmt::format("parallel: {{mesh: dp{}}}", ranks)});
    for (const char* kind : {"zero1", "zero2", "zero3"})
      out.push_back({kind, fmt::format("parallel: {{mesh: dp{}, data: {{kind: {}}}}}", ranks, kind)});
  }
  for (const TierWay& way : tier_ways(ranks > 1, room)) {
    const std::string parallel = fmt::format("mesh: dp{}, data: {{kind: {}}}", ranks, way.data);
    out.push_back({way.name, way.entry(ranks > 1 ? parallel : ""), !way.chunked, way.recomputes});
  }
  return out;
}

FitRow fit(const Reproducer& reproducer, const TrainingRequest& request, const MemoryWay& way) {
  return Trials{reproducer, request, way}.run();
}

FitRow fit_largest(const Reproducer& reproducer, const TrainingRequest& request, const MemoryWay& way,
                   FitGrowth growth) {
  const std::vector<NetworkSize> sizes = network_sizes();
  const std::int64_t most = growth == FitGrowth::Batch      ? kMostBatch
                            : growth == FitGrowth::Sequence ? kMostSequence / kSequenceStep
                                                            : static_cast<std::int64_t>(sizes.size());
  std::string next;
  const auto fits = [&](std::int64_t n) {
    const std::string limit =
        Trials{reproducer, grown(request, growth, n, sizes), way}.one(way.recomputes ? "none" : "full").limit;
    if (!limit.empty()) next = limit;
    return limit.empty();
  };
  const std::int64_t good = largest_passing(most, fits, growth == FitGrowth::Model ? 0 : 64);
  const TrainingRequest at = grown(request, growth, std::max<std::int64_t>(1, good), sizes);
  FitRow row = fit(reproducer, at, way);
  row.largest.emplace().next = next;
  if (good == 0) return row;
  row.largest->value = growth == FitGrowth::Batch      ? at.batch / at.ranks / at.microbatches
                       : growth == FitGrowth::Sequence ? at.sequence
                                                       : model_from_config(at.model, "scaled").parameter_count();
  if (growth == FitGrowth::Model) row.largest->size = sizes[static_cast<std::size_t>(good - 1)];
  return row;
}

}  // namespace orrery
