// SPDX-License-Identifier: Apache-2.0
#include "calibrate/spread.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "calibrate/statistics.hpp"

namespace orrery {
namespace {

constexpr double kLeastSigma = 0.005;  // no op is predicted better than that
// A standard deviation is told from how far this part of the residuals reaches, and how far it does in a normal
// distribution: the largest ones are of plans that something disturbed.
constexpr double kPart = 0.80, kReach = 1.2816;

/// Under this floor and doubt of memory: the relative part of the standard deviation, and how badly residuals of that
/// size fit: the mean of −ln of the density of Student's t with four degrees of freedom, whose tails are those of
/// machines that are not idle.
std::pair<double, double> sigma_above(const std::vector<Residual>& residuals, double floor, double memory) {
  constexpr double kFreedom = 4;
  std::vector<std::pair<double, double>> needed;  // with weights
  const auto other = [&](const Residual& r) { return std::hypot(floor / r.seconds, memory * r.beyond, r.known); };
  for (const Residual& r : residuals)
    needed.emplace_back(std::pow(r.value / kReach, 2) - std::pow(other(r), 2), r.weight);
  const double sigma = std::sqrt(std::max(kLeastSigma * kLeastSigma, weighted_quantile(std::move(needed), kPart)));
  double misfit = 0, all = 0;
  for (const Residual& r : residuals) {
    const double size = std::hypot(sigma, other(r)), z = r.value / size;
    misfit += r.weight * (std::log(size) + (kFreedom + 1) / 2 * std::log1p(z * z / kFreedom));
    all += r.weight;
  }
  return {sigma, misfit / all};
}

}  // namespace

Spread spread(const std::vector<Residual>& residuals) {
  if (residuals.empty()) return {};
  Spread best;
  double least = std::numeric_limits<double>::infinity();
  for (const double floor : {0.0, 5e-9, 1e-8, 2e-8, 5e-8, 1e-7, 2e-7, 5e-7, 1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4}) {
    for (const double memory : {0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8}) {
      const auto [sigma, misfit] = sigma_above(residuals, floor, memory);
      if (misfit < least) least = misfit, best = {sigma, floor, memory};
    }
  }
  return best;
}

}  // namespace orrery
