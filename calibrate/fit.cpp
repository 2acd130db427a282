// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "calibrate/nonnegative.hpp"

namespace orrery {
namespace {

constexpr int kFolds = 6;
constexpr std::size_t kFewestToJudge = 12;  // observations that features are left out by
constexpr int kHuberRounds = 6;
constexpr double kHuber = 1.345;        // σ beyond which a residual counts linearly
constexpr double kWeightFloor = 0.005;  // least σ that the weights assume
constexpr double kHelps = 0.9;  // a feature for a few observations brings the error below this part of what it was
// A coefficient of which nothing is expected, but that can be only so large, is of this part of that: of a MB what 20
// GB/s take. As much off costs as an observation does that is off by so much.
constexpr double kUsual = 0.01, kCostOfUsual = 0.1;
constexpr double kWorthwhile = 0.9995;  // a simpler fit is taken unless the error falls below this part of its

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

/// A fit in progress: observations as rows divided by their seconds, so that residuals are relative.
class RelativeFit {
 public:
  RelativeFit(const std::vector<Equation>& observations, std::vector<Known> known)
      : a_(static_cast<Eigen::Index>(observations.size()),
           static_cast<Eigen::Index>(observations.front().features.size())),
        weights_(static_cast<Eigen::Index>(observations.size())),
        known_{std::move(known)} {
    known_.resize(static_cast<std::size_t>(a_.cols()));
    for (Eigen::Index i = 0; i < a_.rows(); ++i) {
      const Equation& o = observations[static_cast<std::size_t>(i)];
      for (Eigen::Index j = 0; j < a_.cols(); ++j) a_(i, j) = o.features[static_cast<std::size_t>(j)] / o.seconds;
      weights_[i] = std::sqrt(o.weight);
    }
    scale_columns();
    draw_coefficients();
    share_out(observations);
  }

  /// Of each feature: whether its coefficient is expected, so that it stays in the fit.
  std::vector<bool> expected() const {
    std::vector<bool> out;
    for (const Known& k : known_) out.push_back(k.expected > 0);
    return out;
  }

  /// Coefficients of the scaled columns, by Huber's weights, from the rows that are not of `left_out` (−1: all rows).
  Vector solve(const std::vector<bool>& used, int left_out) const {
    std::vector<Eigen::Index> rows, cols;
    for (Eigen::Index i = 0; i < a_.rows(); ++i)
      if (left_out < 0 || fold_[static_cast<std::size_t>(i)] != left_out) rows.push_back(i);
    for (Eigen::Index j = 0; j < a_.cols(); ++j)
      if (used[static_cast<std::size_t>(j)]) cols.push_back(j);
    for (;;) {
      const Vector part = solve(rows, cols);
      const auto beyond = [&](std::size_t j) {
        return part[static_cast<Eigen::Index>(j)] > known_[static_cast<std::size_t>(cols[j])].most * scales_[cols[j]];
      };
      std::vector<Eigen::Index> possible;
      for (std::size_t j = 0; j < cols.size(); ++j)
        if (!beyond(j)) possible.push_back(cols[j]);
      if (possible.size() == cols.size()) {
        Vector x = Vector::Zero(a_.cols());
        for (std::size_t j = 0; j < cols.size(); ++j) x[cols[j]] = part[static_cast<Eigen::Index>(j)];
        return x;
      }
      cols = std::move(possible);
    }
  }

  /// ln(measured / predicted) of each row, from coefficients that were fitted without it.
  std::vector<double> left_out_residuals(const std::vector<bool>& used) const {
    std::vector<double> out(static_cast<std::size_t>(a_.rows()));
    for (int f = 0; f < kFolds; ++f) {
      const Vector predicted = a_ * solve(used, f);
      for (Eigen::Index i = 0; i < a_.rows(); ++i)
        if (fold_[static_cast<std::size_t>(i)] == f)
          out[static_cast<std::size_t>(i)] = -std::log(std::max(1e-3, predicted[i]));
    }
    return out;
  }

  /// Weighted mean of |residual|, each at most 1.
  double error(const std::vector<double>& residuals) const {
    double sum = 0, weights = 0;
    for (Eigen::Index i = 0; i < a_.rows(); ++i) {
      const double w = weights_[i] * weights_[i];
      sum += w * std::min(1.0, std::abs(residuals[static_cast<std::size_t>(i)]));
      weights += w;
    }
    return sum / weights;
  }

  /// Squares of relative errors punish predictions that are too long more than those that are too short; this factor
  /// puts the middle (by weight) of ln(measured / predicted) at zero again.
  double centre(const std::vector<double>& residuals) const {
    std::vector<std::pair<double, double>> sorted;
    double all = 0, below = 0;
    for (Eigen::Index i = 0; i < a_.rows(); ++i) {
      sorted.emplace_back(residuals[static_cast<std::size_t>(i)], weights_[i] * weights_[i]);
      all += sorted.back().second;
    }
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [residual, weight] : sorted)
      if ((below += weight) >= all / 2) return std::exp(residual);
    return 1;
  }

