// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/engine/block_run.hpp"
#include "sim/engine/event_queue.hpp"
#include "sim/engine/fair_share.hpp"
#include "sim/engine/gatherings.hpp"
#include "sim/engine/memory_model.hpp"
#include "sim/engine/op_table.hpp"
#include "sim/engine/stepped_collectives.hpp"

namespace orrery {

/// What an execution reads and fills; `spans` and `memory` may be absent.
struct ExecutionContext {
  const Plan& plan;
  const Fleet& fleet;
  const OpTable& ops;
  CostTable& costs;
  MemoryModel* memory = nullptr;
  Spans* spans = nullptr;  // with room for all ops from `first_span` on: rank by rank, op by op
  std::size_t first_span = 0;
  const CostModel* stepping = nullptr;  // of collectives that run step by step
  Network* network = nullptr;           // which takes all messages; with `stepping` only
  std::uint32_t instance = 0;
};

/// One execution of a plan. A slot is one stream of one simulated rank: it runs the ops of its stream one after
/// another, and holds all that is kept per op while it runs. At each instant first all that ends ends, then all that
/// can start starts, then the rates of what contends are settled.
class Execution final : private Network::Client {
 public:
  Execution(const ExecutionContext& context, std::int64_t start_ps);
  /// Runs to the end; the instant at which the last op has ended. Throws UserError when ops wait for each other for
  /// ever.
  std::int64_t run();
  std::uint64_t num_ops() const { return num_ops_; }

 private:
  enum class State : std::uint8_t { Idle, Delayed, Awaiting, Due, Arrived, Running, Replayed };
  struct Slot {
    std::int64_t start_ps = 0;
    std::uint32_t next = 0, end = 0;  // records: the one that runs or comes next, and past the last
    std::uint32_t dep = 0;            // dependencies of `next` known to have ended
    std::uint32_t link = UINT32_MAX;  // next slot of the same gathering
    std::uint32_t version = 0;        // of its timer
    State state = State::Idle;
    bool uses_shared = false;  // whether the op that runs alone asks for resources
  };
  static_assert(sizeof(Slot) == 32);
  struct alignas(64) RankRun {               // what each op asks for comes first, in one line of a cache
    std::int64_t host_ps = 0;                // when the host could begin to enqueue, since its last wait
    const HostSchedule* schedule = nullptr;  // of its class; null: all is ready at once
    std::uint32_t class_id = 0, kind = 0;
    std::uint32_t ended = 0;                           // ops
    std::uint32_t next_wait = UINT32_MAX;              // the op that the host waits at next
    std::uint32_t enqueued = 0;                        // all ops before this one, at which it has waited last
    std::uint32_t block_begins = UINT32_MAX;           // record at which the next block begins that repeats another one
    std::array<std::uint16_t, kNumStreams> waiters{};  // per stream: streams that wait for one of its ops
    std::uint16_t host_waiters = 0;                    // streams that wait for the host
    std::uint32_t next_block = 0, waits_passed = 0, first_op = 0;
    std::size_t first_span = 0;
  };

  std::int64_t advance(std::int64_t now_ps, std::span<const std::uint32_t> through) override;
  void step();
  void prefetch_slot() const;
  void prefetch_op() const;
  bool end_timer(EventQueue::Fired timer);
  bool end_shared(EventQueue::Fired timer);
  void resume(std::uint32_t slot);
  void wake(std::uint32_t rank, std::uint16_t streams);
  void try_start(std::uint32_t slot);
  bool host_allows(RankRun& rank, const EngineOp& record) const;
  bool deps_ended(RankRun& rank, std::uint32_t slot, const EngineOp& record);
  bool is_all_ready(const RankRun& rank) const {
    return rank.schedule == nullptr || now_ps_ - rank.host_ps >= rank.schedule->all_ready_ps();
  }
  bool delayed(const RankRun& rank, std::uint32_t slot);
  void begin(std::uint32_t slot);
  void begin_single(std::uint32_t slot, const EngineOp& record);
  void run_single(std::uint32_t slot, const EngineOp& record, std::int64_t duration_ps);
  void finish(std::uint32_t slot);
  void take_storage(std::uint32_t slot, const EngineOp& record);
  void give_storage(std::uint32_t slot, const EngineOp& record);
  MessageOwner storage_of(const EngineOp& record) const {
    return is_point_to_point(record.kind) ? c_.ops.call(record).storage : MessageOwner{};
  }
  void settle();
  std::uint32_t& version(std::uint32_t id);
  OpId op_of(const RankRun& rank, const EngineOp& record) const { return OpId{std::size_t{rank.first_op} + record.op}; }
  OpId first_op_of(std::uint32_t rank, const OpBlocks::Instance& block) const {
    return OpId{std::size_t{ranks_[rank].first_op} + block.first_op};
  }
  RankProgress progress(std::uint32_t rank, std::int64_t at_ps) const;

