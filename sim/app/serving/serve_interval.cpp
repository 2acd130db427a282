// SPDX-License-Identifier: Apache-2.0
#include "sim/app/serving/serve_interval.hpp"

#include <cmath>

#include "calibrate/statistics.hpp"

namespace orrery {

std::array<StepFactors, kOtherRuns> other_runs(const StepDoubt& doubt) {
  const double decodes = std::exp(kNinetyPercent * doubt.decodes), prompts = std::exp(kNinetyPercent * doubt.prompts);
  return {{{.decodes = 1 / decodes}, {.decodes = decodes}, {.prompts = 1 / prompts}, {.prompts = prompts}}};
}

ServedInterval interval_of(double x, const Extremes& extremes, double multiple) {
  double up = 0, down = 0;
  for (const LeastMost<double>& r : extremes) {
    if (r.most > x) up = std::hypot(up, std::log(r.most / x));
    if (r.least < x) down = std::hypot(down, std::log(x / r.least));
  }
  return {x * std::exp(-multiple * down), x * std::exp(multiple * up)};
}

double time_of(const Answer& a, RequestTime time) {
  return time == RequestTime::First ? a.ttft() : time == RequestTime::Token ? a.tpot() : a.e2e();
}

std::string_view told_as(RequestTime time) {
  constexpr std::string_view kNames[kRequestTimes] = {"each_first", "each_token", "each_request"};
  return kNames[static_cast<std::size_t>(time)];
}

std::array<double, kRequestTimes> multiples_of(const SoftwareProfile& profile) {
  std::array<double, kRequestTimes> out{};
  for (std::size_t t = 0; t < kRequestTimes; ++t) {
    const auto told = profile.deviations.find(std::string{told_as(request_time(t))});
    out[t] = told == profile.deviations.end() ? 1 : told->second;
  }
  return out;
}

void OtherAnswers::add(std::size_t run, const Answer& a) {
  const auto request = static_cast<std::size_t>(a.id);
  if (request >= bounds_.size()) bounds_.resize(request + 1);
  for (std::size_t t = 0; t < kRequestTimes; ++t)
    bounds_[request][kind_of_run(run)][t].add(static_cast<float>(time_of(a, request_time(t))));
}

std::array<ServedInterval, kRequestTimes> OtherAnswers::intervals(
    const Answer& a, const std::array<double, kRequestTimes>& multiples) const {
  const auto request = static_cast<std::size_t>(a.id);
  std::array<ServedInterval, kRequestTimes> out;
  for (std::size_t t = 0; t < kRequestTimes; ++t) {
    Extremes extremes;
    for (std::size_t kind = 0; kind < extremes.size() && request < bounds_.size(); ++kind)
      extremes[kind] = {bounds_[request][kind][t].least, bounds_[request][kind][t].most};
    out[t] = interval_of(time_of(a, request_time(t)), extremes, multiples[t]);
  }
  return out;
}

}  // namespace orrery
