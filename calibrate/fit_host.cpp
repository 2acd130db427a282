// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit_host.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "calibrate/fit.hpp"
#include "calibrate/step_check.hpp"

namespace orrery {
namespace {

constexpr double kCacheShares[] = {1, 0.85, 0.7, 0.6, 0.5, 0.42, 0.35, 0.3, 0.25, 0.18};  // of the last cache

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

/// Predicts each step from a fit without it and half of the others.
std::vector<StepCheck> check_left_out(const HostParameters& base, const Measurements& measured) {
  std::vector<StepCheck> checks;
  for (const std::size_t half : {0u, 1u}) {
    std::vector<bool> left_out(measured.plans.size(), false);
    for (std::size_t i = measured.steps_begin; i < measured.steps_end; ++i) left_out[i] = i % 2 == half;
    HostParameters fitted = base;
    fitted.laws = fit_laws(measured, {base.l2, base.l3}, left_out);
    const HostModel model{"host", fitted};
    for (std::size_t i = measured.steps_begin; i < measured.steps_end; ++i)
      if (left_out[i]) checks.push_back(check_step(model, measured.plans[i]));
  }
  return checks;
}

/// Mean size of ln(measured / predicted), each at most 1.
double error_of(const std::vector<StepCheck>& steps) {
  double sum = 0;
  for (const StepCheck& s : steps) sum += std::min(1.0, std::abs(std::log(s.measured / s.predicted)));
  return steps.empty() ? 0 : sum / double(steps.size());
}

/// Finds the capacity of the last cache under which steps that are left out are predicted best. Other programs and
/// other tenants of a processor keep part of a shared cache, so what the hardware reports is an upper bound.
std::vector<StepCheck> find_last_cache(HostParameters& parameters, const Measurements& measured) {
  const Bytes reported = parameters.l3;
  double least = std::numeric_limits<double>::infinity();
  std::vector<StepCheck> best;
  HostParameters tried = parameters;
  for (const double share : kCacheShares) {
    tried.l3 = std::max(share * reported, parameters.l2);
    std::vector<StepCheck> steps = check_left_out(tried, measured);
    const double error = error_of(steps);
    if (error >= least) continue;
    least = error;
    best = std::move(steps);
    parameters.l3 = tried.l3;
  }
  return best;
}

}  // namespace

std::vector<StepCheck> fit_host(HostParameters& parameters, const Measurements& measured) {
  std::vector<StepCheck> steps = find_last_cache(parameters, measured);
  parameters.laws = fit_laws(measured, {parameters.l2, parameters.l3}, std::vector<bool>(measured.plans.size(), false));
  share_receives(parameters.laws);
  settle_bias(parameters, steps);
  return steps;
}

}  // namespace orrery
