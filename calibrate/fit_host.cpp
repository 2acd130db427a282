// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit_host.hpp"

#include <algorithm>
#include <cmath>
#include <future>
#include <limits>
#include <map>

#include "calibrate/fit.hpp"
#include "calibrate/step_check.hpp"

namespace orrery {
namespace {

constexpr double kCacheShares[] = {1, 0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25, 0.18};  // of the last cache
constexpr double kGradual = 2, kSteep = 8;                                                // of its edge
constexpr BytesPerSecond kForeignRates[] = {1.0_GBps, 4.0_GBps, 16.0_GBps, 32.0_GBps};
constexpr std::size_t kNearby = 2;  // so many shares off the best are tried again: steep, and while others pass data

constexpr double kLeastOfMessage = 0.05;  // of a core
constexpr double kLongOp = 2e-2;          // seconds
constexpr double kMostLost = 0.5;         // of a rank's time
constexpr double kMostOthers = 0.2;       // of it, to ranks on other cores; more is of neighbours that come and go

// Parts of the steps, each predicted from the others: few while the last cache is searched for, many where errors tell
// the intervals, since a fit without a half of them errs by up to a fifth more than one without a sixth.
constexpr std::size_t kPartsOfSearch = 2, kParts = 6;
constexpr std::size_t kFewestOfLaw = 12;  // ops of steps that a law's errors are told by
constexpr double kMostWidening = 4;

using Laws = std::map<std::string, LawFit>;

/// What a law describes: all but waits of the host, storage, and sends, whose time is the receiver's.
bool has_law(const Point& p) {
  return p.weight > 0 && p.seconds.median > 0 && !std::holds_alternative<Send>(p.work) &&
         !std::holds_alternative<HostWork>(p.work) && !std::holds_alternative<Alloc>(p.work) &&
         !std::holds_alternative<Free>(p.work);
}

/// The laws of what was measured, without the plans in `left_out` and without steps on all cores.
Laws fit_laws(const HostParameters& base, const Measurements& measured, const std::vector<bool>& left_out) {
  std::map<std::size_t, std::vector<const Point*>> by_slot;
  for (std::size_t i = 0; i < measured.plans.size(); ++i)
    for (const Point& p : measured.plans[i].points)
      if (has_law(p) && !left_out[i] && !measured.beside.holds(i)) by_slot[slot_of(p.work)].push_back(&p);
  Laws laws;
  for (const auto& [slot, of_slot] : by_slot) {
    LawFit& law = laws[slot_name(slot)];
    law = fit_law(form_of(slot), of_slot, base.caches(), measured.wait_of_megabyte);
    law.sensitivity = measured.sensitivity.slots[slot];
  }
  return laws;
}

/// A message takes as long as its receiver needs: sends have the receives' law.
void share_receives(Laws& laws) {
  if (const auto recv = laws.find("recv"); recv != laws.end()) laws["send"] = recv->second;
}

/// Every n-th plan.
struct Part {
  std::size_t number = 0, of = 1;
  bool holds(std::size_t plan) const { return plan % of == number; }
};

/// What is asked of each of so many parts, on two threads; the even ones come first.
template <class Ask>
auto of_parts(std::size_t parts, const Ask& ask) {
  const auto every_second = [&](std::size_t first) {
    std::vector<decltype(ask(Part{}))> answers;
    for (std::size_t part = first; part < parts; part += 2) answers.push_back(ask(Part{part, parts}));
    return answers;
  };
  auto odd = std::async(std::launch::async, every_second, 1);
  auto answers = every_second(0);
  for (auto& answer : odd.get()) answers.push_back(std::move(answer));
  return answers;
}

/// The parameters with laws that the steps of a part were left out of.
HostParameters fitted_without(const HostParameters& base, const Measurements& measured, Part part) {
  std::vector<bool> left_out(measured.plans.size(), false);
  for (std::size_t i = measured.steps.begin; i < measured.steps.end; ++i) left_out[i] = part.holds(i);
  HostParameters fitted = base;
  fitted.laws = fit_laws(base, measured, left_out);
  return fitted;
}

/// Sizes of ln(measured / predicted), each at most 1: of the steps of a part, by a fit without them, and of its plans
/// of the cache sweep, which the fit has seen.
struct Misses {
  std::vector<double> steps, sweep;
};

Misses misses(const HostParameters& base, const Measurements& measured, Part part) {
  const HostModel model{"host", fitted_without(base, measured, part)};
  const auto of = [&](const Numbers& plans) {
    std::vector<double> sizes;
    for (std::size_t i = plans.begin; i < plans.end; ++i)
      if (part.holds(i))
        sizes.push_back(std::min(1.0, std::abs(std::log(measured.plans[i].seconds.median /
                                                        check_step(model, measured.plans[i]).predicted))));
    return sizes;
  };
  return {of(measured.steps), of(measured.sweep)};
}

/// Their mean over all parts.
double mean_miss(const HostParameters& base, const Measurements& measured) {
  const auto parts = of_parts(kPartsOfSearch, [&](Part part) { return misses(base, measured, part); });
  double sum = 0;
  std::size_t count = 0;
  for (const auto kind : {&Misses::steps, &Misses::sweep})
    for (const Misses& m : parts)
      for (const double size : m.*kind) sum += size, ++count;
  return sum / double(std::max<std::size_t>(1, count));
}

/// What laws are off by in steps that they were not fitted to.
struct HeldOut {
  std::vector<StepCheck> steps;
  std::vector<std::size_t> plans;                    // per step: which of those measured
  std::map<std::size_t, std::vector<Residual>> ops;  // by slot
};

/// Predicts the steps of a part, and their ops, from a fit without these.
HeldOut check_part(const HostParameters& base, const Measurements& measured, Part part) {
  const HostModel model{"host", fitted_without(base, measured, part)};
  HeldOut out;
  std::map<std::size_t, std::vector<const Point*>> by_slot;
  for (std::size_t i = measured.steps.begin; i < measured.steps.end; ++i) {
    if (!part.holds(i)) continue;
    out.steps.push_back(check_step(model, measured.plans[i]));
    out.plans.push_back(i);
    for (const Point& p : measured.plans[i].points)
      if (has_law(p)) by_slot[slot_of(p.work)].push_back(&p);
  }
  const Laws& laws = model.parameters().laws;
  for (const auto& [slot, points] : by_slot)
    if (const auto law = laws.find(slot_name(slot)); law != laws.end())
      out.ops[slot] = errors_at(form_of(slot), law->second, points, base.caches(), base.drift);
  return out;
}

/// Predicts each step from a fit without it and the others of its part.
HeldOut check_left_out(const HostParameters& base, const Measurements& measured) {
  HeldOut all;
  for (HeldOut& more : of_parts(kParts, [&](Part part) { return check_part(base, measured, part); })) {
    all.steps.insert(all.steps.end(), more.steps.begin(), more.steps.end());
    all.plans.insert(all.plans.end(), more.plans.begin(), more.plans.end());
    for (auto& [slot, errors] : more.ops) all.ops[slot].insert(all.ops[slot].end(), errors.begin(), errors.end());
  }
  return all;
}

/// Ops find caches and cores in steps as others leave them: what laws are off by there counts, where it is known. Laws
/// that few ops of steps have err by as much more than a fit of theirs tells as the middle one of the others.
void widen_laws(Laws& laws, const HeldOut& held_out) {
  std::vector<double> widening;
  std::map<std::string, Spread> known;
  for (const auto& [slot, errors] : held_out.ops) {
    const auto law = laws.find(slot_name(slot));
    if (law == laws.end() || errors.size() < kFewestOfLaw) continue;
    const Spread s = known[law->first] = spread(errors);
    widening.push_back(s.sigma / std::hypot(law->second.deviation, law->second.bias));
  }
  const double usual = std::clamp(median(std::move(widening)), 1.0, kMostWidening);
  for (auto& [name, law] : laws) {
    const auto found = known.find(name);
    const double sigma = std::hypot(law.deviation, law.bias);
    set_spread(law, found != known.end() ? found->second : Spread{usual * sigma, law.floor.base(), law.memory});
  }
}

/// Steps are to be judged by how far the laws say now that they may be off.
void renew_doubts(HeldOut& held_out, const HostParameters& parameters, const Measurements& measured) {
  const HostModel model{"host", parameters};
  for (std::size_t i = 0; i < held_out.steps.size(); ++i) {
    const StepCheck now = check_step(model, measured.plans[held_out.plans[i]]);
    held_out.steps[i].shared = now.shared, held_out.steps[i].independent = now.independent;
    held_out.steps[i].memory = now.memory;
  }
}

/// Finds the capacity of the last cache under which steps that are left out and the cache sweep are predicted best, how
/// steeply it loses what is beyond, and the rate at which others pass data through it. Steps alone tell little: few of
/// them are about as large. Other programs and other tenants of a processor keep part of a shared cache, so what the
/// hardware reports is an upper bound; and they go on while an op computes for long, which leaves less of what the ops
/// before it wrote.
class CacheSearch {
 public:
  CacheSearch(HostParameters& parameters, const Measurements& measured)
      : parameters_{parameters}, measured_{measured}, reported_{parameters.l3} {}

