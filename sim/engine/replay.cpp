// SPDX-License-Identifier: Apache-2.0
// Execution: blocks that repeat are run once alone, and then replayed as long as nothing disturbs them.
//
// A block is replayed where it would run as it did alone: its streams stand before it, all that it waits for has ended,
// the host has enqueued it, and what it asks for is free. It then holds the most that it asks for at once. When
// somebody else wants more of that than there is, the replay is broken off: ops that have ended stay as they are, those
// that run go on with what is left of them, and the rest of the block runs op by op.
#include <algorithm>

#include "sim/engine/execution.hpp"

namespace orrery {
namespace {

constexpr std::uint32_t kMostDisturbed = 8;  // then a block is not replayed any more
constexpr std::uint32_t kCompute = static_cast<std::uint32_t>(Stream::Compute);

}  // namespace

void BlockRun::note_use(std::span<const ResourceUse> wanted, const FairShare& shares, bool undisturbed) {
  may_replay = may_replay && undisturbed;
  for (const ResourceUse& u : wanted) {
    const std::int64_t load = shares.load(u.resource);
    const auto it =
        std::find_if(uses.begin(), uses.end(), [&](const ResourceUse& m) { return m.resource == u.resource; });
    if (it == uses.end())
      uses.push_back({u.resource, 0, load});
    else
      it->share = std::max(it->share, load);
  }
}

/// Whether an op of this rank alone decides when it starts and ends.
bool Execution::runs_alone(std::uint32_t rank, const EngineOp& record) const {
  if (record.kind == OpKind::Single) return true;
  if (record.kind != OpKind::Collective) return false;
  const auto& work = std::get<Collective>(c_.plan.works[c_.ops.call(record).work]);
  return c_.fleet.num_simulated(c_.fleet.communicator(rank, work.group)) == 1;
}

/// Whether nothing in the block that is replayed waits for what is left out of it, but for messages: those have come
/// and gone before a replay begins.
bool Execution::is_closed(const OpBlocks::Instance& block, const OpBlocks::Pattern& pattern,
                          const BlockRun& run) const {
  for (const std::uint32_t s : run.streams)
    for (std::uint32_t i = 0; i < run.count[s]; ++i) {
      const EngineOp& record = c_.ops[block.first_record[s] + i];
      for (std::uint32_t k = 0; k < record.num_deps; ++k) {
        const Dependency d = c_.ops.dep(record, k);
        const bool inside = d.record() - block.first_record[d.stream()] < pattern.count[d.stream()];
        if (inside && run.count[d.stream()] == 0 && !is_point_to_point(c_.ops[d.record()].kind)) return false;
      }
    }
  return true;
}

BlockRun& Execution::run_of(std::uint32_t rank, const OpBlocks::Instance& block) {
  std::vector<std::optional<BlockRun>>& known = runs_[rank];
  const OpBlocks& blocks = c_.ops.of_class(ranks_[rank].class_id).blocks;
  known.resize(blocks.patterns.size());
  std::optional<BlockRun>& run = known[block.pattern];
  if (run) return *run;
  run.emplace();
  const OpBlocks::Pattern& pattern = blocks.patterns[block.pattern];
  for (std::uint32_t s = 0; s < kNumStreams; ++s) {
    bool alone = pattern.count[s] > 0;
    for (std::uint32_t i = 0; i < pattern.count[s]; ++i)
      alone = alone && runs_alone(rank, c_.ops[block.first_record[s] + i]);
    if (!alone) continue;
    run->streams.push_back(s);
    run->count[s] = pattern.count[s];
    run->num_ops += pattern.count[s];
  }
  if (run->count[kCompute] > 0 && is_closed(block, pattern, *run)) run_alone(rank, block, *run);
  return *run;
}

/// Runs a block on an execution of its own, from time 0 on.
void Execution::run_alone(std::uint32_t rank, const OpBlocks::Instance& block, BlockRun& run) {
  if (!alone_) {
    ExecutionContext c = c_;
    c.memory = nullptr;
    c.spans = &alone_spans_;
    c.first_span = 0;
    alone_ = std::make_unique<Execution>(c, 0);
    for (Slot& slot : alone_->slots_) slot.next = slot.end = UINT32_MAX;
    for (RankRun& r : alone_->ranks_) {
      r.schedule = nullptr;
      r.next_wait = UINT32_MAX;
    }
  }
  Execution& alone = *alone_;
  alone_spans_.assign(block.num_ops, Span{});
  alone.now_ps_ = 0;
  alone.finds_ = &run;
  alone.found_block_ = &block;
  alone.ranks_[rank].first_span = std::size_t{0} - block.first_op;
  run.may_replay = true;
  for (const std::uint32_t s : run.streams) {
    Slot& slot = alone.slots_[rank * kNumStreams + s];
    slot.next = block.first_record[s];
    slot.end = slot.next + run.count[s];
  }
  for (const std::uint32_t s : run.streams) alone.try_start(rank * kNumStreams + s);
  alone.settle();
  while (!alone.queue_.empty()) alone.step();
  for (const std::uint32_t s : run.streams) {
    Slot& slot = alone.slots_[rank * kNumStreams + s];
    run.may_replay = run.may_replay && slot.next == slot.end;
    slot.next = slot.end = UINT32_MAX;
    for (std::uint32_t i = 0; i < run.count[s]; ++i) {
      const std::uint32_t op = c_.ops[block.first_record[s] + i].op - block.first_op;
      const Span& span = alone_spans_[op];
      run.ops[s].push_back({span.start_ps, span.end_ps, op});
      run.duration = std::max(run.duration, span.end_ps);
    }
  }
  run.may_replay = run.may_replay && run.ops[kCompute].front().start == 0 &&
                   run.ops[kCompute].back().end == run.duration && run.uses.size() <= 4 * run.streams.size();
}

/// The first block of those left that does not begin before a record of the compute stream.
void Execution::find_block(RankRun& rank, std::uint32_t record) const {
  const auto& blocks = c_.ops.of_class(rank.class_id).blocks.instances;
  while (rank.next_block < blocks.size() && blocks[rank.next_block].first_record[kCompute] < record) ++rank.next_block;
  rank.block_begins = rank.next_block < blocks.size() ? blocks[rank.next_block].first_record[kCompute] : UINT32_MAX;
}

/// Whether the block that begins with the next op of a compute stream is now replayed in place of it.
bool Execution::try_replay(std::uint32_t index) {
  if (index % kNumStreams != kCompute || finds_ != nullptr || c_.stepping != nullptr) return false;
  const std::uint32_t r = index / kNumStreams;
  RankRun& rank = ranks_[r];
  const std::uint32_t record = slots_[index].next;
  if (record < rank.block_begins) return false;
  find_block(rank, record);
  if (record != rank.block_begins) return false;
  const OpBlocks::Instance& block = c_.ops.of_class(rank.class_id).blocks.instances[rank.next_block];
  find_block(rank, record + 1);
  BlockRun& run = run_of(r, block);
  if (!run.may_replay || run.disturbed > kMostDisturbed || !stands_before(r, block, run) || !shares_.fits(run.uses))
    return false;
  begin_replay(r, block, run);
  return true;
}

bool Execution::stands_before(std::uint32_t r, const OpBlocks::Instance& block, const BlockRun& run) const {
  const RankRun& rank = ranks_[r];
  if (rank.next_wait < block.first_op + block.num_ops) return false;
  const Slot* const slots = slots_.data() + r * kNumStreams;
  for (const std::uint32_t s : run.streams) {
    if (slots[s].state != State::Idle || slots[s].next != block.first_record[s]) return false;
    if (is_all_ready(rank) || block.first_op < rank.enqueued) continue;
    const std::int64_t ready = rank.schedule->ready_ps(c_.ops[block.first_record[s] + run.count[s] - 1].op);
    if (ready < 0 || rank.host_ps + ready > now_ps_) return false;
  }
  const std::span waits{c_.ops.of_class(rank.class_id).blocks.waits};
  return std::all_of(waits.begin() + block.first_wait, waits.begin() + block.first_wait + block.num_waits,
                     [&](const OpBlocks::Wait& w) {
                       return run.count[static_cast<std::size_t>(w.of)] == 0 ||
                              slots[w.on.stream()].next > w.on.record();
                     });
}

void Execution::begin_replay(std::uint32_t r, const OpBlocks::Instance& block, BlockRun& run) {
  if (c_.memory != nullptr && run.script.script == nullptr)
    run.script = c_.memory->script(r, c_.ops.of_class(ranks_[r].class_id), block.pattern, run.storage);
  const std::span<const ResourceUse> uses{run.uses};
  std::size_t next = 0;
  for (const std::uint32_t s : run.streams) {
    Slot& slot = slots_[r * kNumStreams + s];
    slot.state = State::Replayed;
    c_.ops.prefetch(slot.next + run.count[s] - 1);  // what comes behind the block
    const std::size_t n = std::min<std::size_t>(4, uses.size() - next);
    shares_.add(r * kNumStreams + s, uses.subspan(next, n), run.duration, now_ps_);
    next += n;
  }
  replays_[r] = {&run, &block, now_ps_, 0};
  const std::uint32_t compute = r * kNumStreams + kCompute;
  queue_.push(replay_end(r), {compute, ++slots_[compute].version});
}

/// What the replay of a rank has done before a time: its ops that have ended, and their storage. Returns how many.
void Execution::account_replay(std::uint32_t r, std::int64_t before_ps) {
  Replay& replay = replays_[r];
  RankRun& rank = ranks_[r];
  const OpId first_op = first_op_of(r, *replay.block);
  Span* const spans = c_.spans == nullptr ? nullptr : c_.spans->data() + rank.first_span + replay.block->first_op;
  replay_storage(r, before_ps);
  for (const std::uint32_t s : replay.run->streams) {
    Slot& slot = slots_[r * kNumStreams + s];
    shares_.remove(r * kNumStreams + s);
    slot.state = State::Idle;
    slot.dep = 0;
    const auto& ops = replay.run->ops[s];
    std::uint32_t ended = 0;
    for (; ended < ops.size() && replay.start_ps + ops[ended].end < before_ps; ++ended) {
      const BlockRun::Timing& t = ops[ended];
      if (spans != nullptr)
        spans[t.op] = {replay.start_ps + t.start,
                       replay.start_ps + t.end,
                       OpId{first_op.index() + t.op},
                       c_.fleet.rank(r),
                       c_.instance,
                       0};
    }
    slot.next += ended;
    rank.ended += ended;
    num_ended_ += ended;
  }
}

void Execution::end_replay(std::uint32_t r) {
  account_replay(r, INT64_MAX);
  for (const std::uint32_t s : replays_[r].run->streams) due_.push_back(r * kNumStreams + s);
  replays_[r] = {};
}

void Execution::break_off(std::uint32_t r) {
  // Where somebody else's storage has come after that of this instant, what ends and starts now has done so.
  const std::size_t done = replays_[r].storage_done;
  const bool is_past = done > 0 && replays_[r].start_ps + replays_[r].run->storage_at[done - 1] == now_ps_;
  const std::int64_t before_ps = is_past ? now_ps_ + 1 : now_ps_;
  account_replay(r, before_ps);
  const Replay replay = std::exchange(replays_[r], {});
  if (c_.memory != nullptr) c_.memory->leave(storage_of(r, replay), replay.storage_done);
  ++run_of(r, *replay.block).disturbed;
  ++slots_[r * kNumStreams + kCompute].version;  // of the end that will not come
  for (const std::uint32_t s : replay.run->streams) {
    const std::uint32_t next = slots_[r * kNumStreams + s].next;
    if (!replay.holds(s, next)) continue;
    const BlockRun::Timing& t = replay.timing(s, next);
    if (replay.start_ps + t.start < before_ps)
      go_on(r * kNumStreams + s, replay.start_ps + t.start, replay.start_ps + t.end);
  }
  for (const std::uint32_t s : replay.run->streams) {
    try_start(r * kNumStreams + s);
    if (ranks_[r].waiters[s]) wake(r, std::exchange(ranks_[r].waiters[s], std::uint16_t{0}));
  }
}

/// An op runs on op by op that has begun in a replay.
void Execution::go_on(std::uint32_t index, std::int64_t start_ps, std::int64_t end_ps) {
  const EngineOp& record = c_.ops[slots_[index].next];
  if (record.kind == OpKind::Single) {
    slots_[index].state = State::Running;
    run_single(index, record, end_ps - now_ps_);
  } else {
    const std::uint32_t m = enter(index, record);
    gatherings_.close(m);
    slots_[index].state = State::Running;
    run_gathering(m, cost_of(gatherings_[m]), end_ps - now_ps_);
  }
  slots_[index].start_ps = start_ps;
}

MemoryModel::Replayed Execution::storage_of(std::uint32_t r, const Replay& replay) const {
  const auto& [script, owners] = replay.run->script;
  return {r, first_op_of(r, *replay.block), script,
          owners.subspan(std::size_t{replay.block->number} * script->num_shared, script->num_shared)};
}

/// Takes and gives storage as the replay of a rank has done before a time.
void Execution::replay_storage(std::uint32_t r, std::int64_t before_ps) {
  Replay& replay = replays_[r];
  if (replay.run == nullptr || c_.memory == nullptr) return;
  const std::vector<std::int64_t>& at = replay.run->storage_at;
  const std::size_t first = replay.storage_done;
  std::size_t last = first;
  while (last < at.size() && replay.start_ps + at[last] < before_ps) ++last;
  if (first == last) return;
  const MemoryModel::Replayed block = storage_of(r, replay);
  if (c_.memory->replay_known(block, first, last)) {
    replay.storage_done = last;
    return;
  }
  for (; replay.storage_done < last; ++replay.storage_done) {
    const std::int64_t at_ps = replay.start_ps + at[replay.storage_done];
    if (c_.memory->replay(block, replay.storage_done, at_ps)) c_.memory->record_peak(r, progress(r, at_ps));
  }
  c_.memory->learn(block, first, last);
}

/// When an op of a replay ends; far away when it is none.
std::int64_t Execution::replayed_end(std::uint32_t rank, Dependency d) const {
  const Replay& replay = replays_[rank];
  return replay.holds(d.stream(), d.record()) ? replay.start_ps + replay.timing(d.stream(), d.record()).end : INT64_MAX;
}

/// Replays that hold what others want break off.
void Execution::break_off_disturbed() {
  do {
    disturbed_.clear();
    shares_.for_each_dirty_user([&](std::uint32_t activity) {
      if (activity < num_slots_ && slots_[activity].state == State::Replayed)
        disturbed_.push_back(activity / kNumStreams);
    });
    std::sort(disturbed_.begin(), disturbed_.end());
    disturbed_.erase(std::unique(disturbed_.begin(), disturbed_.end()), disturbed_.end());
    for (const std::uint32_t r : std::vector<std::uint32_t>{disturbed_}) break_off(r);
  } while (!disturbed_.empty());
}

}  // namespace orrery
