// SPDX-License-Identifier: Apache-2.0
#include "sim/app/measured_round.hpp"

#include <algorithm>
#include <map>

#include "calibrate/statistics.hpp"
#include "sim/app/instances.hpp"

namespace orrery {
namespace {

double part(std::span<const double> disturbed, std::uint32_t instance) {
  return disturbed.empty() ? 0 : disturbed[instance];
}

/// Those that nothing disturbed; the least disturbed one where there is none.
std::vector<std::uint32_t> quiet_instances(const std::vector<std::uint32_t>& instances,
                                           std::span<const double> disturbed) {
  const auto less = [&](std::uint32_t a, std::uint32_t b) { return part(disturbed, a) < part(disturbed, b); };
  std::vector<std::uint32_t> quiet;
  for (const std::uint32_t i : instances)
    if (is_quiet(part(disturbed, i))) quiet.push_back(i);
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

MeasuredRound measured_round(const Timeline& recording, std::span<const double> disturbed, bool speculates) {
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
    std::vector<double> seconds;
    double part_of_kind = 0;
    const std::vector<std::uint32_t> quiet = quiet_instances(instances, disturbed);
    for (const std::uint32_t i : quiet) {
      seconds.push_back(times[i].seconds());
      part_of_kind += part(disturbed, i) / double(quiet.size());
      out.instances.push_back(i);
    }
    const double all = (speculates ? double(instances.size()) / steps : 1) * median(std::move(seconds));
    out.seconds += all;
    out.disturbed += part_of_kind * all;
  }
  if (out.seconds > 0) out.disturbed /= out.seconds;
  std::sort(out.instances.begin(), out.instances.end());
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
