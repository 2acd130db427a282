// SPDX-License-Identifier: Apache-2.0
#include "calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

constexpr double kMadToSigma = 1.4826;    // 1 / Φ⁻¹(3/4)
constexpr double kMedianToMean = 1.2533;  // √(π/2): how much wider the median's error is than the mean's

}  // namespace

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(at), high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

double weighted_quantile(std::vector<std::pair<double, double>> values, double share) {
  double all = 0, below = 0;
  for (const auto& [value, weight] : values) all += weight;
  std::sort(values.begin(), values.end());
  for (const auto& [value, weight] : values)
    if ((below += weight) >= share * all) return value;
  return 0;
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

std::vector<Observed> quiet_ones(std::span<const Observed> values, std::size_t fewest) {
  std::vector<double> sizes;
  for (const Observed& o : values) sizes.push_back(o.disturbed);
  const std::size_t place = std::min(fewest, values.size());
  double limit = kQuiet;
  if (place > 0) {
    std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(place - 1), sizes.end());
    limit = std::max(limit, sizes[place - 1]);
  }
  std::vector<Observed> out;
  for (const Observed& o : values)
    if (o.disturbed <= limit) out.push_back(o);
  return out;
}

std::vector<double> quiet_values(std::span<const Observed> values, std::size_t fewest) {
  std::vector<double> out;
  for (const Observed& o : quiet_ones(values, fewest)) out.push_back(o.value);
  return out;
}

double jitter(std::span<const double> values) {
  if (values.size() < 2) return 0;
  double squares = 0;
  for (std::size_t i = 1; i < values.size(); ++i) squares += std::pow(std::log(values[i] / values[i - 1]), 2);
  return std::sqrt(squares / 2 / double(values.size() - 1));
}

double slow_deviation(std::span<const double> values) {
  constexpr std::size_t kParts = 6, kFewest = 3;
  const double middle = median({values.begin(), values.end()});
  double squares = 0, by_chance = 0, parts = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    const std::size_t first = i * values.size() / kParts, last = (i + 1) * values.size() / kParts;
    if (last - first < kFewest) continue;
    const RobustSummary s = summarise(values.subspan(first, last - first));
    squares += std::pow(s.median / middle - 1, 2);
    by_chance += std::pow(s.median_error / middle, 2);
    ++parts;
  }
  return parts < 2 ? 0 : std::sqrt(std::max(0.0, squares / (parts - 1) - by_chance / parts));
}

double trimmed_rms(std::vector<double> sizes) {
  std::sort(sizes.begin(), sizes.end());
  sizes.resize(sizes.size() - sizes.size() / 10);
  double sum = 0;
  for (const double s : sizes) sum += s * s;
  return sizes.empty() ? 0 : std::sqrt(sum / double(sizes.size()));
}

RobustSummary summarise(std::span<const double> values) {
  RobustSummary s;
  s.count = values.size();
  if (values.empty()) return s;
  s.median = median({values.begin(), values.end()});
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const double v : values) distances.push_back(std::abs(v - s.median));
  s.deviation = kMadToSigma * median(std::move(distances));
  s.median_error = kMedianToMean * s.deviation / std::sqrt(static_cast<double>(values.size()));
  return s;
}

std::vector<std::span<const Observed>> by_visit(std::span<const Observed> values) {
  std::vector<std::span<const Observed>> out;
  for (auto first = values.begin(); first != values.end();) {
    const auto last = std::find_if(first, values.end(), [&](const Observed& o) { return o.visit != first->visit; });
    out.emplace_back(first, last);
    first = last;
  }
  return out;
}

std::vector<double> visit_medians(std::span<const Observed> values) {
  std::vector<double> out;
  for (const std::span<const Observed> visit : by_visit(values)) {
    std::vector<double> mine;
    for (const Observed& o : visit) mine.push_back(o.value);
    out.push_back(median(std::move(mine)));
  }
  return out;
}

RobustSummary summarise_visits(std::span<const Observed> values) {
  std::vector<double> all;
  for (const Observed& o : values) all.push_back(o.value);
  const std::vector<double> middles = visit_medians(values);
  RobustSummary s = summarise(all);
  const double n = double(middles.size());
  if (middles.size() < 2) return s;
  double mean = 0, squares = 0;
  for (const double m : middles) mean += m / n;
  for (const double m : middles) squares += (m - mean) * (m - mean);
  s.median_error = kMedianToMean * std::sqrt(squares / (n - 1) / n);
  return s;
}

}  // namespace orrery