  void run() {
    for (std::size_t i = 0; i < std::size(kCacheShares); ++i) attempt({i, kGradual, {}});
    const std::size_t gradual = best_.share;
    for (std::size_t i = below(gradual); i <= std::min(gradual + kNearby, std::size(kCacheShares) - 1); ++i)
      attempt({i, kSteep, {}});
    const Found alone = best_;
    for (const BytesPerSecond foreign : kForeignRates)
      for (std::size_t i = below(alone.share); i <= alone.share; ++i) attempt({i, alone.steepness, foreign});
    parameters_ = with(best_);
  }

 private:
  struct Found {
    std::size_t share = 0;
    double steepness = kGradual;
    BytesPerSecond foreign;
  };
  static std::size_t below(std::size_t share) { return share >= kNearby ? share - kNearby : 0; }
  HostParameters with(const Found& f) const {
    HostParameters out = parameters_;
    out.l3 = std::max(kCacheShares[f.share] * reported_, out.l2);
    out.l3_steepness = f.steepness, out.foreign = f.foreign;
    return out;
  }
  void attempt(const Found& f) {
    const double error = mean_miss(with(f), measured_);
    if (error < least_) least_ = error, best_ = f;
  }

  HostParameters& parameters_;
  const Measurements& measured_;
  Bytes reported_;
  double least_ = std::numeric_limits<double>::infinity();
  Found best_;
};

/// How long a step of several ranks takes that have nothing to tell each other: all cores work, in turns where there
/// are more ranks.
double beside_itself(const HostModel& model, const MeasuredPlan& plan) {
  const double rounds = double(plan.ranks) / double(model.parameters().cores);
  return check_step(model, plan).predicted * std::max(1.0, rounds);
}

/// The part of its time that a rank loses while others work on all other cores, beyond what its part of the last cache
/// tells: the middle over long steps that all cores do at once, each against what it takes alone.
double time_lost_beside(const HostParameters& parameters, const Measurements& measured) {
  std::vector<double> lost;
  const HostModel model{"host", parameters};
  const auto as_measured = [&](const MeasuredPlan& plan) {
    return check_step(model, plan).predicted / plan.seconds.median;
  };
  for (std::size_t i = 0; i < measured.alone.size(); ++i) {
    const MeasuredPlan& together = measured.plans[measured.beside.begin + i];
    if (together.seconds.median >= kLongOp)
      lost.push_back(1 - as_measured(together) / as_measured(measured.plans[measured.alone[i]]));
  }
  return lost.empty() ? 0 : std::clamp(median(std::move(lost)), 0.0, kMostOthers);
}

/// The part of its time that a rank loses when it shares its core, over steps that more ranks than cores do at once:
/// the lower quartile, since whatever disturbs makes it more.
double time_lost_in_turns(const HostParameters& parameters, const Measurements& measured) {
  std::vector<double> lost;
  const HostModel model{"host", parameters};
  for (std::size_t i = measured.turns.begin; i < measured.turns.end; ++i)
    lost.push_back(1 - beside_itself(model, measured.plans[i]) / measured.plans[i].seconds.median);
  return std::clamp(quantile(std::move(lost), 0.25), 0.0, kMostLost);
}

/// By how much steps of several ranks are off: σ by the middle size, over those for whose length starting threads does
/// not count.
double error_of_sharing(const HostParameters& parameters, const Measurements& measured) {
  std::vector<double> sizes;
  const HostModel model{"host", parameters};
  for (const Numbers& n : {measured.beside, measured.turns})
    for (std::size_t i = n.begin; i < n.end; ++i)
      if (const MeasuredPlan& plan = measured.plans[i]; plan.seconds.median >= kLongOp)
        sizes.push_back(std::abs(std::log(plan.seconds.median / beside_itself(model, plan))));
  return median(std::move(sizes)) / kMiddleOfNormal;
}

/// The cores that a rank needs while it is woken: pairs of ranks, far more than cores, exchange nothing but small
/// messages, so that each message of each of r ranks has c / r of the c cores; by how long one message takes when the
/// cores have nothing else to do.
double cores_of_messages(const HostParameters& parameters, const Measurements& measured) {
  const MeasuredPlan& plan = measured.plans[measured.pairs];
  if (plan.points.empty()) return 1;
  const Point& p = plan.points.front();
  const double busy = plan.seconds.median / double(p.ops) * double(parameters.cores) / double(plan.ranks);
  const HostModel model{"host", parameters};
  const double alone = model.collective(std::get<Collective>(p.work), 2, {})->duration.base();
  return std::clamp(busy / alone, kLeastOfMessage, 1.0);
}

}  // namespace

std::vector<StepCheck> fit_host(HostParameters& parameters, const Measurements& measured) {
  CacheSearch{parameters, measured}.run();
  HeldOut held_out = check_left_out(parameters, measured);
  parameters.laws = fit_laws(parameters, measured, std::vector<bool>(measured.plans.size(), false));
  widen_laws(parameters.laws, held_out);
  share_receives(parameters.laws);
  parameters.message_cores = cores_of_messages(parameters, measured);
  parameters.beside = time_lost_beside(parameters, measured);
  parameters.turns = time_lost_in_turns(parameters, measured);
  parameters.sharing = error_of_sharing(parameters, measured);
  renew_doubts(held_out, parameters, measured);
  settle_bias(parameters, held_out.steps);
  return std::move(held_out.steps);
}

}  // namespace orrery
