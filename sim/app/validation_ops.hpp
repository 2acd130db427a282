// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/app/validation.hpp"

namespace orrery {

/// Predictions for the works of the plan that a recording's last step executes, each with its 90 % interval; waits of
/// the host and storage left out. None for plans of several ranks: ops that share cores, caches and memory with others
/// have no time of their own.
std::vector<ValidatedOp> predicted_ops(const Machine& machine, const Program& program, const Recording& recording);

/// How much a step of that plan feels of what slows the cores: the mean over its ops, by how long they take.
double predicted_sensitivity(const Machine& machine, const Program& program, const Recording& recording);

/// Puts the measurements beside them: the mean over the ops of a work of their medians over the executions that
/// tell each of the rounds. Ops that none of these executed are dropped.
void measure_ops(std::vector<ValidatedOp>& ops, const Program& program, const std::vector<MeasuredRound>& rounds);

}  // namespace orrery
