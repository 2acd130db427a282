// SPDX-License-Identifier: Apache-2.0
#include "calibrate/disturbance.hpp"

#include <algorithm>
#include <cmath>

#include "runtime/quiet_core.hpp"

namespace orrery {
namespace {

// Products feel 1.4 times what the fixed work does (Emerald Rapids), what waits for the core's caches up to twice.
// Products that stream weights feel no more of a core than that: they seem to, as neighbours who slow the core use the
// memory too, but so do others who do not.
constexpr double kMostOfCore = 2, kMostOfStreams = 1;
// What feels more than the fixed work does is no power of it: while somebody else's thread uses the same core, products
// lose a third at once and little more the more the fixed work loses (Emerald Rapids: 0.35, 0.40, 0.45 and 0.48 of ln
// of their time where it takes 16, 23, 31 and 38 % longer), while 9 % of another clock are 7 to 10 % of both.
constexpr double kAsMuchAsTheWork = 1;
constexpr double kOfSlot = 0.2;        // Σ x² that the exponent by its slot counts for beside what an op tells itself
constexpr double kMostStep = 0.7;      // of ln of a time from the middle one: beyond, something else happened
constexpr double kMostMissing = 1.1;   // of a plan's ops to its time, of their medians
constexpr double kEnoughSpread = 0.3;  // Σ x² of the slowdowns of a slot that tell an exponent: about 100 of 5 %

struct Sums {
  double xy = 0, xx = 0;
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
  const auto n = double(samples.size());
  for (const Observed& o : samples) mean_x += x(o) / n, mean_y += y(o) / n;
  for (const Observed& o : samples) {
    s.xy += (x(o) - mean_x) * (y(o) - mean_y);
    s.xx += (x(o) - mean_x) * (x(o) - mean_x);
  }
  return s;
}

/// Ops of one slot differ in what they wait for: that of an op is its own as far as it tells one.
double exponent_of(const std::vector<Observed>& op, double usual, double most) {
  const Sums s = sums_of(op);
  return std::clamp((s.xy + kOfSlot * usual) / (s.xx + kOfSlot), 0.0, most);
}

/// Ops of one work stand for each other: the mean of their medians, so that a plan's points add up to its time.
RobustSummary mean_of(const std::vector<std::vector<Observed>>& ops, double usual, double most, bool corrected) {
  RobustSummary mean;
  const double n = static_cast<double>(ops.size());
  for (const std::vector<Observed>& op : ops) {
    const RobustSummary s = summarise_visits(corrected ? undisturbed(op, exponent_of(op, usual, most)) : op);
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

std::vector<Observed> undisturbed(std::vector<Observed> samples, double exponent) {
  if (exponent > kAsMuchAsTheWork) samples = quiet_ones(samples, (samples.size() + 1) / 2);
  for (Observed& o : samples) o.value /= std::pow(1 + o.disturbed, exponent);
  return samples;
}

std::vector<Observed> undisturbed(std::vector<Observed> samples, const Work& work) {
  const double most = most_of(slot_of(work)), exponent = exponent_of(samples, (1 + most) / 2, most);
  return undisturbed(std::move(samples), exponent);
}

namespace {

/// The two exponents that go best with those of ops, each op counting by Σ x²: least squares, drawn to `usual` as by
/// ops that count `kEnoughSpread` together.
class NearAndFar {
 public:
  void add(const Sums& op, double share_lost) {
    const double near = 1 - share_lost;
    nn_ += near * near * op.xx, nf_ += near * share_lost * op.xx, ff_ += share_lost * share_lost * op.xx;
    ny_ += near * op.xy, fy_ += share_lost * op.xy;
  }
  CoreSensitivity fit(const CoreSensitivity& usual, double most) const {
    const double nn = nn_ + kEnoughSpread, ff = ff_ + kEnoughSpread;
    const double ny = ny_ + kEnoughSpread * usual.near, fy = fy_ + kEnoughSpread * usual.far;
    const double det = nn * ff - nf_ * nf_;
    return {std::clamp((ff * ny - nf_ * fy) / det, 0.0, most), std::clamp((nn * fy - nf_ * ny) / det, 0.0, most)};
  }

 private:
  double nn_ = 0, nf_ = 0, ff_ = 0, ny_ = 0, fy_ = 0;
};

double share_lost_of(const Point& p, const Caches& caches) {
  return share_lost({p.work, p.bindings, p.ranks}, caches, CacheLevel::Second);
}

}  // namespace

double quiet_core_of(std::span<const MeasuredPlan> plans, double quiet_core) {
  QuietCore quiet;
  for (const MeasuredPlan& plan : plans)
    for (const Observed& o : plan.totals) quiet.note(quiet_core * (1 + o.disturbed));
  return quiet.seconds();
}

void tell_from(std::vector<Observed>& samples, double from, double to) {
  for (Observed& o : samples) o.disturbed = (1 + o.disturbed) * from / to - 1;
}

void tell_from(MeasuredPlan& plan, double from, double to) {
  tell_from(plan.totals, from, to);
  for (Point& p : plan.points)
    for (std::vector<Observed>& op : p.samples) tell_from(op, from, to);
}

double Sensitivity::of(const Point& p) const { return slots[slot_of(p.work)].of(share_lost_of(p, caches)); }

Sensitivity sensitivity_of(std::span<const MeasuredPlan> plans, const Caches& caches) {
  std::vector<NearAndFar> slots(kNumSlots);
  NearAndFar all;
  for (const MeasuredPlan& plan : plans)
    for (const Point& p : plan.points) {
      const double share = share_lost_of(p, caches);
      for (const std::vector<Observed>& op : p.samples) {
        const Sums s = sums_of(op);
        slots[slot_of(p.work)].add(s, share);
        all.add(s, share);
      }
    }
  Sensitivity out{caches, {}};
  const CoreSensitivity usual = all.fit({}, kMostOfCore);
  for (std::size_t i = 0; i < slots.size(); ++i) out.slots.push_back(slots[i].fit(usual, most_of(i)));
  return out;
}

void summarise(MeasuredPlan& plan, const Sensitivity& sensitivity) {
  const bool corrected = !sensitivity.slots.empty();
  double sum = 0, all = 0;
  for (Point& p : plan.points) {
    const double usual = corrected ? sensitivity.of(p) : 0;
    p.seconds = mean_of(p.samples, usual, most_of(slot_of(p.work)), corrected);
    const double seconds = double(p.ops) * p.seconds.median;
    sum += usual * seconds, all += seconds;
  }
  const double of_plan = all > 0 ? sum / all : 0;
  // The exponent of its ops alone: one of its own would explain away what a few visits differ by.
  const std::vector<Observed> totals = corrected ? undisturbed(plan.totals, of_plan) : plan.totals;
  plan.seconds = summarise_visits(totals);
  plan.visits = visit_medians(totals);
  add_up(plan);
}

}  // namespace orrery
