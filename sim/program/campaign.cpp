// SPDX-License-Identifier: Apache-2.0
#include "sim/program/campaign.hpp"

#include <cmath>

namespace orrery {
namespace {

constexpr double kSecondsPerHour = 3600;

}  // namespace

double best_interval(double mtbf, double checkpoint) {
  double low = 0, high = mtbf;  // the left side falls from e^(C/M) to 0
  for (int i = 0; i < 200 && low < high; ++i) {
    const double middle = 0.5 * (low + high);
    ((1 - middle / mtbf) * std::exp((middle + checkpoint) / mtbf) > 1 ? low : high) = middle;
  }
  return low;
}

TrainingCampaign campaign(const CampaignInputs& in) {
  TrainingCampaign c;
  c.steps = std::ceil(in.tokens / in.tokens_per_step);
  c.work = c.wall = c.steps * in.step;
  if (in.mtbf > 0) {
    const double mean = in.mtbf / double(in.devices);
    c.interval = in.interval.value_or(best_interval(mean, in.checkpoint));
    c.wall = c.work / c.interval * mean * std::exp(in.restart / mean) * std::expm1((c.interval + in.checkpoint) / mean);
    c.failures = c.wall / mean;
  } else if (in.interval) {
    c.interval = *in.interval;
    c.wall = c.work * (1 + in.checkpoint / c.interval);
  }
  c.device_hours = c.wall / kSecondsPerHour * double(in.devices);
  c.money = c.device_hours * in.price;
  c.joules = c.wall * double(in.devices) * in.watts;
  return c;
}

}  // namespace orrery
