// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/execution.hpp"

#include <bit>
#include <utility>

namespace orrery {

Execution::Execution(const ExecutionContext& context, std::int64_t start_ps)
    : c_{context},
      now_ps_{start_ps},
      num_slots_{context.fleet.size() * kNumStreams},
      shares_{context.fleet.capacities(), num_slots_},
      gatherings_{context.fleet.num_communicators() + context.fleet.size()} {
  if (c_.stepping != nullptr) stepped_.emplace(*c_.stepping, c_.fleet, queue_, shares_, num_slots_, c_.network);
  slots_.resize(num_slots_);
  ranks_.resize(c_.fleet.size());
  replays_.resize(c_.fleet.size());
  runs_.resize(c_.fleet.size());
  for (std::uint32_t r = 0; r < c_.fleet.size(); ++r) {
    RankRun& rank = ranks_[r];
    rank.class_id = c_.fleet.class_of(r);
    rank.kind = c_.fleet.kind(r);
    rank.host_ps = start_ps;
    const HostSchedule& schedule = c_.ops.schedule(rank.class_id, rank.kind);
    rank.schedule = schedule.is_empty() ? nullptr : &schedule;
    const ClassOps& ops = c_.ops.of_class(rank.class_id);
    if (!ops.waits.empty()) rank.next_wait = ops.waits.front();
    find_block(rank, 0);
    rank.first_op = ops.first_op;
    rank.first_span = c_.first_span + num_ops_;
    num_ops_ += ops.num_ops;
    for (std::uint32_t s = 0; s < kNumStreams; ++s) {
      slots_[r * kNumStreams + s].next = ops.first_record[s];
      slots_[r * kNumStreams + s].end = ops.first_record[s + 1];
    }
  }
}

std::int64_t Execution::run() {
  for (std::uint32_t slot = 0; slot < num_slots_; ++slot) try_start(slot);
  settle();
  if (c_.network != nullptr)
    c_.network->run(now_ps_, *this);
  else
    while (!queue_.empty()) step();
  if (num_ended_ != num_ops_) report_stuck();
  return now_ps_;
}

std::int64_t Execution::advance(std::int64_t now_ps, std::span<const std::uint32_t> through) {
  for (const std::uint32_t id : through) queue_.push(now_ps, {id, version(id)});
  while (!queue_.empty() && queue_.next_ps() <= now_ps) step();
  return queue_.empty() || num_ended_ == num_ops_ ? Network::kNever : queue_.next_ps();
}

// Where ranks do not march in step, each event touches memory of another rank: its lines are on their way before its
// turn comes.

void Execution::prefetch_slot() const {
  if (queue_.empty() || queue_.next_id() >= num_slots_) return;
  __builtin_prefetch(slots_.data() + queue_.next_id());
  __builtin_prefetch(ranks_.data() + queue_.next_id() / kNumStreams);
}

void Execution::prefetch_op() const {
  if (!queue_.empty() && queue_.next_id() < num_slots_) c_.ops.prefetch(slots_[queue_.next_id()].next);
}

void Execution::step() {
  prefetch_op();
  const std::int64_t at_ps = queue_.pop(fired_);
  prefetch_slot();
  due_.clear();
  const std::int64_t before = now_ps_;
  now_ps_ = at_ps;
  bool any = false;
  for (const EventQueue::Fired& timer : fired_) any |= end_timer(timer);
  if (!any) now_ps_ = before;
  for (std::uint32_t slot : due_) resume(slot);
  settle();
}

/// False if it was cancelled.
bool Execution::end_timer(EventQueue::Fired timer) {
  if (timer.id >= num_slots_) return end_shared(timer);
  Slot& slot = slots_[timer.id];
  if (slot.version != timer.version) return false;
  if (slot.state == State::Delayed) {
    slot.state = State::Due;
  } else if (slot.state == State::Awaiting) {
    slot.state = State::Idle;
  } else if (slot.state == State::Replayed) {
    end_replay(timer.id / kNumStreams);
    return true;
  } else {
    if (slot.uses_shared) shares_.remove(timer.id);
    finish(timer.id);
  }
  due_.push_back(timer.id);
  return true;
}

/// The end of a gathering, or of a message of one that runs step by step.
bool Execution::end_shared(EventQueue::Fired timer) {
  std::uint32_t ended = gathering_of(timer.id);
  if (is_message(timer.id))
    ended = stepped_->end(timer, now_ps_);
  else if (gatherings_[ended].version != timer.version)
    return false;
  else if (gatherings_[ended].is_to_send) {
    send(ended);
    return true;
  }
  if (ended == SteppedCollectives::kCancelled) return false;
  if (ended != SteppedCollectives::kNone) end_gathering(ended);
  return true;
}

/// A slot whose delay is over begins its op; one whose op has ended goes on with the next, and so do those that waited
/// for it.
void Execution::resume(std::uint32_t slot) {
  if (slots_[slot].state == State::Due) return begin(slot);
  const std::uint32_t r = slot / kNumStreams, stream = slot % kNumStreams;
  try_start(slot);
  RankRun& rank = ranks_[r];
  if (rank.waiters[stream]) wake(r, std::exchange(rank.waiters[stream], std::uint16_t{0}));
  if (rank.host_waiters) wake(r, std::exchange(rank.host_waiters, std::uint16_t{0}));
}

void Execution::wake(std::uint32_t rank, std::uint16_t streams) {
  for (unsigned left = streams; left != 0; left &= left - 1)
    try_start(rank * kNumStreams + static_cast<std::uint32_t>(std::countr_zero(left)));
}

void Execution::try_start(std::uint32_t index) {
  Slot& slot = slots_[index];
  if (slot.state != State::Idle || slot.next == slot.end) return;
  RankRun& rank = ranks_[index / kNumStreams];
  const EngineOp& record = c_.ops[slot.next];
  if (!host_allows(rank, record)) {
    rank.host_waiters |= static_cast<std::uint16_t>(1u << index % kNumStreams);
    return;
  }
  if (deps_ended(rank, index, record) && !delayed(rank, index) && !try_replay(index)) begin(index);
}

/// Ops after a wait are not enqueued yet; the wait itself needs all before it to have ended, or what it reads.
bool Execution::host_allows(RankRun& rank, const EngineOp& record) const {
  return record.op < rank.next_wait ||
         (record.op == rank.next_wait && (record.kind == OpKind::WaitToRead || rank.ended == record.op));
}

bool Execution::deps_ended(RankRun& rank, std::uint32_t index, const EngineOp& record) {
  Slot& slot = slots_[index];
  const std::uint32_t first = index - index % kNumStreams;
  for (; slot.dep < record.num_deps; ++slot.dep) {
    const Dependency d = c_.ops.dep(record, slot.dep);
    if (slots_[first + d.stream()].next > d.record()) continue;
    if (slots_[first + d.stream()].state == State::Replayed) {
      const std::int64_t end_ps = replayed_end(first / kNumStreams, d);
      if (end_ps <= now_ps_) continue;
      if (end_ps < replay_end(first / kNumStreams)) {  // else the end of the replay wakes it
        slot.state = State::Awaiting;
        queue_.push(end_ps, {index, ++slot.version});
        return false;
      }
    }
    rank.waiters[d.stream()] |= static_cast<std::uint16_t>(1u << index % kNumStreams);
    return false;
  }
  return true;
}

/// Whether the host makes the op wait: until it has enqueued it, or while it prepares to do the op itself.
bool Execution::delayed(const RankRun& rank, std::uint32_t index) {
  Slot& slot = slots_[index];
  if (is_all_ready(rank) || c_.ops[slot.next].op < rank.enqueued) return false;
  const std::int64_t ready = rank.schedule->ready_ps(c_.ops[slot.next].op);
  const std::int64_t start = ready < 0 ? now_ps_ - ready - 1 : rank.host_ps + ready;
  if (start <= now_ps_) return false;
  slot.state = State::Delayed;
  queue_.push(start, {index, ++slot.version});
  return true;
}

void Execution::begin(std::uint32_t index) {
  Slot& slot = slots_[index];
  const EngineOp& record = c_.ops[slot.next];
  if (record.storage & kTakes) replay_storage(index / kNumStreams, now_ps_ + 1);
  slot.state = State::Running;
  slot.start_ps = now_ps_;
  if (finds_ != nullptr && (record.storage & kTakes))
    finds_->note_storage(now_ps_, {record.op - found_block_->first_op, false});
  if ((record.storage & kTakes) && c_.memory != nullptr) take_storage(index, record);
  if (record.kind == OpKind::Single || is_wait(record.kind))
    begin_single(index, record);
  else
    arrive(index, record);
}

void Execution::take_storage(std::uint32_t index, const EngineOp& record) {
  const std::uint32_t rank = index / kNumStreams;
  const OpId op = op_of(ranks_[rank], record);
  const auto stream = static_cast<Stream>(index % kNumStreams);
  const MessageOwner storage = storage_of(record);
  const bool is_peak = storage.owner.is_none() ? c_.memory->take(rank, op, now_ps_)
                                               : c_.memory->take(rank, op, stream, storage, now_ps_);
  if (is_peak) c_.memory->record_peak(rank, progress(rank, now_ps_));
}

void Execution::give_storage(std::uint32_t index, const EngineOp& record) {
  const std::uint32_t rank = index / kNumStreams;
  if (const MessageOwner storage = storage_of(record); storage.owner.is_none())
    c_.memory->give(rank, op_of(ranks_[rank], record), now_ps_);
  else
    c_.memory->give(rank, storage, now_ps_);
}

void Execution::begin_single(std::uint32_t index, const EngineOp& record) {
  run_single(index, record, c_.costs.single(record.work, ranks_[index / kNumStreams].kind).duration_ps);
}

void Execution::run_single(std::uint32_t index, const EngineOp& record, std::int64_t duration_ps) {
  const std::uint32_t rank = index / kNumStreams;
  const SingleCost& cost = c_.costs.single(record.work, ranks_[rank].kind);
  slots_[index].uses_shared = cost.num_demands > 0;
  if (cost.num_demands > 0) {
    std::array<ResourceUse, kMaxDemands> uses;
    for (std::size_t i = 0; i < cost.num_demands; ++i) uses[i] = c_.fleet.use(rank, cost.resources[i], cost.shares[i]);
    const std::span<const ResourceUse> wanted{uses.data(), cost.num_demands};
    const bool undisturbed = shares_.add(index, wanted, duration_ps, now_ps_);
    if (finds_ != nullptr) finds_->note_use(wanted, shares_, undisturbed);
    if (!undisturbed) return;
  }
  queue_.push(now_ps_ + duration_ps, {index, ++slots_[index].version});
}

void Execution::finish(std::uint32_t index) {
  Slot& slot = slots_[index];
  const std::uint32_t r = index / kNumStreams;
  RankRun& rank = ranks_[r];
  const EngineOp& record = c_.ops[slot.next];
  if (c_.spans != nullptr)
    (*c_.spans)[rank.first_span + record.op] = {slot.start_ps,    now_ps_,     op_of(rank, record),
                                                c_.fleet.rank(r), c_.instance, 0};
  if (record.storage & kGives) replay_storage(r, now_ps_);
  ++slot.next;
  slot.dep = 0;
  slot.state = State::Idle;
  ++rank.ended;
  ++num_ended_;
  if (finds_ != nullptr && (record.storage & kGives))
    finds_->note_storage(now_ps_, {record.op - found_block_->first_op, true});
  if ((record.storage & kGives) && c_.memory != nullptr) give_storage(index, record);
  if (!is_wait(record.kind)) return;
  const auto& waits = c_.ops.of_class(rank.class_id).waits;
  rank.host_ps = now_ps_;
  rank.enqueued = record.op;
  rank.next_wait = ++rank.waits_passed < waits.size() ? waits[rank.waits_passed] : UINT32_MAX;
}

void Execution::settle() {
  if (shares_.is_settled()) return;
  break_off_disturbed();
  shares_.settle(now_ps_, retimed_);
  for (const FairShare::Retimed& r : retimed_) queue_.push(r.end_ps, {r.activity, ++version(r.activity)});
}

/// Of the timer of a slot, gathering or message.
std::uint32_t& Execution::version(std::uint32_t id) {
  if (id < num_slots_) return slots_[id].version;
  return is_message(id) ? stepped_->version(id) : gatherings_[gathering_of(id)].version;
}

RankProgress Execution::progress(std::uint32_t rank, std::int64_t at_ps) const {
  RankProgress out;
  const ClassOps& ops = c_.ops.of_class(ranks_[rank].class_id);
  for (std::uint32_t s = 0; s < kNumStreams; ++s) {
    const Slot& slot = slots_[rank * kNumStreams + s];
    out.ended[s] = slot.next - ops.first_record[s];
    out.started[s] = out.ended[s] + (slot.state == State::Running || slot.state == State::Arrived);
    if (slot.state != State::Replayed) continue;
    for (const BlockRun::Timing& t : replays_[rank].run->ops[s]) {
      out.started[s] += replays_[rank].start_ps + t.start <= at_ps;
      out.ended[s] += replays_[rank].start_ps + t.end <= at_ps;
    }
  }
  return out;
}

}  // namespace orrery
