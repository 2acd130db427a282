// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hw_models/cluster_cost_model.hpp"
#include "sim/app/session.hpp"
#include "sim/timeline/interval.hpp"

namespace orrery {

/// Costs of one plan's ops under bindings, by place in the plan; the rank is the first of the op's class. Ops of a
/// class that do the same work share one, and so do collectives of the same ranks. Memory in proportion to the works
/// of each class; refers to the plan.
class OpCosts {
 public:
  OpCosts(const CostModel& cost, const Plan& plan, const Bindings& bindings);
  const OpCost& operator[](std::size_t op) const;
  /// Adds the durations of all ops, in the order of the plan, to a sum and to those of their works.
  void add_to(double& all, std::vector<double>& by_work) const;

 private:
  struct Known {
    WorkId work;
    std::uint32_t cost = 0;  // in costs_
  };
  std::uint32_t add(const CostModel& cost, const Work& work, const Bindings& bindings, RankId rank);
  std::span<const Known> of_class(std::size_t c) const {
    return std::span{known_}.subspan(first_[c], first_[c + 1] - first_[c]);
  }

  const Plan& plan_;
  std::vector<OpCost> costs_;
  std::vector<Known> known_;        // class by class, in order of works
  std::vector<std::size_t> first_;  // into known_, one more than classes
  struct Communicator {
    std::vector<RankId> ranks;
    std::uint32_t cost = 0;
  };
  std::map<const Work*, Communicator> last_;  // per collective: whom it joined in the class before, and what it cost
};

/// Those of a plan under bindings that are asked for again and again: the last that were found are kept.
class KnownOpCosts {
 public:
  explicit KnownOpCosts(const CostModel& cost) : cost_{cost} {}
  const CostModel& model() const { return cost_; }
  const OpCosts& of(const Plan& plan, const Bindings& bindings);

 private:
  const CostModel& cost_;
  const Plan* plan_ = nullptr;
  Bindings bindings_;
  std::optional<OpCosts> known_;
};

/// The deviations of the segments of a path through one instance. Ops of one kind that share a fit err together, and
/// all as far as they wait for memory.
std::vector<SpanDeviation> path_deviations(const Timeline& timeline, const CriticalPath& path, const Plan& plan,
                                           const OpCosts& costs);

/// Ops that lie outside of what the parameters were fitted on, for one reason.
struct Extrapolation {
  std::string reason;  // "gemm: m 9000 is outside of 1 to 4096"
  double share = 0;    // of the ops' time in a step
};

/// All reasons, by share. Bound sizes are those of the last step of each plan; the last plan is what a step is.
std::vector<Extrapolation> extrapolations(KnownOpCosts& costs, const std::vector<const Plan*>& plans,
                                          const Recording& recording);

/// Less of a step than this, outside of the fitted range, does not make it uncalibrated.
constexpr double kNegligibleShare = 0.01;

}  // namespace orrery
