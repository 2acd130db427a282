// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hw_models/software_profile.hpp"
#include "sim/app/accuracy/evaluate.hpp"

namespace orrery {

/// How far one forecast of a profile was off.
struct Miss {
  std::string row_id;
  std::string forecast;  // by which name it tells of the profile's deviations
  double error = 0;      // ln(measured / predicted), over `Observation::unit`
  double scatter = 0;    // that the source states
};
std::vector<Miss> misses_of(const EvaluatedTable& table, std::string_view profile);

/// What rows tell of one kind of forecast.
struct ToldDeviation {
  std::string forecast;
  std::size_t rows = 0, told = 0;
  double deviation = 0;
};

/// Of each kind of forecast, the third of its rows whose hash of ids is highest: fits of a profile's numbers take rows
/// from the other end, and models that they hold out whole are in it. Rows whose source states a scatter tell only
/// where no others do.
///   20 rows and more:  the 88.5 % quantile of |ln(measured / predicted)| over 1.645, without a form of its tails
///   fewer:             root mean square · t / 1.645, Student's t of so many rows at 95 %
/// Of fewer than three nothing is told.
std::vector<ToldDeviation> tell_deviations(std::vector<Miss> misses);

/// Into `deviation` (steps, or tokens of servers), `memory_deviation` and `deviations`, in place of all of the same
/// sort: those of single requests ("each_…"), or the others.
void set_deviations(SoftwareProfile& profile, const std::vector<ToldDeviation>& told);

}  // namespace orrery
