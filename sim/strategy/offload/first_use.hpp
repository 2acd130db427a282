// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/builder.hpp"

namespace orrery {

/// Weights that a step gathers come right before the op that uses them first, and gradients are reduced and scattered
/// right behind the op that completes them, in place of the begin and the end of their block: the same ops in another
/// order. Both have the device for themselves, as collectives that are waited for do. `again`: what both passes use is
/// gathered in each of them.
Plan at_first_use(const Plan& plan, bool again, const WorkspaceModel* workspaces);

}  // namespace orrery
