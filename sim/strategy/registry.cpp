// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "sim/strategy/parallel.hpp"
#include "sim/strategy/single_device.hpp"
#include "sim/strategy/strategy.hpp"

namespace orrery {
namespace {

constexpr StrategyEntry kStrategies[] = {
    {"single", "the whole model on one device", make_single_device, single_device_options},
    {"parallel", "a training step on a mesh: replicas, stages, split matrices, split sequences, in any order", make_parallel,
     parallel_options},
};

}  // namespace

std::span<const StrategyEntry> strategies() { return kStrategies; }

const StrategyEntry& find_strategy(std::string_view name) {
  const auto* it = std::find_if(std::begin(kStrategies), std::end(kStrategies),
                                [&](const StrategyEntry& e) { return e.name == name; });
  if (it != std::end(kStrategies)) return *it;
  std::vector<std::string> known;
  for (const StrategyEntry& e : kStrategies) known.emplace_back(e.name);
  throw unknown_name("strategy", name, known);
}

}  // namespace orrery
