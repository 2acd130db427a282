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

constexpr BytesPerSecond kForeignRates[] = {1.0_GBps, 4.0_GBps, 16.0_GBps};
constexpr std::size_t kNearby = 2;  // larger shares that are tried again while others pass data through

constexpr double kLeastOfMessage = 0.05;  // of a core
constexpr double kLongStep = 2e-2;        // seconds
constexpr double kMostLost = 0.5;         // of a rank's time

using Laws = std::map<std::string, LawFit>;

/// What a law describes: all but waits of the host, storage, and sends, whose time is the receiver's.
bool has_law(const Point& p) {
  return p.weight > 0 && p.seconds.median > 0 && !std::holds_alternative<Send>(p.work) &&
         !std::holds_alternative<HostWork>(p.work) && !std::holds_alternative<Alloc>(p.work) &&
         !std::holds_alternative<Free>(p.work);
}

/// The laws of what was measured, without the plans in `left_out`.
Laws fit_laws(const Measurements& measured, const Caches& caches, const std::vector<bool>& left_out) {
  std::map<std::size_t, std::vector<const Point*>> by_slot;
  for (std::size_t i = 0; i < measured.plans.size(); ++i)
    for (const Point& p : measured.plans[i].points)
      if (has_law(p) && !left_out[i]) by_slot[slot_of(p.work)].push_back(&p);
  Laws laws;
  for (const auto& [slot, of_slot] : by_slot) laws[slot_name(slot)] = fit_law(form_of(slot), of_slot, caches);
  return laws;
}

/// A message takes as long as its receiver needs: sends have the receives' law.
void share_receives(Laws& laws) {
  if (const auto recv = laws.find("recv"); recv != laws.end()) laws["send"] = recv->second;
}

/// Predicts every second step from a fit without these.
std::vector<StepCheck> check_half(const HostParameters& base, const Measurements& measured, std::size_t half) {
  std::vector<bool> left_out(measured.plans.size(), false);
  for (std::size_t i = measured.steps.begin; i < measured.steps.end; ++i) left_out[i] = i % 2 == half;
  for (std::size_t i = measured.beside.begin; i < measured.beside.end; ++i) left_out[i] = true;  // the same steps
  HostParameters fitted = base;
  fitted.laws = fit_laws(measured, base.caches(), left_out);
  const HostModel model{"host", fitted};
  std::vector<StepCheck> checks;
  for (std::size_t i = measured.steps.begin; i < measured.steps.end; ++i)
    if (i % 2 == half) checks.push_back(check_step(model, measured.plans[i]));
  return checks;
}

/// Predicts each step from a fit without it and half of the others.
std::vector<StepCheck> check_left_out(const HostParameters& base, const Measurements& measured) {
  auto odd = std::async(std::launch::async, [&] { return check_half(base, measured, 1); });
  std::vector<StepCheck> checks = check_half(base, measured, 0);
  const std::vector<StepCheck> others = odd.get();
  checks.insert(checks.end(), others.begin(), others.end());
  return checks;
}

/// Mean size of ln(measured / predicted), each at most 1.
double error_of(const std::vector<StepCheck>& steps) {
  double sum = 0;
  for (const StepCheck& s : steps) sum += std::min(1.0, std::abs(std::log(s.measured / s.predicted)));
  return steps.empty() ? 0 : sum / double(steps.size());
}

/// Finds the capacity of the last cache under which steps that are left out are predicted best, and the rate at which
/// others pass data through it. Other programs and other tenants of a processor keep part of a shared cache, so what
/// the hardware reports is an upper bound; and they go on while an op computes for long, which leaves less of what the
/// ops before it wrote.
class CacheSearch {
 public:
  CacheSearch(HostParameters& parameters, const Measurements& measured)
      : parameters_{parameters}, measured_{measured}, reported_{parameters.l3} {}

  std::vector<StepCheck> run() {
    for (std::size_t i = 0; i < std::size(kCacheShares); ++i) attempt(i, BytesPerSecond{0});
    const std::size_t alone = share_;
    for (const BytesPerSecond foreign : kForeignRates)
      for (std::size_t i = alone >= kNearby ? alone - kNearby : 0; i <= alone; ++i) attempt(i, foreign);
    return std::move(best_);
  }

 private:
  void attempt(std::size_t share, BytesPerSecond foreign) {
    HostParameters tried = parameters_;
    tried.l3 = std::max(kCacheShares[share] * reported_, tried.l2);
    tried.foreign = foreign;
    std::vector<StepCheck> steps = check_left_out(tried, measured_);
    const double error = error_of(steps);
    if (error >= least_) return;
    least_ = error;
    best_ = std::move(steps);
    share_ = share;
    parameters_.l3 = tried.l3, parameters_.foreign = foreign;
  }

  HostParameters& parameters_;
  const Measurements& measured_;
  Bytes reported_;
  double least_ = std::numeric_limits<double>::infinity();
  std::vector<StepCheck> best_;
  std::size_t share_ = 0;
};

/// How long a step of several ranks takes that have nothing to tell each other: all cores work, in turns where there
/// are more ranks.
double beside_itself(const HostModel& model, const MeasuredPlan& plan) {
  const double rounds = double(plan.ranks) / double(model.parameters().cores);
  return check_step(model, plan).predicted * std::max(1.0, rounds);
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
      if (const MeasuredPlan& plan = measured.plans[i]; plan.seconds.median >= kLongStep)
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
  std::vector<StepCheck> steps = CacheSearch{parameters, measured}.run();
  std::vector<bool> left_out(measured.plans.size(), false);
  if (!measured.has_all_cores)
    for (std::size_t i = measured.beside.begin; i < measured.beside.end; ++i) left_out[i] = true;
  parameters.laws = fit_laws(measured, parameters.caches(), left_out);
  share_receives(parameters.laws);
  parameters.message_cores = cores_of_messages(parameters, measured);
  parameters.turns = time_lost_in_turns(parameters, measured);
  parameters.sharing = error_of_sharing(parameters, measured);
  settle_bias(parameters, steps);
  return steps;
}

}  // namespace orrery
