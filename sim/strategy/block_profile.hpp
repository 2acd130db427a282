// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/strategy/chain_schedule.hpp"

namespace orrery {

struct StepPlan;

/// The work of an op of a plan, in any unit.
using OpWork = std::function<double(const Plan& plan, const Op& op)>;
double flops_of(const Plan& plan, const Op& op);

/// Blocks [first, last) of a training plan that recomputes nothing, as a chain: work of their ops, and bytes of
/// activations of the earliest microbatch, on the rank class that computes them. Left out: gradients of weights, which
/// every schedule makes.
Chain profile_chain(const Plan& plan, int first, int last, const OpWork& work = flops_of);

/// Bytes of what the forward pass of a block makes (−1: of what lies outside) and backward passes read, by which of
/// `parts` parts makes it, which the name of an op tells. Of the first class that computes the block.
std::vector<std::int64_t> saved_by_part(const Plan& plan, int layer, std::size_t parts,
                                        const std::function<std::size_t(std::string_view)>& part_of);

/// What a training step computes again where that is not a matter of each block alone: schedules of every chain of
/// blocks of its plan. Nothing where the workload's `recompute` says it all. `plain` gives the plan without
/// recomputation. Throws UserError where a chain does not fit into its budget, with the least that it needs, and for
/// networks that are no chain.
std::optional<ChainSchedule> chain_schedule(const StepPlan& step, const std::function<Plan()>& plain);

}  // namespace orrery
