// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "sim/strategy/strategy.hpp"
#include "sim/strategy/train_step.hpp"

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
class TierStrategy : public Strategy {
 public:
  TierStrategy(std::string_view name, ParallelOptions parallel) : name_{name}, parallel_{std::move(parallel)} {}

  Plan train_step(const Model& model, const TrainOptions& options, const WorkspaceModel* workspaces) const final;
  GenerationPlans generation(const Model&, const GenerateOptions&, const WorkspaceModel*) const final;
  Plan serving_step(const Model&, const ServingStepOptions&, const WorkspaceModel*) const final;
  Plan serving_swap(const Model&, const ServingStepOptions&, const ServingSwapOptions&,
                    const WorkspaceModel*) const final;
  Plan inference(const Model&, const InferOptions&, const WorkspaceModel*) const final;
  Mesh mesh() const final;
  std::optional<Schedule> schedule(const TrainOptions& options) const final;

 protected:
  /// Throws UserError for what the strategy cannot do.
  virtual void check(const TrainOptions&) const {}
  virtual Plan move_tensors(const Plan& plan, const TrainOptions& options, const WorkspaceModel* workspaces) const = 0;
  const ParallelOptions& parallel() const { return parallel_; }
  std::string_view name() const { return name_; }

 private:
  [[noreturn]] void refuse(std::string_view what) const;

  std::string_view name_;
  ParallelOptions parallel_;
};

constexpr std::string_view kParallelHelp =
    "how the step is split over ranks, as in the strategy `parallel`; left out: one rank";

}  // namespace orrery