  void arrive(std::uint32_t slot, const EngineOp& record);
  std::uint32_t enter(std::uint32_t slot, const EngineOp& record);
  GatheringKey key_of(std::uint32_t slot, const EngineOp& record, std::uint32_t& expected) const;
  SharedCost cost_of(const Gathering& gathering);
  void begin_gathering(std::uint32_t gathering);
  void run_gathering(std::uint32_t gathering, const SharedCost& cost, std::int64_t duration_ps);
  std::pair<RankId, RankId> ends_of(const Gathering& message) const;
  const Send& send_of(const Gathering& message) const;
  std::uint32_t speaker_of(const Gathering& gathering) const;
  void send(std::uint32_t gathering);
  void end_gathering(std::uint32_t gathering);
  bool steps(const Gathering& gathering) const;
  // Timers and activities are numbered: slots, then gatherings and messages of stepped collectives in turn.
  std::uint32_t id_of(std::uint32_t gathering) const { return num_slots_ + 2 * gathering; }
  bool is_message(std::uint32_t id) const { return (id - num_slots_) % 2 == 1; }
  std::uint32_t gathering_of(std::uint32_t id) const { return (id - num_slots_) / 2; }

  // replay.cpp
  bool runs_alone(std::uint32_t rank, const EngineOp& record) const;
  bool is_closed(const OpBlocks::Instance& block, const OpBlocks::Pattern& pattern, const BlockRun& run) const;
  BlockRun& run_of(std::uint32_t rank, const OpBlocks::Instance& block);
  void run_alone(std::uint32_t rank, const OpBlocks::Instance& block, BlockRun& run);
  bool try_replay(std::uint32_t slot);
  void find_block(RankRun& rank, std::uint32_t record) const;
  bool stands_before(std::uint32_t rank, const OpBlocks::Instance& block, const BlockRun& run) const;
  void begin_replay(std::uint32_t rank, const OpBlocks::Instance& block, BlockRun& run);
  void account_replay(std::uint32_t rank, std::int64_t before_ps);
  void end_replay(std::uint32_t rank);
  void break_off(std::uint32_t rank);
  void break_off_disturbed();
  void go_on(std::uint32_t slot, std::int64_t start_ps, std::int64_t end_ps);
  MemoryModel::Replayed storage_of(std::uint32_t rank, const Replay& replay) const;
  void replay_storage(std::uint32_t rank, std::int64_t before_ps);
  std::int64_t replayed_end(std::uint32_t rank, Dependency d) const;
  std::int64_t replay_end(std::uint32_t rank) const { return replays_[rank].start_ps + replays_[rank].run->duration; }

  [[noreturn]] void report_stuck() const;
  std::string standing_text(std::uint32_t slot) const;

  ExecutionContext c_;
  std::int64_t now_ps_ = 0;
  std::uint64_t num_ops_ = 0, num_ended_ = 0;
  std::uint32_t num_slots_ = 0;
  std::vector<Slot, LargePageAllocator<Slot>> slots_;
  std::vector<RankRun, LargePageAllocator<RankRun>> ranks_;
  EventQueue queue_;
  FairShare shares_;
  Gatherings gatherings_;
  std::optional<SteppedCollectives> stepped_;
  std::vector<EventQueue::Fired> fired_;
  std::vector<std::uint32_t> due_, present_;
  std::vector<FairShare::Retimed> retimed_;

  std::vector<Replay> replays_;                             // per rank
  std::vector<std::vector<std::optional<BlockRun>>> runs_;  // per rank and pattern
  std::unique_ptr<Execution> alone_;                        // where blocks run alone
  Spans alone_spans_;
  BlockRun* finds_ = nullptr;  // of an execution where a block runs alone: what it finds
  const OpBlocks::Instance* found_block_ = nullptr;
  std::vector<std::uint32_t> disturbed_;
};

}  // namespace orrery
