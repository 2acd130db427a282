// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/plan/plan.hpp"

namespace orrery {

/// What a plan with cached tables says of its cache; null without one.
const AdmitRows* cache_of(const Plan& plan);

/// Names of its ports beside those of the network: the rows that come and their slots, those that leave and theirs, and
/// the rank of each row. "bag.T" has rows of the one table that all tables are in, one behind the other.
constexpr std::string_view kMissedPort = "cache.missed", kMissedSlotsPort = "cache.missed_slots",
                           kVictimsPort = "cache.victims", kVictimSlotsPort = "cache.victim_slots",
                           kRanksPort = "cache.ranks";

/// Copies the rows that are in the cache of a training step to the host. Its ports are kVictimsPort and
/// kVictimSlotsPort; Symbol::CacheVictims is bound.
Plan lower_write_back(const Plan& step);

}  // namespace orrery