  std::vector<double> unscaled(const Vector& x) const {
    std::vector<double> out(static_cast<std::size_t>(x.size()));
    for (Eigen::Index j = 0; j < x.size(); ++j)
      out[static_cast<std::size_t>(j)] = scales_[j] > 0 ? x[j] / scales_[j] : 0;
    return out;
  }

 private:
  Vector solve(const std::vector<Eigen::Index>& rows, const std::vector<Eigen::Index>& cols) const {
    const Matrix a = a_(rows, cols);
    const Vector base = weights_(rows);
    Matrix all(a.rows() + a.cols(), a.cols());  // observations, and what draws the coefficients
    all.bottomRows(a.cols()) = drawn_(cols).asDiagonal();
    Vector w = base, wanted(all.rows()), part = Vector::Zero(a.cols());
    wanted.tail(a.cols()) = drawn_to_(cols);
    for (int round = 0; round < kHuberRounds; ++round) {
      all.topRows(a.rows()) = w.asDiagonal() * a;
      wanted.head(a.rows()) = w;
      part = nonnegative_least_squares(all, wanted, part);
      const Vector r = a * part - Vector::Ones(a.rows());
      std::vector<double> sizes(static_cast<std::size_t>(r.size()));
      for (Eigen::Index i = 0; i < r.size(); ++i) sizes[static_cast<std::size_t>(i)] = std::abs(r[i]);
      const double sigma = std::max(kWeightFloor, 1.4826 * median(sizes));
      for (Eigen::Index i = 0; i < r.size(); ++i)
        w[i] = base[i] * std::sqrt(std::min(1.0, kHuber * sigma / std::max(1e-300, std::abs(r[i]))));
    }
    return part;
  }

  /// Groups go to the folds in turn; a single group, or none, is scattered.
  void share_out(const std::vector<Equation>& observations) {
    std::map<std::uint32_t, int> folds;
    for (const Equation& o : observations) folds.try_emplace(o.group, static_cast<int>(folds.size()) % kFolds);
    const bool has_groups = folds.size() >= kFolds;
    for (std::size_t i = 0; i < observations.size(); ++i)
      fold_.push_back(has_groups ? folds[observations[i].group] : static_cast<int>((i * 2654435761u >> 7) % kFolds));
  }

  void scale_columns() {
    scales_ = a_.colwise().norm();
    for (Eigen::Index j = 0; j < a_.cols(); ++j)
      if (scales_[j] > 0) a_.col(j) /= scales_[j];
  }

  void draw_coefficients() {
    drawn_ = drawn_to_ = Vector::Zero(a_.cols());
    for (Eigen::Index j = 0; j < a_.cols(); ++j) {
      const Known& k = known_[static_cast<std::size_t>(j)];
      if (!(scales_[j] > 0)) continue;
      drawn_[j] = kCostOfUsual / ((k.expected > 0 ? k.expected : kUsual * k.most) * scales_[j]);
      if (k.expected > 0) drawn_to_[j] = kCostOfUsual;
    }
  }

  Matrix a_;
  Vector weights_, scales_;
  Vector drawn_, drawn_to_;  // of each scaled coefficient, an equation: drawn · coefficient = drawn_to
  std::vector<Known> known_;
  std::vector<int> fold_;  // of each row
};

}  // namespace

