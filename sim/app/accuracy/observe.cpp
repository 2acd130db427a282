// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "calibrate/statistics.hpp"
#include "sim/app/accuracy/published_step.hpp"

namespace orrery {

double scatter_of(const CsvRow& row) {
  constexpr std::string_view kSays = "vary by up to +/-";
  if (!row.has("notes") || !contains(row["notes"], kSays)) return 0;
  const std::vector<double> percents = numbers_in(row["notes"].substr(row["notes"].find(kSays) + kSays.size()));
  return percents.empty() ? 0 : std::log1p(percents.front() / 100) / kNinetyPercent;
}

Observation observe(const CsvRow& row, const MeasuredForecast& observed, const SoftwareProfile& profile) {
  Observation o;
  o.scatter = observed.forecast.kind == "memory" ? 0 : scatter_of(row);
  const double deviation = std::hypot(profile.deviation_of(observed.forecast), o.scatter);
  o.quantity = observed.quantity;
  o.measured = observed.measured;
  o.predicted = observed.predicted;
  o.low = o.predicted * std::exp(-kNinetyPercent * deviation);
  o.high = o.predicted * std::exp(kNinetyPercent * deviation);
  o.gpu = row["gpu"];
  o.op = row["model"];
  o.source = row["section"];
  o.sweep = fmt::format("{} {} {}", row["section"], row["gpu"], row["precision"]);
  o.size = o.measured;
  o.profile = profile.name;
  o.forecast = profile.told_by(observed.forecast);
  return o;
}

}  // namespace orrery
