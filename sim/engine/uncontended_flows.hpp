// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/engine/event_queue.hpp"
#include "sim/engine/flow_library.hpp"
#include "sim/engine/flow_network.hpp"

namespace orrery {

/// Flows whose rates can be told one component after the other; only others are given to the links that are shared.
///
/// A flow's cap is the rate of its narrowest link. A link is full when the caps of all flows over it sum up to more
/// than it has: others hold nobody back, whatever flows do elsewhere. What full links connect is a component. By
/// max-min fairness its flows have
///
///   the least of their caps, and of C / n over the full links that leave each of their n flows a part of C
///
/// where they can have no more, then the same of what is left for the others. Rings and all-to-alls of devices that are
/// alike need one such level, below narrow leaves a few. All of a component that needs more are shared from then on,
/// with what is left of them, until they end. Shared flows do not miss the others: where both kinds meet, the link is
/// wide enough for all caps.
///
/// Flows that begin to be shared at one instant over the same links with the same bytes have equal rates for as long as
/// they live, and are shared as one. All of this is exact, and what it saves is SimGrid's time per flow, which grows
/// with the number of flows that it holds.
class UncontendedFlows final : public Network, private Network::Client {
 public:
  /// Keeps references to both.
  UncontendedFlows(const Topology& topology, SharedLinks& shared, SolvedFlows solved);

  void run(std::int64_t start_ps, Network::Client& client) override;
  void send(std::uint32_t message, RankId from, RankId to, const Way& way, Bytes bytes) override;

 private:
  struct Flow {
    std::uint32_t message = 0;
    std::uint32_t version = 0;        // of its timer
    std::uint32_t next = UINT32_MAX;  // shared: another one that is equal
    std::vector<std::uint32_t> links;
    std::int64_t cap = 0, since_ps = 0;
    std::uint64_t seen = 0;  // the instant at which it was last settled
    BytesPerSecond rate;     // of one that is not shared
    Bytes left;              // at since_ps
  };
  struct Link {
    std::int64_t capacity = 0, load = 0;  // the sum of its flows' caps
    std::uint64_t seen = 0;
    std::int64_t num_shared = 0;
    double left = 0;  // while rates are found: for as many flows of open rate
    std::int64_t open = 0;
    std::vector<std::uint32_t> flows;                                    // those that are not shared
    bool is_full() const { return load > capacity + (capacity >> 30); }  // thirds and tenths are not exact
    double share() const { return open > 0 ? left / double(open) : std::numeric_limits<double>::infinity(); }
  };

  std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t> through) override;
  void reset();
  void end(std::uint32_t flow);
  void place(std::uint32_t flow);
  void settle(std::int64_t now_ps);
  void gather(std::uint32_t first);
  bool find_rates();
  std::size_t fill(double rate);
  void set_rate(std::uint32_t flow, BytesPerSecond rate, std::int64_t now_ps);
  static void advance_to(Flow& flow, std::int64_t now_ps);
  void leave_links(std::uint32_t flow);
  void give_away(std::int64_t now_ps);
  void share();

  const Topology& topology_;
  SharedLinks& shared_;
  SolvedFlows solved_;
  double unit_ = 1;  // of caps
  Network::Client* client_ = nullptr;
  EventQueue ends_;  // of flows that are not shared
  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::int64_t client_next_ps_ = 0;
  std::uint64_t epoch_ = 0;
  std::vector<std::uint32_t> free_, sent_, entering_, through_;
  std::vector<std::uint32_t> eased_;  // links that an end has left more of
  std::vector<std::uint32_t> component_, full_;
  std::vector<double> rates_;       // of the component's flows, in units of caps; negative: open
  std::vector<std::size_t> level_;  // flows of the component
  std::vector<EventQueue::Fired> fired_;
};

}  // namespace orrery
