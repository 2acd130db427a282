// SPDX-License-Identifier: Apache-2.0
#include "runtime/cuda/collectives.hpp"

#include <algorithm>
#include <set>

#include "kernels/cuda/elementwise.hpp"
#include "kernels/cuda/routing.hpp"
#include "runtime/cuda/host_side.hpp"
#include "runtime/cuda/moves.hpp"
#include "sim/base/error.hpp"

namespace orrery {
namespace {

namespace gpu = kernels::cuda;

/// Every stream waits until all have come so far.
void meet(std::span<GpuQueue> queues, EventPool& events) {
  std::vector<GpuEvent> here;
  for (const GpuQueue& q : queues) here.push_back(events.record(q));
  for (std::size_t i = 0; i < queues.size(); ++i)
    for (std::size_t j = 0; j < queues.size(); ++j)
      if (i != j) queues[i].driver.wait(queues[i].stream, here[j]);
}

/// The steps of one collective, enqueued for all members in turns: a step that reads what another member has made waits
/// for the event of that member's step.
class Exchange {
 public:
  Exchange(const Meeting& meeting, const Collective& work, std::span<GpuQueue> queues, EventPool& events)
      : meeting_{meeting}, work_{work}, queues_{queues}, events_{events}, done_(queues.size()) {}

  void run() {
    for (int lane = 0; lane < num_lanes(meeting_.shape); ++lane) {
      for (auto& d : done_) d.clear();
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t m = 0; m < queues_.size(); ++m)
          while (take_next(m, lane)) moved = true;
      }
      for (std::size_t m = 0; m < queues_.size(); ++m)
        if (static_cast<std::int64_t>(done_[m].size()) < steps_of(m, lane).size())
          bug("steps of a collective wait for one another");
      if (num_lanes(meeting_.shape) > 1) meet(queues_, events_);
    }
  }

 private:
  CollectiveSteps steps_of(std::size_t member, int lane) const {
    return {meeting_.shape, static_cast<std::int64_t>(member), lane};
  }
  bool has_done(std::int32_t member, std::int32_t steps) const {
    return static_cast<std::int32_t>(done_[static_cast<std::size_t>(member)].size()) >= steps;
  }
  void wait_for(std::size_t me, std::int32_t member, std::int32_t steps) {
    if (steps > 0)
      queues_[me].driver.wait(queues_[me].stream,
                              done_[static_cast<std::size_t>(member)][static_cast<std::size_t>(steps - 1)]);
  }
  /// Enqueues the next step of a member if those that it waits for are enqueued.
  bool take_next(std::size_t me, int lane) {
    const CollectiveSteps steps = steps_of(me, lane);
    const auto k = static_cast<std::int64_t>(done_[me].size());
    if (k == steps.size()) return false;
    const CollectiveStep s = steps[k];
    if (s.from != kNobody && !has_done(s.from, s.since)) return false;
    if (s.reuses && k > 0) {
      const CollectiveStep last = steps[k - 1];
      if (last.to != kNobody) {
        if (!has_done(last.to, last.to_step + 1)) return false;
        wait_for(me, last.to, last.to_step + 1);
      }
    }
    if (s.from != kNobody) wait_for(me, s.from, s.since);
    move(me, s);
    done_[me].push_back(events_.record(queues_[me]));
    return true;
  }
  std::uintptr_t start(std::size_t member, StepBuffer b) const {
    const Meeting::Seat& seat = meeting_.seats[member];
    if (b == StepBuffer::Stage) return reinterpret_cast<std::uintptr_t>(seat.stage);
    return meeting_.place(member, b == StepBuffer::In ? seat.op->operands.front() : seat.op->operands.back());
  }
  void move(std::size_t me, const CollectiveStep& s) {
    if (s.from == kNobody && !s.is_local()) return;
    const bool local = s.from == kNobody;
    const StepSlot& source = local ? s.own : s.theirs;
    const std::uintptr_t from = start(local ? me : static_cast<std::size_t>(s.from), source.buffer),
                         to = start(me, s.target.buffer), own = start(me, s.own.buffer);
    const auto size = static_cast<std::uintptr_t>(bits(work_.dtype) / 8);
    for_each_stretch(source, s.reduces ? s.own : s.target, s.target,
                     [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t n) {
                       const std::uintptr_t theirs = from + static_cast<std::uintptr_t>(i) * size,
                                            target = to + static_cast<std::uintptr_t>(k) * size;
                       if (s.reduces)
                         join(queues_[me], own + static_cast<std::uintptr_t>(j) * size, theirs, target, n);
                       else if (theirs != target)
                         queues_[me].driver.copy(target, theirs, n * static_cast<std::int64_t>(size),
                                                 queues_[me].stream);
                     });
  }
  template <class K>
  static void launch(GpuQueue& queue, const K& kernel, std::int64_t items) {
    queue.driver.launch({&gpu::kTagOf<K>, &kernel, gpu::grid_for<K>(items), 0}, queue.stream);
  }
  template <class T>
  void join_as(GpuQueue& queue, std::uintptr_t own, std::uintptr_t theirs, std::uintptr_t to, std::int64_t n) const {
    const auto at = [](std::uintptr_t p) { return reinterpret_cast<T*>(p); };
    if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::int32_t>) {
      launch(queue, gpu::JoinKernel<T>{n, at(own), at(theirs), at(to), work_.reduce == ReduceOp::Max}, n);
    } else {
      const auto map = [&](auto f) {
        gpu::MapKernel<T, decltype(f)> k{.f = f, .rows = 1, .cols = n, .in = {}, .out = {}};
        k.in[0] = {at(own), n};
        k.in[1] = {at(theirs), n};
        k.out[0] = {at(to), n};
        k.wide = (own | theirs | to) % 16 == 0 && n % gpu::kPack<T> == 0;
        launch(queue, k, n / (k.wide ? gpu::kPack<T> : 1));
      };
      work_.reduce == ReduceOp::Max ? map(gpu::LargerOfTwo{}) : map(gpu::SumOfTwo{});
    }
  }
  void join(GpuQueue& queue, std::uintptr_t own, std::uintptr_t theirs, std::uintptr_t to, std::int64_t n) const {
    switch (work_.dtype) {
      case DType::F32:
        return join_as<float>(queue, own, theirs, to, n);
      case DType::BF16:
        return join_as<gpu::bf16>(queue, own, theirs, to, n);
      case DType::F16:
        return join_as<gpu::f16>(queue, own, theirs, to, n);
      case DType::F64:
        return join_as<double>(queue, own, theirs, to, n);
      default:
        return join_as<std::int32_t>(queue, own, theirs, to, n);
    }
  }

  const Meeting& meeting_;
  const Collective& work_;
  std::span<GpuQueue> queues_;
  EventPool& events_;
  std::vector<std::vector<GpuEvent>> done_;  // per member: of its steps
};

