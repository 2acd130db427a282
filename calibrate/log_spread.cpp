// SPDX-License-Identifier: Apache-2.0
#include "calibrate/log_spread.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>

#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr double kRidge = 3.0, kFloor = 0.004;

/// Scales the contrast of ln σ and then its level.
void sharpen(Eigen::VectorXd& spread, const Eigen::VectorXd& log_sigma, const std::vector<double>& errors,
             double covered) {
  constexpr double kContrasts[] = {0.5, 0.75, 1, 1.25, 1.5, 1.75, 2};
  const double middle = log_sigma.mean();
  double narrowest = HUGE_VAL, contrast = 1, level = 0;
  for (const double c : kContrasts) {
    std::vector<double> scaled, widths;
    for (Eigen::Index i = 0; i < log_sigma.size(); ++i) {
      widths.push_back(std::exp(middle + c * (log_sigma[i] - middle)));
      scaled.push_back(std::abs(errors[std::size_t(i)]) / (kNinetyPercent * widths.back()));
    }
    const double scale = std::max(1e-3, quantile(std::move(scaled), covered)),
                 width = scale * median(std::move(widths));
    if (width < narrowest) narrowest = width, contrast = c, level = std::log(scale);
  }
  spread *= contrast;
  spread[0] += middle * (1 - contrast) + level;
}

}  // namespace

std::vector<double> fit_log_spread(const std::vector<std::vector<double>>& features, const std::vector<double>& errors,
                                   double covered) {
  Eigen::MatrixXd x(Eigen::Index(features.size()), Eigen::Index(features.front().size()));
  Eigen::VectorXd y(x.rows());
  for (Eigen::Index i = 0; i < x.rows(); ++i) {
    const std::vector<double>& f = features[std::size_t(i)];
    x.row(i) = Eigen::Map<const Eigen::RowVectorXd>(f.data(), x.cols());
    y[i] = std::log(std::abs(errors[std::size_t(i)]) + kFloor);
  }
  Eigen::MatrixXd a = x.transpose() * x;
  a.diagonal().tail(a.rows() - 1).array() += kRidge;
  a(0, 0) += 1e-6;
  Eigen::VectorXd spread = a.ldlt().solve(x.transpose() * y);
  sharpen(spread, x * spread, errors, covered);
  return {spread.begin(), spread.end()};
}

}  // namespace orrery
