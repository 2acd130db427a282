// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/crossing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

std::int64_t bytes_of(const OperandRecord& o) {
  return static_cast<std::int64_t>(size_of(o.dtype, o.layout->shape.elements()).base());
}

const char* problem_of(const Meeting& m) {
  const OpRecord& op = *m.seats.front().op;
  if (op.encounter == Encounter::Collective) {
    const auto& work = *static_cast<const Collective*>(op.work);
    if (work.row > 0) return "exchanges rows whose number only the devices know";
    return work.kind == CollectiveKind::Barrier ? "is a barrier" : nullptr;
  }
  const bool contiguous = std::all_of(m.seats.begin(), m.seats.end(),
                                      [](const Meeting::Seat& s) { return s.op->operands.front().contiguous; });
  return contiguous ? nullptr : "is a message whose elements do not lie side by side";
}

GpuCollective part_in_message(const Meeting& m) {
  const auto sender = m.seats[0].is_here ? m.place(0, m.seats[0].op->operands.front()) : 0;
  const auto receiver = m.seats[1].is_here ? m.place(1, m.seats[1].op->operands.front()) : 0;
  return {.kind = CollectiveKind::Broadcast,
          .dtype = DType::U8,
          .root = 0,
          .elements = bytes_of(m.seats[0].op->operands.front()),
          .in = sender,
          .out = m.seats[1].is_here ? receiver : sender};
}

GpuCollective part_in_collective(const Meeting& m, std::size_t seat) {
  const OpRecord& op = *m.seats[seat].op;
  const auto& work = *static_cast<const Collective*>(op.work);
  return {.kind = work.kind,
          .reduce = work.reduce,
          .dtype = work.dtype,
          .root = work.root,
          .elements = m.shape.elements,
          .in = m.place(seat, op.operands.front()),
          .out = m.place(seat, op.operands.back())};
}

}  // namespace

bool is_crossing(const Meeting& m) {
  return !std::all_of(m.seats.begin(), m.seats.end(), [](const Meeting::Seat& s) { return s.is_here; });
}

void check_crossings(std::span<const std::unique_ptr<Meeting>> meetings, const Plan& plan) {
  for (const auto& m : meetings) {
    if (!is_crossing(*m)) continue;
    if (const char* problem = problem_of(*m))
      throw UserError{fmt::format("op '{}' of plan '{}' {}, which several processes cannot do on cuda devices",
                                  plan.name_of(plan[m->seats.front().op->id]), plan.name, problem),
                      "run all ranks in one process, without --peers"};
  }
}

void enqueue_crossing(const Meeting& m, const GpuGroup& group, std::span<GpuQueue> queues) {
  const bool is_message = m.seats.front().op->encounter != Encounter::Collective;
  std::vector<GpuCollective> members;
  for (std::size_t i = 0; i < group.here.size(); ++i) {
    const auto seat = static_cast<std::size_t>(group.here[i].member);
    GpuCollective& part = members.emplace_back(is_message ? part_in_message(m) : part_in_collective(m, seat));
    part.member = group.here[i].member;
    part.device = queues[i].device;
    part.stream = queues[i].stream;
  }
  queues.front().driver.collective(group, members);
}

}  // namespace orrery
