// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "sim/machine/cost.hpp"

namespace orrery {

/// Carries messages between ranks, all of them over the same links, and keeps the clock while it does: an execution
/// tells what it sends and when it has something to do itself.
class Network {
 public:
  static constexpr std::int64_t kNever = INT64_MAX;

  class Client {
   public:
    virtual ~Client() = default;
    /// Does all that is due at `now_ps`, when these messages have come through. The next instant at which something
    /// else is due, or kNever.
    virtual std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t> through) = 0;
  };

  virtual ~Network() = default;
  /// Until neither the client nor the network has anything left; what the client throws ends it.
  virtual void run(std::int64_t start_ps, Client& client) = 0;
  /// A message whose first byte arrives now. Only from within `advance`.
  virtual void send(std::uint32_t message, RankId from, RankId to, const Way& way, Bytes bytes) = 0;
};

}  // namespace orrery
