// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "sim/machine/network.hpp"
#include "sim/machine/topology.hpp"

namespace orrery {

/// Flows over links that they share by max-min fairness.
class SharedLinks {
 public:
  virtual ~SharedLinks() = default;
  /// As Network::run. What comes through is told by number.
  virtual void run(std::int64_t start_ps, Network::Client& client) = 0;
  /// `count` flows of `bytes` each over the same links, from now on: they end together, and are told once. Only from
  /// within `advance`.
  virtual void start(std::uint32_t number, std::span<const std::uint32_t> links, std::uint32_t count, Bytes bytes) = 0;
};

}  // namespace orrery

/// Of the library beside the program, which alone needs SimGrid: that takes longer to load than most commands take.
/// One at a time; the caller owns it, and keeps the links while it lives.
extern "C" orrery::SharedLinks* orrery_shared_links(std::span<const orrery::TopologyLink> links);
