// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "sim/app/console.hpp"
#include "sim/app/sweep/bisection.hpp"
#include "sim/app/sweep/sweep_plan.hpp"
#include "sim/app/sweep/sweep_store.hpp"

namespace orrery {

/// One combination of the values of other keys, for which a boundary is looked for.
struct BisectedCase {
  std::size_t scenario = 0;  // of the plan
  SweptValues values;        // of the other keys
  Boundary boundary;
  double better = 0;                   // see meets()
  std::map<double, std::size_t> seen;  // points of the sweep by the value of the bisected key
  std::string failure;                 // why it was given up: a point has no result
};

/// Looks for the boundaries of all cases, round by round; as many points a round as there are jobs, where that helps.
/// `compute` adds points to `sweep` with their records; a point without one ends the search. The bisected key is the
/// last one of the plan.
void bisect(const BisectedKey& key, const Condition& condition, std::size_t jobs, std::vector<BisectedCase>& cases,
            const SweepResults& sweep, const std::function<void(const std::vector<SweepPoint>&)>& compute);

/// Whether each case has an answer.
bool are_answered(const std::vector<BisectedCase>& cases);

std::string to_text(const std::vector<BisectedCase>& cases, const BisectedKey& key, const Condition& condition,
                    const SweepResults& sweep, const Console& console);
nlohmann::json to_json(const std::vector<BisectedCase>& cases, const BisectedKey& key, const Condition& condition,
                       const SweepResults& sweep);

}  // namespace orrery
