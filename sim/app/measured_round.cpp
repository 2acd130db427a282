// SPDX-License-Identifier: Apache-2.0
#include "sim/app/measured_round.hpp"

#include <algorithm>
#include <map>

#include "calibrate/statistics.hpp"
#include "sim/app/instances.hpp"

namespace orrery {
namespace {

/// Those that nothing disturbed; the least disturbed one where there is none.
std::vector<std::uint32_t> quiet_instances(const std::vector<std::uint32_t>& instances, const Disturbance& others) {
  const auto less = [&](std::uint32_t a, std::uint32_t b) { return others.of(a) < others.of(b); };
  std::vector<std::uint32_t> quiet;
  for (const std::uint32_t i : instances)
    if (is_quiet(others.of(i))) quiet.push_back(i);
  if (quiet.empty() && !instances.empty()) quiet.push_back(*std::min_element(instances.begin(), instances.end(), less));
  return quiet;
}

/// The passes of the rounds of a speculative generation, by plan.
std::map<std::uint32_t, std::vector<std::uint32_t>> passes_of(const std::vector<InstanceTime>& times) {
  constexpr std::uint32_t kPrefill = 0;
  std::map<std::uint32_t, std::vector<std::uint32_t>> passes;
  for (std::uint32_t i = 0; i < times.size(); ++i)
    if (times[i].plan != kPrefill) passes[times[i].plan].push_back(i);
  return passes;
}

}  // namespace

MeasuredRound measured_round(const Timeline& recording, const Disturbance& others, bool speculates) {
  constexpr std::uint32_t kStart = 1;  // the plan that a round of speculation begins with
  const std::vector<InstanceTime> times = instance_times(recording);
  MeasuredRound out;
  out.timeline = without_gaps(recording);
  std::map<std::uint32_t, std::vector<std::uint32_t>> kinds;
  if (speculates)
    kinds = passes_of(times);
  else
    kinds[kStart] = steady_instances(recording);
  const double steps = speculates && kinds.contains(kStart) ? double(kinds[kStart].size()) : 1;
  for (const auto& [kind, instances] : kinds) {
    std::vector<double> as_run, alone;
    double slowed = 0;
    const std::vector<std::uint32_t> quiet = quiet_instances(instances, others);
    for (const std::uint32_t i : quiet) {
      as_run.push_back(times[i].seconds());
      alone.push_back(times[i].seconds() / others.factor(i));
      slowed += others.of(i) / double(quiet.size());
      out.instances.push_back(i);
    }
    const double times_a_step = speculates ? double(instances.size()) / steps : 1;
    const double all = times_a_step * median(std::move(as_run));
    out.seconds += times_a_step * median(std::move(alone));
    out.as_run += all;
    out.disturbed += slowed * all;
  }
  if (out.as_run > 0) out.disturbed /= out.as_run;
  std::sort(out.instances.begin(), out.instances.end());
  out.slowed = others.of_spans;
  return out;
}

void CountedRounds::add(MeasuredRound round) {
  ++measured_;
  rounds_.push_back(std::move(round));
  if (rounds_.size() <= wanted_) return;
  const auto size = [](const MeasuredRound& r) { return is_quiet(r.disturbed) ? 0 : r.disturbed; };
  auto worst = rounds_.begin();  // the last one of equals
  for (auto r = rounds_.begin(); r != rounds_.end(); ++r)
    if (size(*r) >= size(*worst)) worst = r;
  rounds_.erase(worst);
}

bool CountedRounds::are_quiet() const {
  return rounds_.size() >= wanted_ &&
         std::all_of(rounds_.begin(), rounds_.end(), [](const MeasuredRound& r) { return is_quiet(r.disturbed); });
}

double CountedRounds::disturbed() const {
  double sum = 0, all = 0;
  for (const MeasuredRound& r : rounds_) sum += r.disturbed * r.seconds, all += r.seconds;
  return all > 0 ? sum / all : 0;
}

}  // namespace orrery
