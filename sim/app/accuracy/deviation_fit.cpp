// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/deviation_fit.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/statistics.hpp"
#include "sim/app/accuracy/profile_fit.hpp"

namespace orrery {
namespace {

constexpr double kCovered = 0.885;  // as of the laws of kernels
constexpr double kShare = 1.0 / 3;  // of the rows
constexpr std::size_t kLeast = 3;
/// Student's t of 1, 2, … degrees of freedom, below which 95 % lie.
constexpr double kStudent[] = {6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812,
                               1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729};

double deviation_of(std::vector<double> errors) {
  const std::size_t n = errors.size();
  for (double& e : errors) e = std::abs(e);
  if (n <= std::size(kStudent)) {
    double squares = 0;
    for (const double e : errors) squares += e * e;
    return std::sqrt(squares / double(n)) * kStudent[n - 1] / kNinetyPercent;
  }
  std::sort(errors.begin(), errors.end());
  const auto place = static_cast<std::size_t>(std::ceil(kCovered * double(n + 1)));
  return errors[std::min(n, place) - 1] / kNinetyPercent;
}

}  // namespace

std::vector<Miss> misses_of(const EvaluatedTable& table, std::string_view profile) {
  std::vector<Miss> out;
  for (std::size_t i = 0; i < table.results.size(); ++i) {
    const auto* row = std::get_if<RowPrediction>(&table.results[i]);
    if (!row) continue;
    for (const Observation& o : row->observations)
      if (o.profile == profile)
        out.push_back({table.row_ids[i], o.forecast, std::log(o.measured / o.predicted) / o.unit, o.scatter});
  }
  return out;
}

std::vector<ToldDeviation> tell_deviations(std::vector<Miss> misses) {
  std::stable_sort(misses.begin(), misses.end(),
                   [](const Miss& a, const Miss& b) { return place_of(a.row_id) > place_of(b.row_id); });
  std::map<std::string, std::vector<double>> sure, scattered;
  for (const Miss& m : misses) (m.scatter > 0 ? scattered : sure)[m.forecast].push_back(m.error);
  for (auto& [forecast, errors] : scattered)
    if (!sure.contains(forecast)) sure[forecast] = std::move(errors);
  std::vector<ToldDeviation> out;
  for (auto& [forecast, errors] : sure) {
    ToldDeviation t{.forecast = forecast, .rows = errors.size()};
    errors.resize(static_cast<std::size_t>(std::ceil(kShare * double(errors.size()))));
    t.told = errors.size();
    if (t.told < kLeast) continue;
    t.deviation = deviation_of(std::move(errors));
    out.push_back(t);
  }
  return out;
}

void set_deviations(SoftwareProfile& profile, const std::vector<ToldDeviation>& told) {
  const auto of_each = [](std::string_view forecast) { return forecast.starts_with("each_"); };
  std::erase_if(profile.deviations, [&](const auto& known) {
    return std::any_of(told.begin(), told.end(),
                       [&](const ToldDeviation& t) { return of_each(t.forecast) == of_each(known.first); });
  });
  for (const ToldDeviation& t : told) {
    if (t.forecast == "step" || t.forecast == "token")
      profile.deviation = t.deviation;
    else if (t.forecast == "memory")
      profile.memory_deviation = t.deviation;
    else
      profile.deviations[t.forecast] = t.deviation;
  }
}

}  // namespace orrery
