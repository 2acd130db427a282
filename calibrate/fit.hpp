// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "calibrate/measure.hpp"
#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// One equation of a fit: features · coefficients ≈ seconds.
struct Observation {
  std::vector<double> features;
  double seconds = 0;
  double weight = 1;
};

/// min Σ wᵢ (aᵢ·x − bᵢ)² over x ≥ 0: the active-set method of Lawson and Hanson. Rows of `a` are observations.
std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& a, const std::vector<double>& b);

/// Coefficients ≥ 0 that make the relative errors small, few large ones not counting in full (Huber). Features that do
/// not help to predict points left out of the fit are left out themselves (coefficient 0).
struct FitResult {
  std::vector<double> coefficients;
  std::vector<double> residuals;  // ln(measured / predicted) of each observation, from a fit without it
};
FitResult fit_relative(const std::vector<Observation>& observations);

/// σ of a normal distribution whose central 90 % holds 90 % of the residuals.
double spread(std::vector<double> residuals);

/// Fits the law of one slot to its points.
LawFit fit_law(const LawForm& form, const std::vector<const Point*>& points, const Caches& caches);

}  // namespace orrery
