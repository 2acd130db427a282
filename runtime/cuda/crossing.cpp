// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/crossing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "runtime/cuda/host_side.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

std::int64_t bytes_of(const OperandRecord& o) {
  return static_cast<std::int64_t>(size_of(o.dtype, o.layout->shape.elements()).base());
}

const char* problem_of(const Meeting& m, bool graphs) {
  const OpRecord& op = *m.seats.front().op;
  if (op.encounter == Encounter::Collective) {
    const auto& work = *static_cast<const Collective*>(op.work);
    if (work.row > 0 && graphs)
      return "exchanges rows whose number the host has to read, which a graph does not wait for";
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

/// An all-to-all whose parts differ. Operands of a member: in, spans of in, spans of out, out; the spans of a member
/// are two numbers, first row and end, per peer and part.
class RowExchange {
 public:
  RowExchange(const Meeting& meeting, const GpuGroup& group, std::span<GpuQueue> queues, const Plan& plan)
      : meeting_{meeting},
        group_{group},
        queues_{queues},
        plan_{plan},
        work_{*static_cast<const Collective*>(meeting.seats.front().op->work)},
        numbers_{operand(meeting.seats.front(), kSpansOfIn).layout->shape.elements()},
        parts_{numbers_ / 2 / static_cast<std::int64_t>(meeting.seats.size())} {
    if (std::int64_t{kCopies} * span_bytes() > HostSide::kBuffer)
      throw DeviceError{fmt::format("op '{}': spans of {} numbers are more than the host reads at once",
                                    plan.name_of(plan[meeting.seats.front().op->id]), numbers_)};
  }

  void run() {
    GpuDriver& driver = queues_.front().driver;
    driver.collective(group_, told_spans());
    for (std::size_t i = 0; i < queues_.size(); ++i) read_spans(i);
    for (GpuQueue& q : queues_) driver.synchronize(q.stream);
    queues_.front().host.check(plan_);
    std::vector<GpuExchange> members;
    for (std::size_t i = 0; i < queues_.size(); ++i) members.push_back(messages(i));
    driver.exchange(group_, members);
  }

 private:
  enum Position : std::size_t { kIn, kSpansOfIn, kSpansOfOut, kOut };
  static constexpr int kCopies = 3;  // spans of in, what the others say, spans of out
  struct Rows {
    std::int64_t first = 0, end = 0;
    std::int64_t count() const { return end - first; }
  };

  static const OperandRecord& operand(const Meeting::Seat& seat, Position i) { return seat.op->operands[i]; }
  std::size_t seat_of(std::size_t i) const { return static_cast<std::size_t>(group_.here[i].member); }
  std::uintptr_t place(std::size_t i, Position p) const {
    return meeting_.place(seat_of(i), operand(meeting_.seats[seat_of(i)], p));
  }
  std::int64_t span_bytes() const { return numbers_ * static_cast<std::int64_t>(sizeof(std::int32_t)); }
  std::uintptr_t told(std::size_t i) const {
    return reinterpret_cast<std::uintptr_t>(meeting_.seats[seat_of(i)].stage);
  }

  /// Each member gets from each other the spans of the rows that are for it.
  std::vector<GpuCollective> told_spans() const {
    std::vector<GpuCollective> parts;
    for (std::size_t i = 0; i < queues_.size(); ++i)
      parts.push_back({.kind = CollectiveKind::AllToAll,
                       .dtype = DType::I32,
                       .elements = numbers_,
                       .member = group_.here[i].member,
                       .in = place(i, kSpansOfIn),
                       .out = told(i),
                       .device = queues_[i].device,
                       .stream = queues_[i].stream});
    return parts;
  }
  void read_spans(std::size_t i) {
    GpuQueue& q = queues_[i];
    std::uintptr_t to = q.host.buffer(q.stream);
    for (const std::uintptr_t from : {place(i, kSpansOfIn), told(i), place(i, kSpansOfOut)}) {
      q.driver.copy(to, from, span_bytes(), q.stream);
      to += static_cast<std::uintptr_t>(span_bytes());
    }
  }
  Rows rows(std::size_t i, int copy, std::size_t peer, std::int64_t part) const {
    const auto* numbers = reinterpret_cast<const std::int32_t*>(queues_[i].host.buffer(queues_[i].stream));
    const std::int32_t* at = numbers + copy * numbers_ + 2 * (static_cast<std::int64_t>(peer) * parts_ + part);
    return {at[0], at[1]};
  }
  GpuExchange::Message message(std::size_t i, Position in_or_out, std::size_t peer, const Rows& r) const {
    const OperandRecord& o = operand(meeting_.seats[seat_of(i)], in_or_out);
    const std::int64_t row_bytes = work_.row * bits(work_.dtype) / 8, all = o.layout->shape.elements() / work_.row;
    if (r.first < 0 || r.end < r.first || r.end > all)
      fail(i, fmt::format("rows {} to {} of {} are to be exchanged", r.first, r.end, all));
    return {static_cast<std::int32_t>(peer), place(i, in_or_out) + static_cast<std::uintptr_t>(r.first * row_bytes),
            r.count() * row_bytes};
  }
  GpuExchange messages(std::size_t i) const {
    GpuExchange e{group_.here[i].member, queues_[i].device, queues_[i].stream, {}, {}};
    for (std::size_t peer = 0; peer < meeting_.seats.size(); ++peer)
      for (std::int64_t part = 0; part < parts_; ++part) {
        const Rows sent = rows(i, 0, peer, part), coming = rows(i, 1, peer, part), awaited = rows(i, 2, peer, part);
        if (coming.count() != awaited.count())
          fail(i, fmt::format("a member sends {} rows, {} are awaited", coming.count(), awaited.count()));
        if (sent.count() != 0) e.sends.push_back(message(i, kIn, peer, sent));
        if (awaited.count() != 0) e.receives.push_back(message(i, kOut, peer, awaited));
      }
    return e;
  }
  [[noreturn]] void fail(std::size_t i, const std::string& what) const {
    const OpId op = meeting_.seats[seat_of(i)].op->id;
    throw DeviceError{fmt::format("op {} '{}': {}", op.index(), plan_.name_of(plan_[op]), what)};
  }

  const Meeting& meeting_;
  const GpuGroup& group_;
  std::span<GpuQueue> queues_;
  const Plan& plan_;
  const Collective& work_;
  std::int64_t numbers_, parts_;  // of the spans of a member, and per peer
};

bool has_unknown_rows(const OpRecord& op) {
  return op.encounter == Encounter::Collective && static_cast<const Collective*>(op.work)->row > 0;
}

}  // namespace

void check_crossings(std::span<const std::unique_ptr<Meeting>> meetings, const Plan& plan, bool graphs) {
  for (const auto& m : meetings) {
    if (!m->crosses()) continue;
    if (const char* problem = problem_of(*m, graphs))
      throw UserError{fmt::format("op '{}' of plan '{}' {}: several processes cannot do this on cuda devices",
                                  plan.name_of(plan[m->seats.front().op->id]), plan.name, problem),
                      graphs ? "leave out --graphs, or run all ranks in one process, without --peers"
                             : "run all ranks in one process, without --peers"};
  }
}

void enqueue_crossing(const Meeting& m, const GpuGroup& group, std::span<GpuQueue> queues, const Plan& plan) {
  if (has_unknown_rows(*m.seats.front().op)) return RowExchange{m, group, queues, plan}.run();
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
