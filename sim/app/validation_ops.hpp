// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/app/validation.hpp"

namespace orrery {

/// Of the plan that a recording's last step executes: how much a step feels of what slows the cores, the mean over its
/// ops by how long they take; and predictions for its works, each with its 90 % interval, waits of the host and storage
/// left out. None of these for plans of several ranks: ops that share cores, caches and memory with others have no time
/// of their own.
void predict_ops(ValidatedPlan& plan, const Machine& machine, const Program& program, const Recording& recording);

/// Puts the measurements beside them: the mean over the ops of a work of their medians over the executions that
/// tell each of the rounds. Ops that none of these executed are dropped.
void measure_ops(std::vector<ValidatedOp>& ops, const Program& program, const std::vector<MeasuredRound>& rounds);

}  // namespace orrery
