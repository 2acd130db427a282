// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "calibrate/measure.hpp"
#include "hw_models/host_laws.hpp"
#include "hw_models/host_parameters.hpp"

namespace orrery {

/// One equation of a fit: features · coefficients ≈ seconds.
struct Equation {
  std::vector<double> features;
  double seconds = 0;
  double weight = 1;
  std::uint32_t group = 0;  // those of one group are left out together
};

/// min Σ wᵢ (aᵢ·x − bᵢ)² over x ≥ 0: the active-set method of Lawson and Hanson. Rows of `a` are observations.
std::vector<double> nonnegative_least_squares(const std::vector<std::vector<double>>& a, const std::vector<double>& b);

/// Coefficients ≥ 0 that make the relative errors small, few large ones not counting in full (Huber). Features that do
/// not help to predict points left out of the fit, and those whose coefficient would be more than it can be (`most`, one
/// of each feature; empty: anything), are left out themselves (coefficient 0).
struct FitResult {
  std::vector<double> coefficients;
  std::vector<double> residuals;  // ln(measured / predicted) of each observation, from a fit without its group
};
FitResult fit_relative(const std::vector<Equation>& observations, std::vector<double> most = {});

/// A prediction that missed: ln(measured / predicted), how long it took, how much it counts, and the part of its
/// standard deviation that is known already: of the measured time, and of what is left of the caches.
struct Residual {
  double value = 0, seconds = 0, weight = 1, known = 0;
};
/// Errors of size √(sigma² + (floor / seconds)² + known²): relative ones, and what short ops err by.
struct Spread {
  double sigma = 0, floor = 0;
};
/// The spread under which the residuals are most likely, and seven of ten of them as far out as in a normal
/// distribution: the largest ones, of plans that something disturbed, do not count in full.
Spread spread(const std::vector<Residual>& residuals);

/// Fits the law of one slot to its points. Plans are left out as a whole to see how far it may be off elsewhere.
LawFit fit_law(const LawForm& form, const std::vector<const Point*>& points, const Caches& caches);

}  // namespace orrery
