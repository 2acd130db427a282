// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace orrery {

/// The middle value; the mean of the two middle ones of an even number. Of none: 0.
double median(std::vector<double> values);
/// The value below which this share lies, interpolated; `share` from 0 to 1.
double quantile(std::vector<double> values, double share);
/// Of values with weights: the first, in order, up to which this share of all weights lies. Of none: 0.
double weighted_quantile(std::vector<std::pair<double, double>> values, double share);

/// A measurement, how much something else slowed the cores meanwhile (Executor::disturbed), and the visit that it
/// belongs to: those of one visit follow upon each other and are alike.
struct Observed {
  double value = 0, disturbed = 0;
  std::uint32_t visit = 0;
};
/// Slowed by so little that it counts as quiet.
constexpr double kQuiet = 0.06;
constexpr bool is_quiet(double disturbed) { return disturbed <= kQuiet; }
/// The quiet ones, in order; where they are fewer than `fewest`, as many as that of the least disturbed.
std::vector<Observed> quiet_ones(std::span<const Observed> values, std::size_t fewest);
std::vector<double> quiet_values(std::span<const Observed> values, std::size_t fewest);

/// What repeated measurements of one thing amount to, unmoved by a few outliers.
struct RobustSummary {
  double median = 0;
  double deviation = 0;     // 1.4826 · median |x − median|: σ of a normal distribution
  double median_error = 0;  // standard error of the median: 1.2533 · deviation / √n
  std::size_t count = 0;

  /// Half-width of the 95 % interval of the median, relative.
  double relative_error() const { return median > 0 ? 1.96 * median_error / median : 0; }
};
RobustSummary summarise(std::span<const double> values);
/// Those of each visit, in order.
std::vector<std::span<const Observed>> by_visit(std::span<const Observed> values);
/// The middle one of each visit, in order.
std::vector<double> visit_medians(std::span<const Observed> values);
/// Of measurements that came in several visits: the error of the median is that of so many visits as there are, from
/// how far their medians lie apart.
RobustSummary summarise_visits(std::span<const Observed> values);

/// Relative standard deviation of neighbouring values: what changes from one to the next. 0 of fewer than two.
double jitter(std::span<const double> values);
/// Relative standard deviation of what comes and goes slowly: of the middle over each sixth of these values, in order,
/// less what so few vary by when nothing does. 0 where fewer than two of the sixths have three.
double slow_deviation(std::span<const double> values);
/// Root mean square of all but the largest tenth.
double trimmed_rms(std::vector<double> sizes);

/// z of the two-sided 90 % interval of a normal distribution.
constexpr double kMiddleOfNormal = 0.6745;  // half of a normal distribution lies within so many σ
constexpr double kNinetyPercent = 1.6448536269514722;

}  // namespace orrery
