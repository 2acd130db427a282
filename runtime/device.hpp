// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/arena.hpp"
#include "runtime/op_call.hpp"

namespace orrery {

struct HostOptions;
class DeviceMemory;
class Peers;
class PreparedPlan;
class RankMemory;
class TierLinks;
class Workers;

/// What a device readies a plan with; all of it outlives the prepared plan.
struct Preparation {
  const Plan& plan;
  std::vector<std::unique_ptr<RankMemory>>& memories;  // per rank
  TierLinks& links;
  const HostOptions& options;
  Workers& workers;
};

/// What the executors differ in: which functions run the ops and in what order, and what storage lies in.
class Device {
 public:
  virtual ~Device() = default;
  /// The function that runs `op`. Throws UserError when there is none.
  virtual Kernel kernel(const Plan& plan, const Op& op) const = 0;
  /// Throws UserError when a tensor of the plan cannot be held.
  virtual void check_tensors(const Plan& plan) const = 0;
  virtual bool holds_data() const = 0;
  virtual std::string machine() const = 0;
  /// The processes that execute a plan together; null when this one executes all of it.
  virtual Peers* peers() const { return nullptr; }
  /// Memory of a tier that is not the host's own; null where it is.
  virtual std::unique_ptr<DeviceMemory> memory(Tier tier, RankId rank) const;
  /// What is behind a disk tier.
  virtual Backing file() const { return Backing::File; }
  /// A plan that is ready to run here: by threads of the host unless a device says otherwise.
  virtual std::unique_ptr<PreparedPlan> prepare(const Preparation& preparation) const;
};

}  // namespace orrery
