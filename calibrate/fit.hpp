// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "calibrate/measure.hpp"
#include "calibrate/spread.hpp"
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

/// What is known of a coefficient before a fit, in seconds. One that is expected, or can be only so large, is drawn to
/// what is expected (0 if nothing is), as by one observation: where few points have much of its feature, they would
/// give it what is noise.
struct Known {
  double most = std::numeric_limits<double>::infinity();
  double expected = 0;
};

/// Coefficients ≥ 0 that make the relative errors small, few large ones not counting in full (Huber). Features that do
/// not help to predict points left out of the fit, unless their coefficient is expected, and those whose coefficient
/// would be more than it can be are left out themselves (coefficient 0). `known`: of each feature, or empty.
struct FitResult {
  std::vector<double> coefficients;
  std::vector<double> residuals;  // ln(measured / predicted) of each observation, from a fit without its group
};
FitResult fit_relative(const std::vector<Equation>& observations, std::vector<Known> known = {});

/// Fits the law of one slot to its points. Plans are left out as a whole to see how far it may be off elsewhere.
/// `megabyte`: what a core takes for a MB of memory while all cores pass through it.
LawFit fit_law(const LawForm& form, const std::vector<const Point*>& points, const Caches& caches, Seconds megabyte);

/// How far a law is off at points that its fit has not seen; all count alike. Known of these errors are, beside what is
/// left of the caches, that of each point's measured median, and the drift, which every prediction adds by itself.
std::vector<Residual> errors_at(const LawForm& form, const LawFit& law, const std::vector<const Point*>& points,
                                const Caches& caches, double drift);
/// Says that a law errs by so much.
void set_spread(LawFit& law, const Spread& spread);

}  // namespace orrery
