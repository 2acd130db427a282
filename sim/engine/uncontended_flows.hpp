// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/event_queue.hpp"
#include "sim/engine/flow_library.hpp"
#include "sim/engine/flow_network.hpp"

namespace orrery {

/// Flows that nobody holds back end when they would alone; only others are given to the links that are shared.
///
/// A flow's cap is the rate of its narrowest link. While the caps of all flows over a link sum up to what it has, the
/// link holds nobody back; a flow over such links alone has its cap by max-min fairness, whatever flows elsewhere do.
/// With the first flow too many, all of that link are shared from then on, with what is left of them. Shared flows do
/// not miss the others: where both kinds meet, the link is wide enough for all caps.
///
/// Flows that begin at one instant over the same links with the same bytes have equal rates for as long as they live,
/// and are shared as one. Both are exact, and what they save is SimGrid's time per flow, which grows with the number of
/// flows that it holds.
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
    BytesPerSecond rate;
    Bytes left;  // at since_ps
  };
  struct Link {
    std::int64_t capacity = 0, load = 0;                                 // the sum of its flows' caps
    std::vector<std::uint32_t> flows;                                    // those that are not shared
    bool is_full() const { return load > capacity + (capacity >> 30); }  // thirds and tenths are not exact
  };

  std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t> through) override;
  void reset();
  void end(std::uint32_t flow);
  void admit(std::int64_t now_ps);
  void place(std::uint32_t flow);
  bool is_held_back(const Flow& flow) const;
  void begin_alone(std::uint32_t flow, std::int64_t now_ps);
  void leave_links(std::uint32_t flow);
  void take_from(Link& link, std::int64_t now_ps);
  void share();

  const Topology& topology_;
  SharedLinks& shared_;
  SolvedFlows solved_;
  double unit_ = 1;  // of caps
  Network::Client* client_ = nullptr;
  EventQueue ends_;  // of flows that are not shared
  std::vector<Flow> flows_;
  std::vector<Link> links_;
  std::vector<std::uint32_t> free_, sent_, entering_, through_;
  std::vector<EventQueue::Fired> fired_;
};

}  // namespace orrery
