// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "sim/machine/network.hpp"
#include "sim/machine/topology.hpp"

namespace orrery {

/// What flows run over. All of a program that the library of flows needs comes with it.
struct FlowPlatform {
  std::span<const TopologyLink> links;
  /// Appends the links from rank to rank, in order.
  std::function<void(RankId from, RankId to, std::vector<std::uint32_t>& out)> route;
  std::int64_t ranks = 1;
};

}  // namespace orrery

/// Of the library beside the program, which alone needs SimGrid: that takes longer to load than most commands take.
/// One at a time; the caller owns it.
extern "C" orrery::Network* orrery_flow_network(const orrery::FlowPlatform& platform);
