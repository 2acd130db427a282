// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace orrery {

/// What a run of many steps is made of. Seconds; 0: there is none.
struct CampaignInputs {
  double tokens = 0;                     // that are to be trained on
  double step = 0, tokens_per_step = 0;  // seconds
  std::int64_t devices = 1;
  double mtbf = 0;                      // between failures of one device
  double checkpoint = 0, restart = 0;   // training stands still; until it goes on behind a failure
  std::optional<double> interval = {};  // of work between checkpoints; none: the best
  double price = 0;                     // of a device for an hour
  double watts = 0;                     // of a device
};

/// What it takes. Failures of devices are independent, each at exponential gaps; whichever fails, all work since the
/// last checkpoint is lost. Between failures of any device there are M = mtbf/devices, and work of T takes (Daly,
/// Future Generation Computer Systems 22, 2006)
///   T/τ · M · e^(R/M) · (e^((τ + C)/M) − 1)         τ: interval, C: checkpoint, R: restart
/// Left out: failures that slow training in place of stopping it, spares that run out, and restarts that differ.
struct TrainingCampaign {
  double steps = 0, work = 0, wall = 0;  // seconds without failures and checkpoints, and with them
  double interval = 0;                   // seconds of work between checkpoints; 0: there are none
  double failures = 0;                   // expected
  double lost() const { return wall > 0 ? 1 - work / wall : 0; }
  double device_hours = 0, money = 0, joules = 0;
};
TrainingCampaign campaign(const CampaignInputs& inputs);

/// The interval for which the formula above is the least: (1 − τ/M)·e^((τ + C)/M) = 1. Young's √(2·C·M) is what is left
/// of it where C is small against M.
double best_interval(double mtbf, double checkpoint);

}  // namespace orrery
