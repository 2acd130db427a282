// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "sim/machine/bulk_flows.hpp"
#include "sim/machine/topology.hpp"

namespace orrery {

/// How many times as long bytes take as at the rate of their two ends: inside of nodes, and between them. 1 or more.
struct Slowdown {
  double inside = 1, between = 1;
};

/// Who uses the links: each flow as if it were alone, or all flows of a group together, and with them those of the
/// groups that its ranks leave room for: of dp 0, 8, 16, … the seven groups beside it, which do the same at the time.
enum class Sharing : std::uint8_t { Alone, Together };

/// What the links of a cluster make of a collective's flows (bulk_flows.hpp), each of which would go at the rate of its
/// ends (a device's link, its part of the card):
///
///   max over links of Σ rates of the flows over it / bandwidth
///
/// Equal links up from a leaf count as one, over which flows spread evenly: what hashing makes worse is left out. In a
/// cube mesh rings, and chains, run over all wires between the members, as NCCL's do. Of PCIe whose collectives were
/// measured (`fabric`) nothing is counted twice. All-to-alls of many ranks are taken from some of their pairs.
Slowdown slowdown(const Topology& topology, const Collective& work, std::span<const RankId> ranks,
                  const CostModel& cost, Sharing sharing);

}  // namespace orrery
