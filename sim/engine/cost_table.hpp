// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim/engine/fleet.hpp"

namespace orrery {

/// The cost of an op of one rank, in the clock's units.
struct SingleCost {
  std::int64_t duration_ps = 0;
  std::array<std::int64_t, kMaxDemands> shares{};
  std::array<Resource, kMaxDemands> resources{};
  std::uint8_t num_demands = 0;
  bool known = false;
};

struct LaunchTime {
  std::int64_t enqueue_ps = 0, joined_ps = 0, latency_ps = 0;
  bool runs_ahead = true;

  std::int64_t host_ps(const Op& op) const { return op.joins ? joined_ps : enqueue_ps; }
};

/// The cost of a collective or message, with what it uses of each resource.
struct SharedCost {
  std::int64_t duration_ps = 0;
  std::uint32_t first_use = 0, num_uses = 0;
};

/// Asks the cost model once per work and kind of device, and once per communicator or pair of ranks.
class CostTable {
 public:
  CostTable(const Plan& plan, const Surroundings& around, const CostModel& model, const Fleet& fleet);

  /// Asks for an op of one rank; before the execution starts.
  void prepare(WorkId work, std::uint32_t kind);
  const SingleCost& single(std::uint32_t work, std::uint32_t kind) const {
    return singles_[kind * plan_.works.size() + work];
  }
  const LaunchTime& launch(WorkId work, std::uint32_t kind) const {
    return launches_[kind * plan_.works.size() + work.index()];
  }

  SharedCost collective(std::uint32_t work, std::uint32_t communicator, std::span<const std::uint32_t> simulated);
  SharedCost transfer(std::uint32_t work, RankId from, RankId to, std::span<const std::uint32_t> simulated);
  std::span<const ResourceUse> uses(const SharedCost& c) const { return {uses_.data() + c.first_use, c.num_uses}; }

 private:
  struct Key {
    std::uint32_t work, a, b;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& k) const {
      std::uint64_t h = k.work * 0x9e3779b97f4a7c15ull;
      h = (h ^ (h >> 29) ^ k.a) * 0xbf58476d1ce4e5b9ull;
      h = (h ^ (h >> 32) ^ k.b) * 0x94d049bb133111ebull;
      return static_cast<std::size_t>(h ^ (h >> 31));
    }
  };
  std::int64_t picoseconds(Seconds duration, std::uint32_t work) const;
  SharedCost keep(const OpCost& cost, std::uint32_t work, std::span<const RankId> ranks,
                  std::span<const std::uint32_t> simulated);

  const Plan& plan_;
  const Surroundings& around_;
  const CostModel& model_;
  const Fleet& fleet_;
  std::vector<SingleCost> singles_;  // kind-major
  std::vector<LaunchTime> launches_;
  std::unordered_map<Key, SharedCost, KeyHash> shared_;  // never iterated
  std::vector<ResourceUse> uses_;
};

}  // namespace orrery
