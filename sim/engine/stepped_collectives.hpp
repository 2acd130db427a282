// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/machine/bulk_flows.hpp"
#include "sim/engine/event_queue.hpp"
#include "sim/engine/fair_share.hpp"
#include "sim/engine/fleet.hpp"
#include "sim/machine/network.hpp"
#include "sim/plan/collective_steps.hpp"

namespace orrery {

/// Collectives that run step by step. Each lane of each member walks through its algorithm's steps; a message starts
/// when sender and receiver are at its step, takes latency + bytes / bandwidth, and shares links and cards with all
/// that uses them; a step ends with its messages. The steps of a member are found as it walks: nothing is kept but
/// where it is.
///
/// Chunks are taken as equal, as the closed forms do. A link carries a message from its first byte on: latencies
/// overlap. Copies and sums of a member take no time.
///
/// Over a network, a collective whose closed form says how long its bytes flow is taken as one flow per way that it
/// uses (bulk_flows.hpp) in place of steps: alone it takes just the time of the closed form.
///
/// Folded, members that see the same steps and the same nodes, one period of the communicator apart, walk as one, over
/// links of their own: whatever else would use links of the communicator's ranks meanwhile is refused.
class SteppedCollectives {
 public:
  static constexpr std::uint32_t kNone = UINT32_MAX, kCancelled = UINT32_MAX - 1;

  SteppedCollectives(const CostModel& cost, const Fleet& fleet, EventQueue& queue, FairShare& shares,
                     std::uint32_t first_activity, Network* network)
      : cost_{cost},
        fleet_{fleet},
        queue_{queue},
        shares_{shares},
        first_activity_{first_activity},
        network_{network} {}

  /// Activities and timers of ids first_activity + 1, + 3, + 5 … are messages.
  void begin(std::uint32_t gathering, const Collective& work, std::uint32_t communicator,
             std::span<const std::uint32_t> simulated, std::int64_t now_ps);
  /// A timer of a message: the gathering that has ended with it, kNone if none has, kCancelled if it no longer counts.
  std::uint32_t end(EventQueue::Fired timer, std::int64_t now_ps);
  std::uint32_t& version(std::uint32_t activity) { return messages_[message_of(activity)].version; }

 private:
  struct Walker {
    CollectiveSteps steps;
    std::int64_t k = 0, size = 0;
    std::int64_t count = 0;  // elements that it gets
    std::int32_t to = kNobody, from = kNobody, to_step = 0, from_step = 0;
    std::int8_t left = 0;     // messages of its step that are not through
    bool is_getting = false;  // its message is on its way
    std::int32_t way_from = kNobody;
    Way way;  // of the last message that it got
  };
  struct Place {  // of a walking member: the pools of its links and cards, and what a message takes of them
    std::array<std::uint32_t, 4> pools{};
    std::array<std::int64_t, 4> shares{};
  };
  struct Run {
    std::uint32_t gathering = kNone;  // kNone: free
    std::uint32_t first_message = 0, room = 0;
    std::uint32_t lanes = 1, walkers_left = 0;
    std::size_t period = 1;
    double element = 0;  // bytes of one
    bool holds_devices = false;
    std::vector<BulkFlow> flows;  // in place of steps
    Seconds flowing;
    std::size_t flows_left = 0;
    std::span<const RankId> members;
    std::vector<Walker> walkers;  // lane by lane of each member of the period
    std::vector<Place> places;
    std::vector<std::uint32_t> own_pools;  // folded
    std::size_t own_pools_used = 0;
    std::vector<std::uint32_t> claimed;
  };
  struct Message {
    std::uint32_t run = 0, version = 0;
    bool flows = false;  // its first byte is there
  };

  std::uint32_t message_of(std::uint32_t activity) const { return (activity - first_activity_) / 2; }
  std::uint32_t activity_of(std::uint32_t message) const { return first_activity_ + 2 * message + 1; }
  Run& free_run(std::uint32_t messages);
  std::size_t period_of(const CollectiveShape& shape, std::span<const RankId> members) const;
  void place_members(Run& run, std::span<const std::uint32_t> simulated);
  void claim_ways(Run& run);
  void hold_devices(Run& run, const CollectiveSetup& setup, std::span<const std::uint32_t> simulated,
                    std::int64_t now_ps);
  void begin_flows(Run& run, const CollectiveSetup& setup, std::span<const std::uint32_t> simulated,
                   std::int64_t now_ps);
  void send_flows(Run& run);
  void enter(Run& run, std::uint32_t walker, std::int64_t now_ps);
  void start_message(Run& run, std::uint32_t to, std::int64_t now_ps);
  void start_flow(Run& run, std::uint32_t to, std::int64_t now_ps);
  void message_through(Run& run, std::uint32_t walker, std::int64_t now_ps);
  std::uint32_t walker_of(const Run& run, std::int32_t member, std::uint32_t like) const {
    return static_cast<std::uint32_t>(static_cast<std::size_t>(member) % run.period) * run.lanes + like % run.lanes;
  }
  static bool has_bytes(const Run& run, const Walker& w) { return w.count > 0 && run.element > 0; }
  void finish(Run& run);

  const CostModel& cost_;
  const Fleet& fleet_;
  EventQueue& queue_;
  FairShare& shares_;
  std::uint32_t first_activity_;
  Network* network_;  // null: messages share what they use with all other activities
  std::vector<Run> runs_;
  std::vector<Message> messages_;  // per run: its start, its hold on devices, then one per walker: what it gets
};

}  // namespace orrery