bool by_library(const Meeting& meeting, const Collective& work, std::span<GpuQueue> queues) {
  std::set<int> devices;
  for (const GpuQueue& q : queues) devices.insert(q.device);
  if (devices.size() < queues.size() || queues.size() < 2) return false;
  std::vector<GpuCollective> members;
  for (std::size_t m = 0; m < queues.size(); ++m) {
    const OpRecord& op = *meeting.seats[m].op;
    members.push_back({.kind = work.kind,
                       .reduce = work.reduce,
                       .dtype = work.dtype,
                       .root = work.root,
                       .elements = meeting.shape.elements,
                       .in = meeting.place(m, op.operands.front()),
                       .out = meeting.place(m, op.operands.back()),
                       .device = queues[m].device,
                       .stream = queues[m].stream});
  }
  return queues.front().driver.collective(members);
}

/// An all-to-all whose parts differ: each member fetches the rows that the others have for it, whose number stands on
/// the device. Operands of a member: in, spans of in, spans of out, out.
void exchange_rows(const Meeting& m, const Collective& work, std::span<GpuQueue> queues) {
  const std::size_t members = queues.size();
  const auto at = [&](std::size_t member, std::size_t i) { return m.place(member, m.seats[member].op->operands[i]); };
  const auto spans = [&](std::size_t member, std::size_t i, std::size_t peer, std::int64_t parts) {
    return reinterpret_cast<const std::int32_t*>(at(member, i)) + 2 * static_cast<std::int64_t>(peer) * parts;
  };
  const std::int64_t words = work.row * bits(work.dtype) / 16;
  for (std::size_t me = 0; me < members; ++me) {
    const OpRecord& op = *m.seats[me].op;
    const std::int64_t parts = op.operands[2].layout->shape.elements() / 2 / static_cast<std::int64_t>(members);
    const std::int64_t rows = op.operands[3].layout->shape.elements() / work.row;
    for (std::size_t from = 0; from < members; ++from) {
      const gpu::FetchRowsKernel k{.parts = parts,
                                   .words = words,
                                   .from = reinterpret_cast<const std::uint16_t*>(at(from, 0)),
                                   .to = reinterpret_cast<std::uint16_t*>(at(me, 3)),
                                   .theirs = spans(from, 1, me, parts),
                                   .mine = spans(me, 2, from, parts),
                                   .fault = queues[me].host.fault(op.id)};
      queues[me].driver.launch({&gpu::kTagOf<gpu::FetchRowsKernel>, &k, std::clamp<std::int64_t>(rows, 1, 1 << 12), 0},
                               queues[me].stream);
    }
  }
}

/// The receiver copies from where the sender's operand lies.
void receive(const Meeting& m, GpuQueue& queue) {
  const OperandRecord &from = m.seats[0].op->operands.front(), &to = m.seats[1].op->operands.front();
  enqueue_copy(queue, *from.layout, m.place(0, from), *to.layout, m.place(1, to), bits(from.dtype) / 8);
}

}  // namespace

bool can_enqueue_meeting(const Work& work) {
  const auto* c = std::get_if<Collective>(&work);
  if (!c) return std::holds_alternative<Send>(work) || std::holds_alternative<Recv>(work);
  return c->dtype == DType::F32 || c->dtype == DType::BF16 || c->dtype == DType::F16 || c->dtype == DType::F64 ||
         c->dtype == DType::I32 || (c->dtype == DType::F8E4M3 && c->kind == CollectiveKind::AllGather);
}

void enqueue_meeting(const Meeting& meeting, std::span<GpuQueue> queues, EventPool& events) {
  const OpRecord& op = *meeting.seats.front().op;
  meet(queues, events);
  if (op.encounter == Encounter::Collective) {
    const auto& work = *static_cast<const Collective*>(op.work);
    if (work.kind == CollectiveKind::Barrier) return;
    if (work.row > 0)
      exchange_rows(meeting, work, queues);
    else if (by_library(meeting, work, queues))
      return;
    else
      Exchange{meeting, work, queues, events}.run();
  } else {
    receive(meeting, queues[1]);
  }
  meet(queues, events);
}

}  // namespace orrery
