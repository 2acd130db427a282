// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/interval.hpp"

#include <cmath>
#include <map>

#include "sim/base/error.hpp"

namespace orrery {

Interval log_normal_interval(Seconds value, double deviation) {
  constexpr double kQuantile95 = 1.6448536269514722;  // 5 % of a normal distribution lie above it
  const double factor = std::exp(kQuantile95 * deviation);
  return {value, value / factor, value * factor, deviation};
}

Interval makespan_interval(const Timeline& timeline, const CriticalPath& path,
                           std::span<const SpanDeviation> deviations, double whole) {
  if (deviations.size() != path.segments.size()) bug("an interval needs one deviation per segment of the path");
  const double makespan = timeline.makespan().base();
  if (makespan <= 0) return {};
  double variance = makespan * whole * makespan * whole;
  double common = 0;
  std::map<std::uint32_t, double> shared;
  for (std::size_t i = 0; i < deviations.size(); ++i) {
    const PathSegment& segment = path.segments[i];
    if (segment.is_gap) continue;
    const SpanDeviation& d = deviations[i];
    const double seconds = double(segment.end_ps - segment.start_ps) * 1e-12;
    variance += seconds * d.independent * seconds * d.independent;
    shared[d.group] += seconds * d.shared;
    common += seconds * d.common;
  }
  for (const auto& [group, sum] : shared) variance += sum * sum;
  variance += common * common;
  return log_normal_interval(timeline.makespan(), std::sqrt(variance) / makespan);
}

}  // namespace orrery
