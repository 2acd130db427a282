// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/score.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr std::size_t kLeastRanked = 3, kLeastSweep = 5;
constexpr double kTail = 0.9;

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> out(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    for (std::size_t i = first; i <= last; ++i) out[order[i]] = double(first + last) / 2;
    first = last + 1;
  }
  return out;
}

/// "1e9" for work from 10⁹ up to 10¹⁰.
std::string decade(double size) { return size > 0 ? fmt::format("1e{:02.0f}", std::floor(std::log10(size))) : "none"; }

void add_slices(std::vector<TableSlice>& out, const std::vector<AccuracyPoint>& points, std::string_view by,
                const std::function<std::string(const AccuracyPoint&)>& name_of, std::size_t least) {
  std::map<std::string, PointRefs> groups;
  for (const AccuracyPoint& p : points) groups[name_of(p)].push_back(&p);
  if (groups.size() < least) return;
  for (const auto& [name, refs] : groups) out.push_back({std::string{by}, name, score(refs)});
}

std::string split_name(const AccuracyPoint& p) { return std::string{enum_name(p.split)}; }

std::optional<double> spearman_of(const PointRefs& points) {
  std::vector<double> measured, predicted;
  for (const AccuracyPoint* p : points) measured.push_back(p->value.measured), predicted.push_back(p->value.predicted);
  return spearman(measured, predicted);
}

}  // namespace

std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.size() < kLeastRanked) return {};
  const std::vector<double> a = ranks(x), b = ranks(y);
  const double middle = double(x.size() - 1) / 2;
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - middle) * (b[i] - middle);
    aa += (a[i] - middle) * (a[i] - middle);
    bb += (b[i] - middle) * (b[i] - middle);
  }
  if (aa == 0 || bb == 0) return {};
  return ab / std::sqrt(aa * bb);
}

Score score(const PointRefs& points) {
  Score s;
  s.points = points.size();
  if (points.empty()) return s;
  std::vector<double> errors, signs, widths;
  std::size_t covered = 0;
  for (const AccuracyPoint* p : points) {
    errors.push_back(p->error());
    signs.push_back(p->signed_error());
    widths.push_back(p->half_width());
    covered += p->is_covered();
    if (errors.back() >= s.worst) s.worst = errors.back(), s.worst_row = p->row_id;
  }
  s.mean_abs_error = std::accumulate(errors.begin(), errors.end(), 0.0) / double(errors.size());
  s.median_abs_error = median(errors);
  s.p90_abs_error = quantile(std::move(errors), kTail);
  s.median_signed_error = median(std::move(signs));
  s.median_half_width = median(std::move(widths));
  s.coverage = double(covered) / double(points.size());
  s.spearman = spearman_of(points);
  return s;
}

std::vector<TableSlice> slices(const std::vector<AccuracyPoint>& points) {
  std::vector<TableSlice> out;
  add_slices(out, points, "part", split_name, 1);
  add_slices(
      out, points, "gpu", [](const AccuracyPoint& p) { return p.value.gpu; }, 2);
  add_slices(
      out, points, "op", [](const AccuracyPoint& p) { return p.value.op; }, 2);
  add_slices(
      out, points, "size", [](const AccuracyPoint& p) { return decade(p.value.size); }, 2);
  add_slices(
      out, points, "source", [](const AccuracyPoint& p) { return p.value.source; }, 2);
  return out;
}

SweepScore score_sweeps(const std::vector<AccuracyPoint>& points) {
  std::map<std::string, PointRefs> sweeps;
  for (const AccuracyPoint& p : points)
    if (!p.value.sweep.empty()) sweeps[p.value.sweep].push_back(&p);
  SweepScore s;
  s.least_spearman = 1;
  for (const auto& [name, refs] : sweeps) {
    const std::optional<double> r = refs.size() < kLeastSweep ? std::nullopt : spearman_of(refs);
    if (!r) continue;
    s.mean_spearman += *r;
    s.least_spearman = std::min(s.least_spearman, *r);
    ++s.sweeps;
  }
  if (s.sweeps > 0) s.mean_spearman /= double(s.sweeps);
  return s;
}

}  // namespace orrery
