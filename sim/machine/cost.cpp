// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/cost.hpp"

namespace orrery {

CollectiveSetup CostModel::setup(const Collective& work, std::span<const RankId> ranks) const {
  const auto n = static_cast<std::int64_t>(ranks.size());
  return {.algorithm = usable_algorithm(work.kind, CollectiveAlgorithm::Ring, n, 1)};
}

/// From what a message of no bytes and one of 1 GB take.
Way CostModel::way(RankId from, RankId to) const {
  const Bytes many{1e9};
  const Seconds latency = transfer(Bytes{0}, from, to).duration;
  return {.latency = latency, .bandwidth = many / (transfer(many, from, to).duration - latency)};
}

}  // namespace orrery
