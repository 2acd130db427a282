// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/app/accuracy/evaluate.hpp"

namespace orrery {

/// How well points are predicted. Errors are |predicted − measured| / measured.
struct Score {
  std::size_t points = 0;
  double median_abs_error = 0, mean_abs_error = 0, p90_abs_error = 0, worst = 0;
  std::string worst_row;
  double median_signed_error = 0;  // below 0: predicted too fast
  double coverage = 0;             // share of measurements inside of the 90 % interval
  double median_half_width = 0;    // of the intervals, relative
  std::optional<double> spearman;  // rank correlation of predicted with measured; nothing for fewer than 3 points
};

using PointRefs = std::vector<const AccuracyPoint*>;
Score score(const PointRefs& points);

/// Rank correlation, equal values share the mean of their ranks; nothing for fewer than 3 values or equal ones only.
std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y);

/// A slice of a table: "gpu", "H100-80GB-SXM".
struct TableSlice {
  std::string by, name;
  Score score;
};
/// By part of the table, GPU, op, decade of work and source, in this order; a property with one value only is left out,
/// but not the parts.
std::vector<TableSlice> slices(const std::vector<AccuracyPoint>& points);

/// Rank correlation within sweeps of at least 5 points: the mean over sweeps, and how many there are.
struct SweepScore {
  double mean_spearman = 0, least_spearman = 0;
  std::size_t sweeps = 0;
};
SweepScore score_sweeps(const std::vector<AccuracyPoint>& points);

}  // namespace orrery
