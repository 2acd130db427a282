// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/machine/network.hpp"
#include "sim/machine/topology.hpp"

namespace orrery {

enum class SolvedFlows {
  Contended,  // those of components that are not plain, equal ones at once
  All,        // each: slower, and what tests compare with
};

/// Messages as flows over the links of a topology, which they share by max-min fairness: a link that is full gives each
/// of its flows as much as any other of them that could use it. SimGrid (network model CM02) finds the shares of flows
/// that contend; others have the rate of their narrowest link, or equal parts of one (uncontended_flows.hpp). Latencies
/// belong to the caller, so that shares do not depend on them.
///
/// SimGrid keeps its state per process: throws UserError while another flow network lives, MissingError when this build
/// is without SimGrid.
std::unique_ptr<Network> make_flow_network(const Topology& topology, SolvedFlows solved = SolvedFlows::Contended);
bool has_flow_network();

}  // namespace orrery
