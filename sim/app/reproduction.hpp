// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/app/report.hpp"

namespace orrery {

/// One published value beside ours.
struct Claim {
  std::string name, source;
  double paper = 0, ours = 0;
  std::string unit;
  double within = 0;  // relative difference that counts as reproduced
  std::string note;

  bool holds() const;
};

/// What a reproduction works with.
struct Reproducer {
  const Wiring& wiring;
  std::function<void()> pause;  // called between predictions; may throw to stop

  /// The report of one simulated step of a scenario, given as the text of a scenario file.
  Report predict(const std::string& scenario) const;
  /// The largest multiple of `step`, at most `most`, for which the scenario that `text` makes of it fits; 0: none does.
  std::int64_t largest_that_fits(const std::function<std::string(std::int64_t)>& text, std::int64_t step,
                                 std::int64_t most) const;
};

struct ReproductionEntry {
  std::string_view name, summary, source;
  std::vector<Claim> (*claims)(const Reproducer& reproducer);
};

/// All reproductions, one line each in reproductions.cpp.
std::span<const ReproductionEntry> reproductions();
/// Throws UserError that names those there are.
const ReproductionEntry& find_reproduction(std::string_view name);

std::vector<Claim> reproduce_ring_self_attention(const Reproducer& reproducer);
std::vector<Claim> reproduce_optimus(const Reproducer& reproducer);

}  // namespace orrery
