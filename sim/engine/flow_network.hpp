// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "sim/machine/network.hpp"

namespace orrery {

/// Messages as flows of SimGrid (network model CM02): each uses its way's link or card out of the sender and into the
/// receiver, and flows share those by max-min fairness. Latencies belong to the caller, so that shares do not depend on
/// them. Leaves out: links between the nodes' cards, which are taken as wide enough.
///
/// SimGrid keeps its state per process: throws UserError while another flow network lives, MissingError when this build
/// is without SimGrid.
std::unique_ptr<Network> make_flow_network(const ResourceMap& resources, std::int64_t ranks);
bool has_flow_network();

}  // namespace orrery
