// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/base/random.hpp"
#include "sim/program/serving/request_options.hpp"

namespace orrery {

/// A stream of arrivals: `rate` a second in the mean; `cv` is of gamma gaps, `burst` and `period` (seconds) are of a
/// bursty stream.
struct ArrivalProcess {
  Arrival kind = Arrival::Poisson;
  double rate = 1, cv = 1, burst = 4, period = 60;
};

/// Draws one arrival after the other, in seconds from the first; that of a bursty stream is drawn, too.
class ArrivalTimes {
 public:
  ArrivalTimes(const ArrivalProcess& process, Random random) : process_{process}, random_{random} {}
  double next();

 private:
  double after_now();
  double bursty();

  ArrivalProcess process_;
  Random random_;
  double now_ = 0;
  bool first_ = true;
};

/// Gamma with this shape and mean 1, by Marsaglia and Tsang's rejection ("A simple method for generating gamma
/// variables", ACM TOMS 26, 2000); shapes below 1 through one above.
double gamma_of_mean_one(double shape, Random& random);

/// Beta with these two shapes, each more than 0.
double draw_beta(double a, double b, Random& random);

}  // namespace orrery
