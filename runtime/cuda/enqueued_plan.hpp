// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cuda/activities.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/events.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/prepared_plan.hpp"

namespace orrery {

/// A plan whose lanes are streams of GPUs. One thread of the host goes through the ops of all ranks, each rank's in
/// plan order as far as its partners in collectives and messages have come, and tells the streams what to do: what an
/// op waits for on another stream is an event. Ranks share GPUs where there are fewer.
///
/// Where processes share the ranks, each goes through the ops of all of them and enqueues those of its own: all come to
/// meetings in one order, in which every op waits only for such as were enqueued before it. Were each rank enqueued as
/// far as it goes by itself, storage that is reused could make streams of two processes wait for one another.
///
/// Storage is taken and given back when ops are enqueued; a stream that takes storage first waits for all other streams
/// of the rank that have given some back. Spans are measured by events around each op, or come from activity records.
///
/// With graphs the first execution is captured and then launched as a whole, later ones launch it again; ops whose
/// arguments depend on what is bound are asked again then, and their calls replace those in the graph. It is captured
/// anew when the number of such calls has changed or persistent tensors have come: by all processes, if by one.
class EnqueuedPlan final : public PreparedPlan {
 public:
  struct Options {
    bool fast_f32 = false;
    bool graphs = false;
    int capability = 0;                    // of the devices
    ActivitySource* activities = nullptr;  // where spans come from in place of events
    ActivityAccount* account = nullptr;
    std::shared_ptr<Peers> peers = nullptr;  // processes that have a share of the ranks
    std::uint32_t quick_attention = 0;       // as of GpuQueue
  };
  EnqueuedPlan(const Preparation& preparation, const Device& device, std::shared_ptr<GpuDriver> driver,
               const Options& options);
  ~EnqueuedPlan() override;

 private:
  struct TimedOp {
    OpId op;
    GpuEvent start = nullptr, end = nullptr;  // none: the host did it
    std::int64_t start_ns = 0, end_ns = 0;
  };
  struct Lane {
    RankRun* rank = nullptr;
    std::size_t index = 0;       // in the rank
    GpuOwned<GpuStream> stream;  // none: of another process
    std::size_t next = 0;        // op to enqueue
    bool has_come = false;       // to the meeting of that op
    GpuEvent start = nullptr;    // of that op
    std::int64_t start_ns = 0;   // likewise
    GpuEvent gave = nullptr;     // passes when all that it has given back is free
    std::vector<GpuEvent> seen;  // per lane of the rank: the last `gave` that this one has waited for
    std::vector<TimedOp> timed;

    const OpRecord& op() const { return rank->program->lanes[index][next]; }
    bool is_here() const { return rank->is_here(); }
    bool is_done() const { return next == rank->program->lanes[index].size(); }
  };
  struct RankLanes {
    std::vector<Lane> lanes;
    // Raised so far in this execution; they pass when their op has ended. No event where that is of another process.
    std::vector<std::optional<GpuEvent>> signals;
    GpuEvent origin = nullptr;  // passed at origin_ns
    std::int64_t origin_ns = 0;
  };

  /// An op that was captured, in the order of enqueueing.
  struct CapturedOp {
    Lane* lane;
    const OpRecord* op;
    bool is_bound;  // calls of it on the device depend on what is bound
  };
  /// Storage that was taken for an op, or given back behind it, in the order in which that was done.
  struct StorageEvent {
    Lane* lane;
    const OpRecord* op;
    bool taken;
  };

  void run_lanes(const Bindings& bindings) override;
  void clean_up() override;
  void start();
  void enqueue_all();
  void run_graph();
  void capture();
  void drop_capture() noexcept;
  bool all_agree(bool mine) const;  // with the other processes
  Lane* first_lane();               // of this process, whose stream launches graphs; null when there is nothing to do
  bool update();                    // of bound ops; whether the graph is still one of this plan
  void account();                   // of storage and copies, as if ops were enqueued
  void account(const StorageEvent& e);
  void fork_and_join(bool joins);
  std::vector<std::uint64_t> memory_versions() const;
  OpCall call_of(const Lane& lane, const OpRecord& op, GpuQueue& queue) const;
  void start_clocks();
  bool advance(RankLanes& r);  // enqueues ops of a rank until it has to wait for others; whether there were any
  bool is_ready(const RankLanes& r, const Lane& lane) const;
  void come(Lane& lane);  // to a meeting
  void meet(const Meeting& meeting, std::span<Lane* const> members);
  void leave(Lane& lane);  // goes behind its op
  void connect();          // groups of meetings with other processes
  int device_of(RankId rank) const;
  void begin_op(Lane& lane);
  void end_op(Lane& lane);
  void take_storage(RankLanes& r, Lane& lane);
  void enqueue(Lane& lane);
  void synchronize();
  void collect_spans();
  void resolve(RankLanes& r, Lane& lane);
  GpuQueue queue_of(const Lane& lane);
  RankLanes& rank_of(const Lane& lane) { return rank_lanes_[lane.rank->rank.index()]; }

  std::shared_ptr<GpuDriver> driver_;
  Options options_;
  EventPool events_;
  HostSide host_;
  std::vector<RankLanes> rank_lanes_;
  std::map<const Meeting*, std::vector<Lane*>> seated_;  // of those that have come; looked up only
  std::map<const Meeting*, GpuGroup> crossing_;          // of meetings with ranks of other processes; looked up only
  std::size_t left_ = 0;                                 // ops that are not enqueued
  std::vector<MarkedOp> marked_;                         // the op of mark i + 1
  const Bindings* bindings_ = nullptr;
  bool captures_ = false;
  std::unique_ptr<GpuGraph> graph_;
  std::vector<CapturedOp> captured_;
  std::vector<StorageEvent> captured_storage_;
  std::vector<std::uint64_t> captured_versions_;
  Bindings captured_bindings_;
};

}  // namespace orrery
