// SPDX-License-Identifier: Apache-2.0
#include "sim/app/instances.hpp"

#include <algorithm>
#include <numeric>

namespace orrery {
namespace {

constexpr std::uint32_t kDropped = UINT32_MAX;

}  // namespace

std::vector<InstanceTime> instance_times(const Timeline& t) {
  std::vector<InstanceTime> times(t.instance_ends_ps.size());
  for (std::size_t i = 0; i < times.size(); ++i) {
    const std::int64_t before = i == 0 ? 0 : t.instance_ends_ps[i - 1];
    const bool is_measured = t.source == TimelineSource::Measured;
    times[i] = {t.plan_of(static_cast<std::uint32_t>(i)), is_measured ? t.instance_ends_ps[i] : before,
                t.instance_ends_ps[i]};
  }
  if (t.source == TimelineSource::Measured)
    for (const Span& s : t.spans) times[s.instance].start_ps = std::min(times[s.instance].start_ps, s.start_ps);
  return times;
}

std::vector<std::uint32_t> steady_instances(const Timeline& t) {
  std::uint32_t last_plan = 0;
  const auto count = static_cast<std::uint32_t>(t.instance_ends_ps.size());
  for (std::uint32_t i = 0; i < count; ++i) last_plan = std::max(last_plan, t.plan_of(i));
  std::vector<std::uint32_t> steady;
  for (std::uint32_t i = 0; i < count; ++i)
    if (t.plan_of(i) == last_plan) steady.push_back(i);
  if (steady.size() > 1) steady.erase(steady.begin());
  return steady;
}

Timeline packed(const Timeline& t, const std::vector<std::uint32_t>& instances) {
  const std::vector<InstanceTime> times = instance_times(t);
  std::vector<std::uint32_t> number(times.size(), kDropped);
  std::vector<std::int64_t> shift(times.size(), 0);
  Timeline out;
  out.source = t.source, out.plan_name = t.plan_name, out.machine = t.machine, out.num_ranks = t.num_ranks;
  out.standing = t.standing;
  for (const std::uint32_t i : instances) {
    number[i] = static_cast<std::uint32_t>(out.instance_ends_ps.size());
    shift[i] = out.makespan_ps - times[i].start_ps;
    out.makespan_ps += times[i].end_ps - times[i].start_ps;
    out.instance_ends_ps.push_back(out.makespan_ps);
    out.instance_plans.push_back(times[i].plan);
  }
  for (Span s : t.spans) {
    if (number[s.instance] == kDropped) continue;
    s.start_ps += shift[s.instance], s.end_ps += shift[s.instance];
    s.instance = number[s.instance];
    out.spans.push_back(s);
  }
  for (MemorySample m : t.memory) {
    const auto at = std::lower_bound(t.instance_ends_ps.begin(), t.instance_ends_ps.end(), m.at_ps);
    const auto i = static_cast<std::size_t>(at - t.instance_ends_ps.begin());
    if (i == times.size() || number[i] == kDropped) continue;
    m.at_ps = std::max(m.at_ps, times[i].start_ps) + shift[i];
    out.memory.push_back(m);
  }
  return out;
}

Timeline without_gaps(const Timeline& t) {
  std::vector<std::uint32_t> all(t.instance_ends_ps.size());
  std::iota(all.begin(), all.end(), 0u);
  Timeline out = packed(t, all);
  out.peaks = t.peaks;
  out.transfers = t.transfers;
  return out;
}

std::vector<double> round_seconds(const Timeline& timeline) {
  constexpr std::uint32_t kPrefill = 0, kStart = 1;
  std::vector<double> rounds;
  for (const InstanceTime& i : instance_times(timeline)) {
    if (i.plan == kPrefill) continue;
    if (i.plan == kStart || rounds.empty()) rounds.push_back(0);
    rounds.back() += i.seconds();
  }
  if (rounds.size() > 1) rounds.erase(rounds.begin());
  return rounds;
}

double mean_seconds(const std::vector<InstanceTime>& times, const std::vector<std::uint32_t>& instances) {
  double sum = 0;
  for (const std::uint32_t i : instances) sum += times[i].seconds();
  return instances.empty() ? 0 : sum / double(instances.size());
}

}  // namespace orrery
