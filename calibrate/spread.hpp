// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace orrery {

/// A prediction that missed: ln(measured / predicted), how long it took, how much it counts, and the part of its
/// standard deviation that is known already, of what is left of the caches. `beyond`: the part of the time that what has
/// left a cache takes.
struct Residual {
  double value = 0, seconds = 0, weight = 1, known = 0, beyond = 0;
};
/// Errors of size √(sigma² + (floor / seconds)² + (memory · beyond)² + known²): relative ones, what short ops err by,
/// and what memory does.
struct Spread {
  double sigma = 0, floor = 0, memory = 0;
};
/// The spread under which the residuals are most likely, and 80 % of them as near as in a normal distribution: the
/// largest ones, of plans that something disturbed, do not count in full.
Spread spread(const std::vector<Residual>& residuals);

}  // namespace orrery
