// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "sim/machine/cost.hpp"

namespace orrery {

/// What a collective sends from rank to rank in all. Simulated, such a flow asks for all of its way (or its part, where
/// several leave a rank the same way) for as long as the closed form says, as collectives in closed form do.
struct BulkFlow {
  RankId from, to;
  Bytes bytes;
};

/// The flows of a collective of n ranks, g of them on each of N nodes, when all its steps are taken together:
///
///   all-reduce       to the next of its node 2(g − 1)/g of the message, to the same place on the next node 2(N − 1)/N
///                    of a g-th; all-gather and reduce-scatter half of that
///   all-to-all       an n-th to each other rank
///   broadcast, reduce   all of it along a chain from the root, or to it
///   shift            all of it, as many places further
///
/// Nodes that hold unequal numbers of ranks count as one ring of all. Leaves out how NCCL's channels run round a node
/// in other orders, and reduction in switches, which sends less. A barrier sends nothing. Of an all-to-all at most
/// `most_places` flows leave each rank, chosen at random and as much larger.
std::vector<BulkFlow> bulk_flows(const Collective& work, std::span<const RankId> members, const CostModel& cost,
                                 std::size_t most_places = SIZE_MAX);

}  // namespace orrery
