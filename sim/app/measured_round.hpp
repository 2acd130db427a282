// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/timeline/timeline.hpp"

namespace orrery {

/// What others did on the cores during each execution: how much they slowed a fixed work (Executor::disturbed; empty:
/// nothing), and how much of that a step feels (OpCost::sensitivity).
struct Disturbance {
  std::span<const double> slowed;
  double sensitivity = 0;
  std::vector<double> of_spans = {};  // the same while each span of the recording lasted; empty: nothing

  double of(std::uint32_t instance) const { return slowed.empty() ? 0 : slowed[instance]; }
  /// How much longer an execution took for it.
  double factor(std::uint32_t instance) const { return std::pow(1 + of(instance), sensitivity); }
};

/// One round of measuring a plan.
struct MeasuredRound {
  double seconds = 0;                    // of a step, or of a round of speculation, without what others did
  double as_run = 0;                     // the same with it
  double disturbed = 0;                  // how much something else slowed the cores meanwhile
  std::vector<std::uint32_t> instances;  // executions that tell it
  Timeline timeline;                     // all executions, without the gaps between
  std::vector<double> slowed;            // how much something else slowed the cores while each span of it lasted
};

/// What a recording tells: the middle one of its steady steps, of a speculative generation a round whose passes each
/// take their median time. Executions that something disturbed do not count as long as there are others.
MeasuredRound measured_round(const Timeline& recording, const Disturbance& others, bool speculates);

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
