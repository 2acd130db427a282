// SPDX-License-Identifier: Apache-2.0
#include "sim/program/arrivals.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {

double ArrivalTimes::next() {
  const bool first = std::exchange(first_, false);
  return now_ = first && process_.kind != Arrival::Bursty ? 0 : after_now();
}

double ArrivalTimes::after_now() {
  const double gap = 1 / process_.rate;
  switch (process_.kind) {
    case Arrival::AllAtOnce:
      return now_;
    case Arrival::Even:
      return now_ + gap;
    case Arrival::Poisson:
      return now_ + random_.exponential(gap);
    case Arrival::Gamma:
      return now_ + gap * gamma_of_mean_one(1 / (process_.cv * process_.cv), random_);
    case Arrival::Bursty:
      return bursty();
  }
  bug("an arrival that is no arrival");
}

/// A Poisson stream by thinning: half of all arrivals in the first 1/(2·burst) of each period.
double ArrivalTimes::bursty() {
  const double on = 0.5 / process_.burst, peak = process_.rate * process_.burst, low = 0.5 * process_.rate / (1 - on);
  for (double t = now_;;) {
    t += random_.exponential(1 / std::max(peak, low));
    const double phase = std::fmod(t, process_.period) / process_.period;
    if (random_.uniform() * std::max(peak, low) < (phase < on ? peak : low)) return t;
  }
}

double gamma_of_mean_one(double shape, Random& random) {
  if (shape < 1) {
    const double u = random.uniform();
    return gamma_of_mean_one(shape + 1, random) * (shape + 1) / shape * std::pow(1 - u, 1 / shape);
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal(), v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v / shape;
  }
}

double draw_beta(double a, double b, Random& random) {
  const double x = a * gamma_of_mean_one(a, random), y = b * gamma_of_mean_one(b, random);
  return x / (x + y);
}

}  // namespace orrery
