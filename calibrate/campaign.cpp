// SPDX-License-Identifier: Apache-2.0
#include "calibrate/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace orrery {
namespace {

constexpr int kFewestRounds = 3;
constexpr double kGoodEnough = 0.004;  // relative error of the medians at which measuring ends
constexpr int kProbeRuns = 3;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Bench probe_bench() {
  Random random{0};
  PlanBuilder builder{"drift probe"};
  builder.begin_class("all", {});
  OperandMaker maker{builder, random};
  maker.add(Gemm{.m = 256, .n = 256, .k = 512, .transpose_b = true});
  return {builder.take(&host_workspaces()), {}, {}, 1};
}

}  // namespace

DriftProbe::DriftProbe() : run_{std::make_unique<BenchRun>(probe_bench())} {}

void DriftProbe::sample() {
  BenchRun& run = *run_;
  const std::size_t before = run.totals().size();
  run.run(1, kProbeRuns);
  samples_.push_back(*std::min_element(run.totals().begin() + static_cast<std::ptrdiff_t>(before), run.totals().end()));
}

double DriftProbe::drift() const {
  const RobustSummary s = summarise(samples_);
  return s.median > 0 ? s.deviation / s.median : 0;
}

double DriftProbe::worst() const {
  const double middle = median(samples_);
  double worst = 0;
  for (const double s : samples_) worst = std::max(worst, std::abs(s / middle - 1));
  return worst;
}

bool Campaign::is_enough(int rounds) const {
  if (rounds < kFewestRounds) return false;
  return std::all_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->relative_error() <= kGoodEnough; });
}

bool Campaign::measure(Seconds budget, Random& random, const CalibrateCallback& progress) {
  const auto start = Clock::now();
  std::vector<std::size_t> order(runs_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; !is_enough(round); ++round) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::size_t i : order) {
      const double spent = seconds_since(start) / budget.base();
      if (!progress({"measuring", std::min(1.0, spent), probe_.drift()})) return false;
      if (spent >= 1 && round >= kFewestRounds) return true;
      probe_.sample();
      runs_[i]->run(round == 0 ? 2 : 1, 2);
    }
  }
  return true;
}

}  // namespace orrery
