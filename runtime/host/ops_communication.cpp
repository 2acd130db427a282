// SPDX-License-Identifier: Apache-2.0
// What each rank moves between the two gates of a meeting. Sums are taken in the order of the algorithm: the same in
// each execution. Results may lie where the inputs lie.
#include <algorithm>
#include <cstring>

#include "runtime/host/exchange_rows.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"
#include "runtime/rendezvous.hpp"

namespace orrery {
namespace {

/// One member's part of a collective: takes the steps of the meeting's algorithm, and reads the others' buffers where
/// they lie, once these are far enough.
template <class T>
class Exchange {
 public:
  Exchange(const OpCall& call, ReduceOp op) : m_{*call.meeting}, me_{call.member}, op_{op} {}

  void run() {
    for (lane_ = 0; lane_ < num_lanes(m_.shape); ++lane_) {
      const CollectiveSteps steps{m_.shape, me_, lane_};
      const std::int64_t size = steps.size();
      CollectiveStep last;
      for (std::int64_t k = 0; k < size; ++k) {
        const CollectiveStep s = steps[k];
        if (s.reuses && last.to != kNobody) wait_for(last.to, last.to_step + 1);
        take(s);
        m_.progress[me_].advance();
        last = s;
      }
    }
  }

 private:
  void take(const CollectiveStep& s) {
    if (s.from == kNobody) {
      if (s.is_local()) copy(start(me_, s.own.buffer), s.own, s.target);
      return;
    }
    const auto from = static_cast<std::uint32_t>(s.from);
    wait_for(s.from, s.since);
    if (s.reduces)
      add(start(from, s.theirs.buffer), s);
    else
      copy(start(from, s.theirs.buffer), s.theirs, s.target);
  }
  void wait_for(std::int32_t member, std::int32_t steps) {
    const std::int64_t before = lane_ == 0 ? 0 : CollectiveSteps{m_.shape, member, 0}.size();
    m_.progress[static_cast<std::size_t>(member)].wait(static_cast<std::uint32_t>(before + steps));
  }
  T* start(std::uint32_t member, StepBuffer b) const {
    const Meeting::Seat& seat = m_.seats[member];
    if (b == StepBuffer::Stage) return reinterpret_cast<T*>(seat.stage);
    return reinterpret_cast<T*>(
        m_.place(member, b == StepBuffer::In ? seat.op->operands.front() : seat.op->operands.back()));
  }
  void copy(const T* from, const StepSlot& source, const StepSlot& target) const {
    T* to = start(me_, target.buffer);
    for_each_stretch(source, target, target, [&](std::int64_t i, std::int64_t j, std::int64_t, std::int64_t n) {
      if (from + i != to + j) std::memmove(to + j, from + i, static_cast<std::size_t>(n) * sizeof(T));
    });
  }
  void add(const T* from, const CollectiveStep& s) const {
    const T* own = start(me_, s.own.buffer);
    T* to = start(me_, s.target.buffer);
    for_each_stretch(s.theirs, s.own, s.target, [&](std::int64_t i, std::int64_t j, std::int64_t k, std::int64_t n) {
      reduce(to + k, own + j, from + i, n);
    });
  }
  /// The sum may lie on the member's own part of it, element on element.
  void reduce(T* sum, const T* own, const T* theirs, std::int64_t n) const {
    if (op_ == ReduceOp::Sum) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>(own[i] + theirs[i]);
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) sum[i] = std::max(own[i], theirs[i]);
    }
  }

  const Meeting& m_;
  std::uint32_t me_;
  ReduceOp op_;
  int lane_ = 0;
};

template <class T>
void exchange(const Collective& w, const OpCall& call) {
  Exchange<T>{call, w.reduce}.run();
}

}  // namespace

static void run(const Collective& w, const OpContext<void>& c) {
  for (int i = 0; i < c.size(); ++i)
    if (!c.operand(i).contiguous) c.refuse_layout(i, "its elements one after another for a collective");
  if (w.kind == CollectiveKind::Barrier) return;  // the gates of the meeting are one
  if (w.row > 0) return exchange_rows(w, c);
  switch (w.dtype) {
    case DType::F32:
      return exchange<float>(w, c.call());
    case DType::F64:
      return exchange<double>(w, c.call());
    case DType::F8E4M3:
      return exchange<std::uint8_t>(w, c.call());
    default:
      return exchange<std::int32_t>(w, c.call());
  }
}

static void run(const Send&, const OpContext<void>&) {}

/// The receiver copies from where the sender's operand lies.
static void run(const Recv& w, const OpContext<void>& c) {
  const Meeting& m = *c.call().meeting;
  const OperandRecord& from = m.seats[0].op->operands.front();
  const auto* source = reinterpret_cast<const std::byte*>(m.place(0, from));
  if (from.contiguous && c.operand(0).contiguous)
    std::memcpy(c.element<std::byte>(0), source, static_cast<std::size_t>(w.bytes.base()));
  else
    copy_elements(*from.layout, source, c.layout(0), c.element<std::byte>(0), bits(from.dtype) / 8);
}

Kernel find_communication(const Work& work) {
  const auto* c = std::get_if<Collective>(&work);
  const bool moves = c && c->kind == CollectiveKind::AllGather && c->dtype == DType::F8E4M3;
  if (c && !moves && c->dtype != DType::F32 && c->dtype != DType::F64 && c->dtype != DType::I32) return nullptr;
  return find_untyped<Collective, Send, Recv>(work);
}

}  // namespace orrery