std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& a, const std::vector<double>& b) {
  if (a.empty()) return {};
  Matrix m(static_cast<Eigen::Index>(a.size()), static_cast<Eigen::Index>(a.front().size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      m(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = a[i][j];
  const Vector x = nonnegative_least_squares(m, Eigen::Map<const Vector>(b.data(), static_cast<Eigen::Index>(b.size())),
                                             Vector::Zero(m.cols()));
  return {x.data(), x.data() + x.size()};
}

namespace {

FitResult centred(const RelativeFit& fit, const std::vector<bool>& used, std::vector<double> residuals) {
  const double factor = fit.centre(residuals);
  for (double& r : residuals) r -= std::log(factor);
  return {fit.unscaled(factor * fit.solve(used, -1)), std::move(residuals)};
}

}  // namespace

namespace {

/// A few observations bear a few features only: from the call alone on, each time the feature that helps most, while it
/// helps and there are four observations for each.
FitResult fit_few(const RelativeFit& fit, std::size_t observations) {
  std::vector<bool> used = fit.expected();
  used.front() = true;
  std::vector<double> residuals = fit.left_out_residuals(used);
  for (std::size_t count = 1; 4 * count <= observations; ++count) {
    std::size_t best = 0;
    double least = kHelps * fit.error(residuals);
    for (std::size_t j = 1; j < used.size(); ++j) {
      if (used[j]) continue;
      used[j] = true;
      std::vector<double> with = fit.left_out_residuals(used);
      used[j] = false;
      if (const double e = fit.error(with); e < least) least = e, best = j, residuals = std::move(with);
    }
    if (best == 0) break;
    used[best] = true;
  }
  return centred(fit, used, std::move(residuals));
}

}  // namespace

FitResult fit_relative(const std::vector<Equation>& observations, std::vector<Known> known) {
  if (observations.empty()) return {};
  const RelativeFit fit{observations, std::move(known)};
  if (observations.size() < kFewestToJudge) return fit_few(fit, observations.size());
  const std::vector<bool> stays = fit.expected();
  std::vector<bool> used(stays.size(), true);
  std::vector<double> residuals = fit.left_out_residuals(used);
  double error = fit.error(residuals);
  for (std::size_t j = used.size(); j-- > 1;) {  // the first feature, the call, stays
    if (stays[j]) continue;
    used[j] = false;
    std::vector<double> without = fit.left_out_residuals(used);
    if (const double e = fit.error(without); e * kWorthwhile <= error)
      error = e, residuals = std::move(without);
    else
      used[j] = true;
  }
  return centred(fit, used, std::move(residuals));
}

namespace {

using Weighted = std::vector<std::pair<double, double>>;  // values with weights

void widen(std::vector<double>& range, double value) {
  if (range.empty()) range = {value, value};
  range = {std::min(range[0], value), std::max(range[1], value)};
}

/// Laws are to be right where steps spend their time, though most of their ops are short.
double weight_of_length(double seconds) {
  constexpr double kUsualOp = 1e-4, kLeast = 0.3, kMost = 5;
  return std::clamp(std::pow(seconds / kUsualOp, 0.25), kLeast, kMost);
}

/// What a law is off by at each point, and what is known of that. That visits differ is no such thing: so does what a
/// prediction is compared with.
std::vector<Residual> errors_of(const LawForm& form, std::span<const double> coefficients,
                                const std::vector<const Point*>& points, const Caches& caches) {
  std::vector<Residual> out;
  for (const Point* p : points) {
    const LawInput input{p->work, p->bindings, p->ranks};
    const HostLawTime law = law_time(form, coefficients, input, caches);
    out.push_back({std::log(p->seconds.median / law.seconds), p->seconds.median, p->weight,
                   cache_doubt(form, coefficients, input, caches), law.beyond});
  }
  return out;
}

}  // namespace

LawFit fit_law(const LawForm& form, const std::vector<const Point*>& points, const Caches& caches, Seconds megabyte) {
  std::vector<Equation> observations;
  LawFit fit;
  for (const Point* p : points) {
    const LawInput input{p->work, p->bindings, p->ranks};
    const FeatureRow row = features_of(form, input, caches);
    observations.push_back({{row.begin(), row.begin() + static_cast<std::ptrdiff_t>(form.features.size())},
                            p->seconds.median,
                            p->weight * weight_of_length(p->seconds.median),
                            p->plan});
    const AxisRow sizes = form.sizes(input);
    for (std::size_t i = 0; i < form.axes.size(); ++i) widen(fit.range[std::string{form.axes[i]}], sizes[i]);
  }
  std::vector<Known> known;
  for (const Feature& f : form.features) known.push_back({f.most, f.passes * megabyte.base()});
  const FitResult result = fit_relative(observations, std::move(known));
  for (std::size_t i = 0; i < form.features.size(); ++i)
    if (result.coefficients[i] > 0)
      fit.coefficients[std::string{form.features[i].name}] = Seconds{result.coefficients[i]};
  std::vector<Residual> residuals = errors_of(form, result.coefficients, points, caches);
  Weighted noise, sizes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    residuals[i].value = result.residuals[i];
    noise.emplace_back(points[i]->seconds.deviation / points[i]->seconds.median, points[i]->weight);
    sizes.emplace_back(std::abs(result.residuals[i]), points[i]->weight);
  }
  fit.points = static_cast<std::int64_t>(points.size());
  fit.deviation = weighted_quantile(noise, 0.5);
  set_spread(fit, spread(residuals));
  fit.median_error = weighted_quantile(sizes, 0.5);
  fit.worst_error = std::max_element(sizes.begin(), sizes.end())->first;
  return fit;
}

std::vector<Residual> errors_at(const LawForm& form, const LawFit& law, const std::vector<const Point*>& points,
                                const Caches& caches, double drift) {
  std::vector<double> coefficients;
  for (const Feature& f : form.features) {
    const auto c = law.coefficients.find(std::string{f.name});
    coefficients.push_back(c != law.coefficients.end() ? c->second.base() : 0);
  }
  std::vector<Residual> out = errors_of(form, coefficients, points, caches);
  for (std::size_t i = 0; i < points.size(); ++i) {
    out[i].weight = 1;
    out[i].known = std::hypot(out[i].known, points[i]->seconds.median_error / points[i]->seconds.median, drift);
  }
  return out;
}

void set_spread(LawFit& law, const Spread& spread) {
  law.deviation = std::min(law.deviation, spread.sigma);
  law.bias = std::sqrt(spread.sigma * spread.sigma - law.deviation * law.deviation);
  law.memory = spread.memory;
  law.floor = Seconds{spread.floor};
}

}  // namespace orrery
