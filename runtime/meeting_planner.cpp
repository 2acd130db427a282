// SPDX-License-Identifier: Apache-2.0
#include "runtime/meeting_planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

using Place = std::pair<const OpRecord*, std::size_t>;  // and its lane

std::unordered_map<std::uint32_t, Place> records_of(const ClassProgram& program) {
  std::unordered_map<std::uint32_t, Place> records;
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane)
    for (const OpRecord& r : program.lanes[lane])
      if (r.meeting >= 0) records[r.id.value] = {&r, lane};
  return records;
}

const Collective& collective_of(const Meeting& m) { return *static_cast<const Collective*>(m.seats.front().op->work); }

/// Whether a member's output lies in the storage of its input.
bool overlaps(const Meeting::Seat& seat) {
  const auto& operands = seat.op->operands;
  return !operands.empty() && operands.front().owner == operands.back().owner;
}

/// Of rows that processes exchange also what the others say that they send.
std::size_t stage_bytes(const Meeting& m) {
  const Collective& work = collective_of(m);
  if (work.row > 0 && m.crosses())
    return static_cast<std::size_t>(m.seats.front().op->operands[1].layout->shape.elements()) * sizeof(std::int32_t);
  return static_cast<std::size_t>(stage_elements(m.shape) * bits(work.dtype) / 8);
}

/// Direct exchanges: everyone reads what it needs where it lies. A broadcast or a reduce by one rank after another
/// would keep all cores but one waiting: it goes over a tree.
CollectiveAlgorithm usual_algorithm(CollectiveKind kind) {
  return has_algorithm(kind, CollectiveAlgorithm::Direct) ? CollectiveAlgorithm::Direct : CollectiveAlgorithm::Tree;
}

}  // namespace

void MeetingPlanner::seat(RankRun& r) {
  const auto records = records_of(*r.program);
  calls_.clear();
  r.seats.reserve(r.program->meetings.size());
  for (std::uint32_t id : r.program->meetings) {
    const Work& work = plan_.work(OpId{id});
    const auto [record, lane] = records.at(id);
    Seat seat;
    if (const auto* c = std::get_if<Collective>(&work)) {
      seat = collective(r.rank, *c);
      sittings_.push_back({seat.meeting, seat.member, &r, lane});
    }
    if (const auto* s = std::get_if<Send>(&work))
      seat = message(r.rank, peer_of(plan_.mesh, r.rank, s->peer), s->tag, 0);
    if (const auto* v = std::get_if<Recv>(&work))
      seat = message(peer_of(plan_.mesh, r.rank, v->peer), r.rank, v->tag, 1);
    seat.meeting->seats[seat.member] = {record, r.places.data(), nullptr, r.rank, r.is_here(), r.process};
    r.seats.push_back(seat);
  }
}

/// Finds or makes the meeting of a key, in a map that lives while a plan is prepared.
Meeting& MeetingPlanner::meeting(Meeting*& of_key, std::size_t seats) {
  if (of_key == nullptr) of_key = all_.emplace_back(std::make_unique<Meeting>(seats)).get();
  return *of_key;
}

Seat MeetingPlanner::collective(RankId rank, const Collective& work) {
  const auto ranks = members(plan_.mesh, plan_.groups[work.group.index()], rank);
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end()) bug("a rank issues a collective of a group that it is not in");
  const std::uint32_t k = calls_[{work.group.index(), 0, 0, false}]++;
  Meeting& m = meeting(collectives_[{work.group.index(), ranks.front().index(), k}], ranks.size());
  return {&m, static_cast<std::uint32_t>(at - ranks.begin())};
}

Seat MeetingPlanner::message(RankId from, RankId to, std::int64_t tag, std::uint32_t member) {
  const std::uint32_t k = calls_[{from.index(), to.index(), tag, true}]++;
  return {&meeting(messages_[{from.index(), to.index(), tag, k}], 2), member};
}

/// Copies onto themselves do nothing, so that only those algorithms must know of results in place that would overwrite
/// what others still read.
CollectiveShape MeetingPlanner::shape(const Meeting& m) const {
  const Collective& work = collective_of(m);
  const auto n = static_cast<std::int64_t>(m.seats.size());
  const auto chosen = options_.collectives.of(work.kind).value_or(CollectiveAlgorithm::Auto);
  const CollectiveAlgorithm wanted = chosen == CollectiveAlgorithm::Auto ? usual_algorithm(work.kind) : chosen;
  CollectiveShape s =
      shape_of(work, usable_algorithm(work.kind, wanted, n, options_.ranks_per_node), n, options_.ranks_per_node);
  s.in_place = (work.kind == CollectiveKind::AllToAll || work.kind == CollectiveKind::Shift) &&
               std::any_of(m.seats.begin(), m.seats.end(), overlaps);
  return s;
}

void MeetingPlanner::choose_algorithms(const Device& device) {
  for (const Sitting& s : sittings_)
    if (s.member == 0) s.meeting->shape = shape(*s.meeting);
  if (!device.holds_data()) return;
  std::erase_if(sittings_, [](const Sitting& s) { return !s.run->is_here(); });
  for (const Sitting& s : sittings_) {
    std::size_t& bytes = s.run->stages[s.lane].bytes;
    bytes = std::max(bytes, stage_bytes(*s.meeting));
  }
  for (const Sitting& s : sittings_)
    s.meeting->seats[s.member].stage = take(s.run->stages[s.lane], s.run->rank, device);
}

std::byte* MeetingPlanner::take(Stage& stage, RankId rank, const Device& device) {
  if (stage.bytes == 0) return nullptr;
  if (stage.of_host.empty() && !stage.of_device) stage.of_device = device.memory(Tier::Device, rank);
  if (!stage.of_device) {
    stage.of_host.resize(stage.bytes);
    return stage.of_host.data();
  }
  if (!stage.of_device->grow(static_cast<std::int64_t>(stage.bytes)))
    throw DeviceError{
        fmt::format("out of memory on rank {}: {} B for the collectives of a stream", rank.index(), stage.bytes)};
  return reinterpret_cast<std::byte*>(stage.of_device->base());
}

}  // namespace orrery
