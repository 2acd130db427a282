// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sim/machine/cluster.hpp"

namespace orrery::testing {

/// Nodes of devices; inside 100 GB/s and 2 us, between 10 GB/s and 5 us.
inline Cluster cluster_of(std::int64_t nodes, std::int64_t per_node, NicPlacement cards = NicPlacement::PerDevice) {
  using namespace orrery::literals;
  Cluster c;
  c.nodes = nodes, c.devices_per_node = per_node, c.device = "h100_sxm", c.name = "test";
  c.device_link = Link{"inside", 100.0_GBps, 2.0_us};
  c.host_link = Link{"host", 63.0_GBps, 2.0_us};
  c.nic = Nic{"card", cards, 10.0_GBps, 5.0_us};
  return c;
}

}  // namespace orrery::testing
