// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/plan/plan.hpp"
#include "sim/plan/stretches.hpp"

namespace orrery {

/// A stream of a rank that never gets beyond an op.
struct Standstill {
  RankId rank;
  OpId op;
};

/// Runs the order of these ranks without times: a stream waits at a collective or message until all partners stand at
/// theirs. What remains standing when nothing moves any more waits for ever.
std::vector<Standstill> find_standstills(const Plan& plan, const OpOrder& order, const ReducedMesh& ranks);

}  // namespace orrery
