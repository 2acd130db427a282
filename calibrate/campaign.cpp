// SPDX-License-Identifier: Apache-2.0
#include "calibrate/campaign.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <numeric>

#include "calibrate/disturbance.hpp"
#include "runtime/core_watch.hpp"
#include "sim/base/shuffle.hpp"
#include "sim/machine/cluster.hpp"
#include "sim/plan/reuse.hpp"

namespace orrery {
namespace {

constexpr int kFewestRounds = 3;
constexpr int kVisitsPerSample = 4;        // between two samples of the probe
constexpr double kGoodEnough = 0.004;      // relative error of the medians at which measuring ends
constexpr int kProbeProducts = 4;          // at a time; 40 us each
constexpr std::size_t kFewestSamples = 3;  // of a probe that count, disturbed or not

// The pass reads 64 MiB, another 64 each time, so that a last cache of up to some 200 MB, which samples close to each
// other leave as it is, does not hold them.
const Work kPass{Gemm{.m = 1, .n = 4096, .k = 4096, .transpose_b = true}};
constexpr std::size_t kPasses = 4;

constexpr Bytes kBatch{1.5e9};  // of the benches that are in memory together

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool are_known(const std::vector<std::unique_ptr<BenchRun>>& runs) {
  return std::all_of(runs.begin(), runs.end(), [](const auto& run) { return run->relative_error() <= kGoodEnough; });
}

Bench probe_bench(Work work) {
  Random random{0};
  return std::move(make_benches({std::move(work)}, random).front());
}

}  // namespace

DriftProbe::DriftProbe(Of of)
    : product_{std::make_unique<BenchRun>(probe_bench(Gemm{.m = 128, .n = 128, .k = 256, .transpose_b = true}))},
      told_from_{quiet_core()} {
  UsualValues values;
  while (of == Of::CoreAndMemory && passes_.size() < kPasses)
    passes_.push_back(std::make_unique<BenchRun>(probe_bench(kPass), values));
}

// The product first: behind a pass the clock is 5 to 8 % lower for a while (Emerald Rapids).
void DriftProbe::sample() {
  const std::size_t sample = taken();  // before the product, which it counts by
  product_->run(1, kProbeProducts);
  if (!passes_.empty()) passes_[sample % kPasses]->run(0, 1);
}

std::size_t DriftProbe::taken() const { return product_->totals().size() / kProbeProducts; }

Observed DriftProbe::pass(std::size_t sample) const { return passes_[sample % kPasses]->totals()[sample / kPasses]; }

std::vector<Observed> DriftProbe::samples() const {
  std::vector<Observed> all;
  for (const std::span<const Observed> products : by_visit(product_->totals())) {
    Observed sample;
    if (!passes_.empty()) sample = pass(all.size());
    for (const Observed& o : products) {
      sample.value += o.value;
      sample.disturbed = std::max(sample.disturbed, o.disturbed);
    }
    all.push_back(sample);
  }
  tell_from(all, told_from_, quiet_core());
  return all;
}

std::vector<double> DriftProbe::quiet() const { return quiet_values(samples(), kFewestSamples); }

double DriftProbe::drift() const {
  const RobustSummary s = summarise(quiet());
  return s.median > 0 ? s.deviation / s.median : 0;
}

double DriftProbe::worst() const {
  const std::vector<double> all = quiet();
  const double middle = median(all);
  double worst = 0;
  for (const double s : all) worst = std::max(worst, std::abs(s / middle - 1));
  return worst;
}

namespace {

/// The middle time of a probe's op in each visit, as on a core on which the fixed work takes what is expected of it
/// now.
std::vector<double> undisturbed_seconds(const BenchRun& run, double told_from) {
  MeasuredPlan plan = run.measured();
  tell_from(plan, told_from, quiet_core());
  const Point& op = plan.points.front();
  return op.samples.empty() ? std::vector<double>{} : visit_medians(undisturbed(op.samples.front(), op.work));
}

}  // namespace

double DriftProbe::seconds() const { return median(undisturbed_seconds(*product_, told_from_)); }

std::vector<double> DriftProbe::passes() const {
  std::vector<Observed> all;
  for (std::size_t i = 0; !passes_.empty() && i < taken(); ++i) all.push_back(pass(i));
  tell_from(all, told_from_, quiet_core());
  std::vector<double> out;
  for (const Observed& o : undisturbed(std::move(all), kPass)) out.push_back(o.value);
  return out;
}

double DriftProbe::pass_seconds() const { return median(passes()); }

DriftProbe::Slow DriftProbe::slow_drift() const {
  return {slow_deviation(undisturbed_seconds(*product_, told_from_)), slow_deviation(passes())};
}

double slowdown_since(double seconds, Seconds when_calibrated) {
  return when_calibrated > Seconds{0} ? seconds / when_calibrated.base() - 1 : 0;
}

double DriftProbe::disturbed() const {
  const std::vector<Observed> all = samples();
  const auto n = std::count_if(all.begin(), all.end(), [](const Observed& o) { return !is_quiet(o.disturbed); });
  return all.empty() ? 0 : double(n) / double(all.size());
}

namespace {

/// Long enough that starting threads does not count.
Bench cores_bench(std::int64_t ranks) {
  constexpr int kProducts = 12;
  Random random{0};
  PlanBuilder builder{"cores probe", Mesh{{{"rank", ranks}}}};
  builder.begin_class("all", all_of(builder.plan().mesh));
  OperandMaker maker{builder, random};
  for (int i = 0; i < kProducts; ++i) maker.add(Gemm{.m = 256, .n = 256, .k = 256, .transpose_b = true});
  return {builder.take(&host_workspaces()), {}, {}, 1};
}

}  // namespace

CoresProbe::CoresProbe()
    : one_{std::make_unique<BenchRun>(cores_bench(1))},
      all_{std::make_unique<BenchRun>(cores_bench(detected_cores()))} {}

void CoresProbe::sample() {
  one_->run(1, 1);
  all_->run(1, 1);
}

double CoresProbe::cores() const {
  const double one = median(quiet_values(one_->totals(), kFewestSamples)),
               together = median(quiet_values(all_->totals(), kFewestSamples));
  return together > 0 ? double(detected_cores()) * one / together : double(detected_cores());
}

double jitter_of(std::span<const MeasuredPlan> plans) {
  std::vector<double> sizes;
  for (const MeasuredPlan& plan : plans)
    if (plan.visits.size() >= 2) sizes.push_back(jitter(plan.visits));
  return trimmed_rms(std::move(sizes));
}

std::vector<std::vector<std::size_t>> Campaign::batches(Random& random) const {
  std::vector<std::size_t> order(benches_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  shuffle(order, random);
  std::vector<std::vector<std::size_t>> out;
  Bytes used;
  for (const std::size_t i : order) {
    const Bytes bytes = double(benches_[i].plan.mesh.size()) * working_set(benches_[i].plan, benches_[i].bindings);
    if (out.empty() || used + bytes > kBatch) {
      out.emplace_back();
      used = Bytes{0};
    }
    out.back().push_back(i);
    used += bytes;
  }
  return out;
}

bool Campaign::is_stopped(double now) const {
  return !(*progress_)({"measuring", std::min(1.0, (now - start_) / budget_), probe_.drift()});
}

bool Campaign::measure(const std::vector<std::size_t>& batch, double until, Random& random) {
  Runs runs;
  {
    UsualValues values;
    for (const std::size_t i : batch) {
      if (is_stopped(now())) return false;
      runs.push_back(std::make_unique<BenchRun>(std::move(benches_[i]), values));
    }
  }
  std::vector<std::size_t> order(runs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; round < kFewestRounds || (now() < until && !are_known(runs)); ++round) {
    shuffle(order, random);
    cores_.sample();
    for (const std::size_t i : order) {
      const double time = now();
      if (is_stopped(time)) return false;
      if (round >= kFewestRounds && time >= until) break;
      if (++visits_ % kVisitsPerSample == 0) probe_.sample();
      runs[i]->visit();
    }
  }
  keep(batch, runs);
  return true;
}

/// Sums up what was measured, on two cores: how far apart touches of the same bytes are takes its time.
void Campaign::keep(const std::vector<std::size_t>& batch, const Runs& runs) {
  const auto every_second = [&](std::size_t first) {
    for (std::size_t i = first; i < batch.size(); i += 2) measured_[batch[i]] = runs[i]->measured();
  };
  auto odd = std::async(std::launch::async, every_second, 1);
  every_second(0);
  odd.get();
}

bool Campaign::measure(Seconds budget, Random& random, const CalibrateCallback& progress) {
  progress_ = &progress;
  budget_ = budget.base();
  start_ = now();
  measured_.resize(benches_.size());
  double share = 0;
  for (const std::vector<std::size_t>& batch : batches(random)) {
    share += double(batch.size()) / double(benches_.size());
    if (!measure(batch, start_ + share * budget_, random)) return false;
  }
  return true;
}

}  // namespace orrery
