// SPDX-License-Identifier: Apache-2.0
#include "calibrate/disturbance.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// Products feel 1.2 to 1.4 times what the fixed work does, what waits for the core's caches up to twice (Zen 3 and 4).
// Products that stream weights feel no more of a core than that: they seem to, as neighbours who slow the core use the
// memory too, but so do others who do not.
constexpr double kMostOfCore = 2, kMostOfStreams = 1;
constexpr double kOfSlot = 0.2;       // Σ x² that the exponent of the slot counts for beside what an op tells itself
constexpr double kMostStep = 0.7;     // of ln of a time from the middle one: beyond, something else happened
constexpr double kMostMissing = 1.1;  // of a plan's ops to its time, of their medians
constexpr double kEnoughSpread = 2;   // Σ x² of the slowdowns of a slot that tell an exponent: about 100 of 15 %

struct Sums {
  double xy = 0, xx = 0;
  void add(const Sums& o) { xy += o.xy, xx += o.xx; }
  double exponent() const { return xx > 0 ? xy / xx : 0; }
};

double most_of(std::size_t slot) {
  const LawForm* const form = &form_of(slot);
  return form == &few_rows_form() || form == &attention_decode_form() ? kMostOfStreams : kMostOfCore;
}

/// Of one op: how ln of its time goes with ln of the slowdown, both from their means.
Sums sums_of(std::span<const Observed> samples) {
  Sums s;
  if (samples.size() < 2) return s;
  std::vector<double> times;
  for (const Observed& o : samples) times.push_back(o.value);
  const double middle = median(std::move(times));
  if (middle <= 0) return s;
  double mean_x = 0, mean_y = 0;
  const auto x = [](const Observed& o) { return std::log1p(o.disturbed); };
  const auto y = [&](const Observed& o) {
    return o.value > 0 ? std::clamp(std::log(o.value / middle), -kMostStep, kMostStep) : 0;
  };
  for (const Observed& o : samples) mean_x += x(o) / double(samples.size()), mean_y += y(o) / double(samples.size());
  for (const Observed& o : samples) {
    s.xy += (x(o) - mean_x) * (y(o) - mean_y);
    s.xx += (x(o) - mean_x) * (x(o) - mean_x);
  }
  return s;
}

std::vector<Observed> undisturbed(std::vector<Observed> samples, double exponent) {
  for (Observed& o : samples) o.value /= std::pow(1 + o.disturbed, exponent);
  return samples;
}

/// Ops of one slot differ in what they wait for: that of an op is its own as far as it tells one.
double exponent_of(const std::vector<Observed>& op, double of_slot, double most) {
  const Sums s = sums_of(op);
  return std::clamp((s.xy + kOfSlot * of_slot) / (s.xx + kOfSlot), 0.0, most);
}

/// Ops of one work stand for each other: the mean of their medians, so that a plan's points add up to its time.
RobustSummary mean_of(const std::vector<std::vector<Observed>>& ops, double of_slot, double most, bool corrected) {
  RobustSummary mean;
  const double n = static_cast<double>(ops.size());
  for (const std::vector<Observed>& op : ops) {
    const RobustSummary s = summarise_visits(corrected ? undisturbed(op, exponent_of(op, of_slot, most)) : op);
    mean.median += s.median / n;
    mean.deviation += s.deviation / n;
    mean.median_error += s.median_error / n;
    mean.count += s.count;
  }
  return mean;
}

/// Medians of ops do not add up to the median of their plan where times are skewed: on processors whose clock and
/// hyperthreads change within a millisecond they are 1 to 2 % short of it. The ops share in what is missing.
void add_up(MeasuredPlan& plan) {
  double sum = 0, ops = 0;
  for (const Point& p : plan.points) sum += double(p.ops) * p.seconds.median, ops += double(p.ops);
  if (!plan.whole || sum <= 0) return;
  const double share = std::clamp((plan.seconds.median - ops * std::max(0.0, plan.gap)) / sum, 1.0, kMostMissing);
  for (Point& p : plan.points) p.seconds.median *= share;
}

}  // namespace

std::vector<Observed> undisturbed(std::vector<Observed> samples, const Work& work) {
  const double most = most_of(slot_of(work)), exponent = exponent_of(samples, (1 + most) / 2, most);
  return undisturbed(std::move(samples), exponent);
}

Sensitivity sensitivity_of(std::span<const MeasuredPlan> plans) {
  std::vector<Sums> slots(kNumSlots);
  Sums all;
  for (const MeasuredPlan& plan : plans)
    for (const Point& p : plan.points)
      for (const std::vector<Observed>& op : p.samples) {
        const Sums s = sums_of(op);
        slots[slot_of(p.work)].add(s);
        all.add(s);
      }
  Sensitivity out;
  for (std::size_t i = 0; i < slots.size(); ++i)
    out.push_back(std::clamp((slots[i].xx >= kEnoughSpread ? slots[i] : all).exponent(), 0.0, most_of(i)));
  return out;
}

double summarise(MeasuredPlan& plan, const Sensitivity& sensitivity) {
  const bool corrected = !sensitivity.empty();
  double sum = 0, all = 0;
  for (Point& p : plan.points) {
    const double of_slot = corrected ? sensitivity[slot_of(p.work)] : 0;
    p.seconds = mean_of(p.samples, of_slot, most_of(slot_of(p.work)), corrected);
    const double seconds = double(p.ops) * p.seconds.median;
    sum += of_slot * seconds, all += seconds;
  }
  const double of_plan = all > 0 ? sum / all : 0;
  // The exponent of its ops alone: one of its own would explain away what a few visits differ by.
  const std::vector<Observed> totals = corrected ? undisturbed(plan.totals, of_plan) : plan.totals;
  plan.seconds = summarise_visits(totals);
  plan.visits = visit_medians(totals);
  add_up(plan);
  return of_plan;
}

}  // namespace orrery
