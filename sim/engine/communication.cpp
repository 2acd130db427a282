// SPDX-License-Identifier: Apache-2.0
// Execution: ops of several ranks, and what stands still when they do not meet.
#include <fmt/format.h>

#include "sim/base/error.hpp"
#include "sim/engine/execution.hpp"

namespace orrery {

void Execution::arrive(std::uint32_t index, const EngineOp& record) {
  const std::uint32_t m = enter(index, record);
  if (gatherings_[m].arrived == gatherings_[m].expected) begin_gathering(m);
}

/// The gathering of an op, which one more has arrived at.
std::uint32_t Execution::enter(std::uint32_t index, const EngineOp& record) {
  std::uint32_t expected = 0;
  const GatheringKey key = key_of(index, record, expected);
  const std::uint32_t m = gatherings_.find_or_open(key, expected);
  Gathering& gathering = gatherings_[m];
  slots_[index].state = State::Arrived;
  slots_[index].link = UINT32_MAX;
  (gathering.first == UINT32_MAX ? gathering.first : slots_[gathering.last].link) = index;
  gathering.last = index;
  ++gathering.arrived;
  return m;
}

GatheringKey Execution::key_of(std::uint32_t index, const EngineOp& record, std::uint32_t& expected) const {
  const std::uint32_t me = index / kNumStreams;
  const Call& call = c_.ops.call(record);
  const Work& work = c_.plan.works[call.work];
  if (const auto* c = std::get_if<Collective>(&work)) {
    const std::uint32_t communicator = c_.fleet.communicator(me, c->group);
    if (communicator == Fleet::kNone) bug("a rank issues a collective of a group that it does not belong to");
    expected = c_.fleet.num_simulated(communicator);
    return {.home = communicator, .sequence = call.sequence};
  }
  expected = 2;
  GatheringKey key{.sequence = call.sequence};
  if (const auto* send = std::get_if<Send>(&work)) {
    const Partner to = c_.fleet.partner(me, send->peer, 1);
    key.home = to.simulated;
    key.from = me;
    key.route = to.route;
    key.tag = send->tag;
  } else {
    const auto& receive = std::get<Recv>(work);
    const Partner from = c_.fleet.partner(me, receive.peer, -1);
    key.home = me;
    key.from = from.simulated;
    key.route = from.route;
    key.tag = receive.tag;
  }
  key.home += c_.fleet.num_communicators();
  return key;
}

SharedCost Execution::cost_of(const Gathering& gathering) {
  present_.clear();
  for (std::uint32_t s = gathering.first; s != UINT32_MAX; s = slots_[s].link) present_.push_back(s / kNumStreams);
  const std::uint32_t work = c_.ops.call(c_.ops[slots_[speaker_of(gathering)].next]).work;
  if (std::holds_alternative<Collective>(c_.plan.works[work]))
    return c_.costs.collective(work, gathering.key.home, present_);
  const auto [from, to] = ends_of(gathering);
  return c_.costs.transfer(work, from, to, present_);
}

/// The sender of a message; any slot of a collective.
std::uint32_t Execution::speaker_of(const Gathering& gathering) const {
  for (std::uint32_t s = gathering.first; s != UINT32_MAX; s = slots_[s].link)
    if (c_.ops[slots_[s].next].kind == OpKind::Send) return s;
  return gathering.first;
}

const Send& Execution::send_of(const Gathering& message) const {
  return std::get<Send>(c_.plan.works[c_.ops.call(c_.ops[slots_[speaker_of(message)].next]).work]);
}

std::pair<RankId, RankId> Execution::ends_of(const Gathering& message) const {
  const std::uint32_t from = speaker_of(message) / kNumStreams;
  return {c_.fleet.rank(from), c_.fleet.partner(from, send_of(message).peer, 1).rank};
}

/// The network takes a message's bytes once its start and latency are over.
void Execution::send(std::uint32_t m) {
  Gathering& message = gatherings_[m];
  const auto [from, to] = ends_of(message);
  message.is_to_send = false;
  c_.network->send(id_of(m), from, to, c_.stepping->way(from, to), send_of(message).bytes);
}

void Execution::begin_gathering(std::uint32_t m) {
  gatherings_.close(m);
  Gathering& gathering = gatherings_[m];
  for (std::uint32_t s = gathering.first; s != UINT32_MAX; s = slots_[s].link) {
    slots_[s].state = State::Running;
    slots_[s].start_ps = now_ps_;
  }
  const SharedCost cost = cost_of(gathering);
  if (steps(gathering)) {
    const auto& work = std::get<Collective>(c_.plan.works[c_.ops.call(c_.ops[slots_[gathering.first].next]).work]);
    return stepped_->begin(m, work, gathering.key.home, present_, now_ps_);
  }
  if (c_.network != nullptr && cost.num_uses > 0 && gathering.key.home >= c_.fleet.num_communicators()) {
    const auto [from, to] = ends_of(gathering);
    const Seconds start = c_.stepping->transfer(Bytes{0}, from, to).duration;
    gathering.is_to_send = true;
    queue_.push(now_ps_ + (SimTime{} + start).picoseconds(), {id_of(m), ++gathering.version});
    return;
  }
  run_gathering(m, cost, cost.duration_ps);
}

void Execution::run_gathering(std::uint32_t m, const SharedCost& cost, std::int64_t duration_ps) {
  Gathering& gathering = gatherings_[m];
  gathering.has_uses = cost.num_uses > 0;
  if (gathering.has_uses) {
    const bool undisturbed = shares_.add(id_of(m), c_.costs.uses(cost), duration_ps, now_ps_);
    if (finds_ != nullptr) finds_->note_use(c_.costs.uses(cost), shares_, undisturbed);
    if (!undisturbed) return;
  }
  queue_.push(now_ps_ + duration_ps, {id_of(m), ++gathering.version});
}

bool Execution::steps(const Gathering& gathering) const {
  const std::uint32_t home = gathering.key.home;
  return stepped_ && home < c_.fleet.num_communicators() && c_.fleet.members_of(home).size() > 1;
}

void Execution::end_gathering(std::uint32_t m) {
  if (gatherings_[m].has_uses) shares_.remove(id_of(m));
  for (std::uint32_t s = gatherings_[m].first; s != UINT32_MAX;) {
    const std::uint32_t next = slots_[s].link;
    finish(s);
    due_.push_back(s);
    s = next;
  }
  gatherings_.release(m);
}

std::string Execution::standing_text(std::uint32_t index) const {
  const Slot& slot = slots_[index];
  const std::uint32_t r = index / kNumStreams;
  const std::size_t op = c_.ops.of_class(ranks_[r].class_id).first_op + std::size_t{c_.ops[slot.next].op};
  const std::string_view why =
      slot.state == State::Arrived ? "has arrived and waits for its partners" : "waits for ops before it";
  return fmt::format("rank {}, stream {}: op {} '{}' ({}) {}", c_.fleet.rank(r).value,
                     name_of(static_cast<Stream>(index % kNumStreams)), op, c_.plan.name_of(c_.plan.ops[op]),
                     to_text(c_.plan.work(c_.plan.ops[op])), why);
}

/// Names those that have arrived somewhere first: they are why the others wait.
void Execution::report_stuck() const {
  constexpr std::size_t kMost = 8;
  std::string text =
      fmt::format("plan '{}' cannot run to its end: {} of {} ops have run, and the rest wait for each other for ever",
                  c_.plan.name, num_ended_, num_ops_);
  std::size_t named = 0, standing = 0;
  for (const bool arrived : {true, false})
    for (std::uint32_t s = 0; s < num_slots_; ++s) {
      if (slots_[s].next == slots_[s].end || (slots_[s].state == State::Arrived) != arrived) continue;
      ++standing;
      if (named++ < kMost) text += "; " + standing_text(s);
    }
  if (standing > kMost) text += fmt::format("; and {} more", standing - kMost);
  throw UserError{text,
                  "each send needs a receive of the same pair of ranks, tag and place in the order, and all ranks of a "
                  "group issue its collectives in the same order"};
}

}  // namespace orrery
