// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace orrery {

/// How far a law errs, by features of what it is asked: ln σ = Σ coefficientᵢ · featureᵢ, the first feature 1.
/// Coefficients by least squares of ln|error| with a slight pull to zero; then the contrast of ln σ and its level are
/// scaled: of the intervals that cover their share of the errors, those whose median is narrowest.
std::vector<double> fit_log_spread(const std::vector<std::vector<double>>& features, const std::vector<double>& errors,
                                   double covered);

}  // namespace orrery
