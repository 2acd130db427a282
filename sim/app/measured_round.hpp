// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/timeline/timeline.hpp"

namespace orrery {

/// One round of measuring a plan.
struct MeasuredRound {
  double seconds = 0;                    // of a step, or of a round of speculation
  double disturbed = 0;                  // how much something else slowed the cores meanwhile
  std::vector<std::uint32_t> instances;  // executions that tell it
  Timeline timeline;                     // all of them, without the gaps between
};

/// What a recording tells: the middle one of its steady steps, of a speculative generation a round whose passes each
/// take their median time. Executions that something disturbed do not count as long as there are others.
/// `disturbed`: of each execution, as of Executor::disturbed; empty: none.
MeasuredRound measured_round(const Timeline& recording, std::span<const double> disturbed, bool speculates);

/// The rounds that count of a plan that is measured again and again: the least disturbed ones. Which, is told by the
/// cores alone, never by how long the plan took.
class CountedRounds {
 public:
  explicit CountedRounds(std::size_t wanted) : wanted_{wanted} {}
  void add(MeasuredRound round);
  /// Whether there are as many as wanted, and nothing disturbed them.
  bool are_quiet() const;
  const std::vector<MeasuredRound>& rounds() const { return rounds_; }
  std::size_t measured() const { return measured_; }
  /// How much something else slowed the cores while those that count were measured.
  double disturbed() const;

 private:
  std::size_t wanted_, measured_ = 0;
  std::vector<MeasuredRound> rounds_;
};

}  // namespace orrery
