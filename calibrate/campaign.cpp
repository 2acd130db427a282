// SPDX-License-Identifier: Apache-2.0
#include "calibrate/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace orrery {
namespace {

constexpr int kFewestRounds = 3;
constexpr int kVisitsPerSample = 4;               // between two samples of the probe
constexpr double kMiddleOfNormal = 0.6745;        // half of a normal distribution lies within so many σ
constexpr double kGoodEnough = 0.004;             // relative error of the medians at which measuring ends
constexpr std::int64_t kProbeElements = 1 << 22;  // of the pass over memory
constexpr double kDisturbed = 1.1;                // times the middle one

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Bench probe_bench() {
  Random random{0};
  PlanBuilder builder{"drift probe"};
  builder.begin_class("all", {});
  OperandMaker maker{builder, random};
  maker.add(Gemm{.m = 256, .n = 256, .k = 512, .transpose_b = true});
  maker.add(Copy{size_of(DType::F32, kProbeElements)});
  return {builder.take(&host_workspaces()), {}, {}, 1};
}

}  // namespace

DriftProbe::DriftProbe() : run_{std::make_unique<BenchRun>(probe_bench())} {}

void DriftProbe::sample() {
  run_->run(1, 1);
  samples_.push_back(run_->totals().back());
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

double DriftProbe::disturbed() const {
  const double much = kDisturbed * median(samples_);
  const auto n = std::count_if(samples_.begin(), samples_.end(), [&](double s) { return s > much; });
  return samples_.empty() ? 0 : double(n) / double(samples_.size());
}

double Campaign::drift(std::size_t first, std::size_t last) const {
  std::vector<double> sizes;
  for (std::size_t i = first; i < last; ++i) {
    const std::vector<double>& visits = runs_[i]->visits();
    const auto half = visits.begin() + static_cast<std::ptrdiff_t>(visits.size() / 2);
    if (visits.size() < 2) continue;
    sizes.push_back(std::abs(std::log(median({visits.begin(), half}) / median({half, visits.end()}))));
  }
  return median(std::move(sizes)) / kMiddleOfNormal / std::sqrt(2.0);
}

bool Campaign::is_enough(int rounds) const {
  if (rounds < kFewestRounds) return false;
  return std::all_of(runs_.begin(), runs_.end(), [](const auto& run) { return run->relative_error() <= kGoodEnough; });
}

bool Campaign::measure(Seconds budget, Random& random, const CalibrateCallback& progress) {
  const auto start = Clock::now();
  int visit = 0;
  std::vector<std::size_t> order(runs_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; !is_enough(round); ++round) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const std::size_t i : order) {
      const double spent = seconds_since(start) / budget.base();
      if (!progress({"measuring", std::min(1.0, spent), probe_.drift()})) return false;
      if (spent >= 1 && round >= kFewestRounds) return true;
      if (++visit % kVisitsPerSample == 0) probe_.sample();
      runs_[i]->visit();
    }
  }
  return true;
}

}  // namespace orrery
