// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "sim/strategy/training_strategy.hpp"

namespace orrery {

/// Host memory that devices copy to and from: pageable memory goes over a pinned buffer and a busy core.
enum class HostMemory : std::uint8_t { Pinned, Pageable };
inline std::span<const EnumName<HostMemory>> enum_names(HostMemory) {
  static constexpr EnumName<HostMemory> names[] = {{HostMemory::Pinned, "pinned"}, {HostMemory::Pageable, "pageable"}};
  return names;
}
constexpr Tier tier_of(HostMemory m) { return m == HostMemory::Pinned ? Tier::Pinned : Tier::Host; }

/// Where model data is kept that is not on the device.
enum class Store : std::uint8_t { Host, Disk };
inline std::span<const EnumName<Store>> enum_names(Store) {
  static constexpr EnumName<Store> names[] = {{Store::Host, "host"}, {Store::Disk, "disk"}};
  return names;
}
constexpr Tier tier_of(Store s, HostMemory m) { return s == Store::Disk ? Tier::Disk : tier_of(m); }

/// A training step as `parallel` lowers it, of which a pass then moves tensors to other tiers.
class TierStrategy : public TrainingStrategy {
 public:
  using TrainingStrategy::TrainingStrategy;

  Plan train_step(const Model& model, const TrainOptions& options, const WorkspaceModel* workspaces) const final;

 protected:
  /// Throws UserError for what the strategy cannot do.
  virtual void check(const TrainOptions&) const {}
  virtual Plan move_tensors(const Plan& plan, const TrainOptions& options, const WorkspaceModel* workspaces) const = 0;
};

constexpr std::string_view kParallelHelp =
    "how the step is split over ranks, as in the strategy `parallel`; left out: one rank";

}  // namespace orrery
