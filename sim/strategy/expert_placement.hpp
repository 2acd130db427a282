// SPDX-License-Identifier: Apache-2.0
// Where replicas of experts go, from how often each is chosen: the policy of FlexMoE (arXiv 2304.03946). Routing stays
// as it is, so that weights do not depend on it.
#pragma once

#include <span>
#include <vector>

#include "sim/base/units.hpp"
#include "sim/strategy/expert_layout.hpp"

namespace orrery {

/// What a placement of one layer's experts costs, as somebody has measured or predicted it.
struct PlacementCosts {
  Seconds compute{1};  // all rows of a step on one rank, forward and backward
  Seconds exchange;    // all rows into or out of one rank, four times: to the experts and back, both passes
  Seconds sum;         // the gradient of one expert through the links of a rank once
};

/// The rank that takes longest: its rows, its exchanges, and 2(n − 1)/n times `sum` for each expert that n ranks have.
Seconds placement_time(const ExpertLayout& layout, const PlacementCosts& costs);

/// Replicas in all slots of all ranks: one of each expert, then another of the one whose replicas have most rows, one
/// by one; the fullest go first, each to the rank with least rows that has a slot (longest processing time first). With
/// `near`, to one that has the expert there, where that leaves it with no more than its share of rows.
ExpertPlaces place_experts(std::span<const double> shares, std::int64_t ranks, std::int64_t slots,
                           const ExpertPlaces* near = nullptr);

/// From a placement on: the expert whose replicas have most rows gets one more, the one whose have least gives one
/// away, all are packed anew near where they were; again and again while the time falls. As it was where it does not.
ExpertPlaces rebalance(const ExpertLayout& now, std::int64_t slots, const PlacementCosts& costs);

/// By rank: experts that it has in `to` and had not in `from`, whose weights and states it has to fetch.
std::vector<std::int64_t> fetched_experts(const ExpertPlaces& from, const ExpertPlaces& to);

}  // namespace orrery
