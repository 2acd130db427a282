// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/app/reproduce/reproduction.hpp"

namespace orrery {

/// A GPT-2 of published layers and widths.
struct GptSize {
  double billions = 0;
  std::int64_t layers = 0, hidden = 0, heads = 16;

  double parameters() const { return 12 * double(layers) * double(hidden * hidden) + double((50257 + 1024) * hidden); }
  /// As the `model:` of a scenario.
  std::string model() const;
};

/// The report of one step; nothing where it does not fit into the memory of devices and hosts, or a strategy refuses
/// it for want of memory.
std::optional<Report> fitting_step(const Reproducer& r, const std::string& scenario,
                                   const std::vector<std::pair<std::string, double>>& scales = {});

/// 10¹² FLOP per second of all devices: 8 FLOP per parameter and token, recomputation counted as useful.
double teraflops_of(double parameters, double tokens, double seconds);

}  // namespace orrery
