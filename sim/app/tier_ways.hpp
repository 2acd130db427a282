// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "sim/app/training_request.hpp"

namespace orrery {

/// A registered strategy that moves tensors of a training step to other tiers, with the options that it is tried with.
struct TierWay {
  std::string name, strategy, options;  // "zero-infinity, disk", "zero-infinity", and options beside `parallel`
  std::string data = "zero3";           // what replicas share
  bool chunked = false;                 // keeps the device's memory to a size that it is told
  bool recomputes = false;              // says itself what runs again

  /// An entry of `strategy` in a scenario. `parallel` is the value of that option without its braces; empty: one rank.
  std::string entry(const std::string& parallel) const;
  bool operator==(const TierWay&) const = default;
};

/// All of them, for one rank or several, each of which may use so much of each memory.
std::vector<TierWay> tier_ways(bool several_ranks, const MemoryRoom& room);

}  // namespace orrery
