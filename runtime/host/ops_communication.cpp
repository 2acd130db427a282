// SPDX-License-Identifier: Apache-2.0
// What each rank moves between the two gates of a meeting. Sums are taken in rank order, each element by one rank for
// all: every rank gets the same bits. Results may lie where the inputs lie.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/host/exchange_rows.hpp"
#include "runtime/host/families.hpp"
#include "runtime/host/find_kernel.hpp"
#include "runtime/rendezvous.hpp"

namespace orrery {
namespace {

constexpr std::int64_t kBlock = 512;  // elements that are summed at a time

struct Slice {
  std::int64_t first = 0, count = 0;
};

/// A communicator seen from one of its ranks: where everyone's input and output are.
template <class T>
class Circle {
 public:
  explicit Circle(const OpCall& call) : meeting_{*call.meeting}, rank_{call.member} {}

  std::int64_t size() const { return static_cast<std::int64_t>(meeting_.seats.size()); }
  std::int64_t rank() const { return rank_; }
  T* in(std::int64_t rank) const {
    return at(rank, meeting_.seats[static_cast<std::size_t>(rank)].op->operands.front());
  }
  T* out(std::int64_t rank) const {
    return at(rank, meeting_.seats[static_cast<std::size_t>(rank)].op->operands.back());
  }
  /// The part of n elements that this rank works on.
  Slice share(std::int64_t n) const {
    const std::int64_t first = n * rank() / size();
    return {first, n * (rank() + 1) / size() - first};
  }

 private:
  T* at(std::int64_t rank, const OperandRecord& o) const {
    return reinterpret_cast<T*>(meeting_.place(static_cast<std::size_t>(rank), o));
  }
  const Meeting& meeting_;
  std::uint32_t rank_;
};

template <class T>
void reduce_block(T* sum, const T* x, std::int64_t n, ReduceOp op) {
  if (op == ReduceOp::Sum)
    for (std::int64_t i = 0; i < n; ++i) sum[i] += x[i];
  else
    for (std::int64_t i = 0; i < n; ++i) sum[i] = std::max(sum[i], x[i]);
}

/// Reduces elements [s.first, …) of all inputs in rank order and hands each block to put(first element, block,
/// elements).
template <class T, class Put>
void reduce_slice(const Circle<T>& all, Slice s, ReduceOp op, Put&& put) {
  std::array<T, kBlock> block;
  for (std::int64_t i = s.first; i < s.first + s.count; i += kBlock) {
    const std::int64_t n = std::min(kBlock, s.first + s.count - i);
    std::copy_n(all.in(0) + i, n, block.data());
    for (std::int64_t r = 1; r < all.size(); ++r) reduce_block(block.data(), all.in(r) + i, n, op);
    put(i, block.data(), n);
  }
}

template <class T>
void all_reduce(const Circle<T>& all, std::int64_t elements, ReduceOp op) {
  reduce_slice(all, all.share(elements), op, [&](std::int64_t first, const T* block, std::int64_t n) {
    for (std::int64_t r = 0; r < all.size(); ++r) std::copy_n(block, n, all.out(r) + first);
  });
}

template <class T>
void reduce(const Circle<T>& all, std::int64_t elements, ReduceOp op, std::int64_t root) {
  reduce_slice(all, all.share(elements), op, [&](std::int64_t first, const T* block, std::int64_t n) {
    std::copy_n(block, n, all.out(root) + first);
  });
}

template <class T>
void reduce_scatter(const Circle<T>& all, std::int64_t elements, ReduceOp op) {
  const std::int64_t part = elements / all.size(), mine = all.rank() * part;
  reduce_slice(all, {mine, part}, op, [&](std::int64_t first, const T* block, std::int64_t n) {
    std::copy_n(block, n, all.out(all.rank()) + first - mine);
  });
}

/// An input that lies in its place of the output stays there.
template <class T>
void all_gather(const Circle<T>& all, std::int64_t elements) {
  const std::int64_t part = elements / all.size();
  for (std::int64_t r = 0; r < all.size(); ++r)
    if (T* to = all.out(all.rank()) + r * part; to != all.in(r)) std::copy_n(all.in(r), part, to);
}

/// In place, the lower rank of each pair swaps their two parts.
template <class T>
void all_to_all(const Circle<T>& all, std::int64_t elements) {
  const std::int64_t part = elements / all.size(), me = all.rank();
  const bool in_place = all.in(me) == all.out(me);
  for (std::int64_t r = 0; r < all.size(); ++r) {
    T *mine = all.out(me) + r * part, *theirs = all.in(r) + me * part;
    if (!in_place)
      std::copy_n(theirs, part, mine);
    else if (me < r)
      std::swap_ranges(mine, mine + part, theirs);
  }
}

template <class T>
void broadcast(const Circle<T>& all, std::int64_t elements, std::int64_t root) {
  if (all.out(all.rank()) != all.in(root)) std::copy_n(all.in(root), elements, all.out(all.rank()));
}

/// Where the output is the input, the members of a cycle would overwrite what others still read.
template <class T>
void shift(const Circle<T>& all, std::int64_t elements, std::int32_t places) {
  const auto n = static_cast<std::size_t>(all.size());
  const auto from =
      static_cast<std::int64_t>((static_cast<std::size_t>(all.rank()) + n - places_of_shift(places, n)) % n);
  if (all.out(all.rank()) != all.in(from)) std::copy_n(all.in(from), elements, all.out(all.rank()));
}

template <class T>
void exchange(const Collective& w, const OpCall& call) {
  const Circle<T> all{call};
  const auto elements = static_cast<std::int64_t>(w.bytes.base()) / static_cast<std::int64_t>(sizeof(T));
  switch (w.kind) {
    case CollectiveKind::AllReduce:
      return all_reduce(all, elements, w.reduce);
    case CollectiveKind::AllGather:
      return all_gather(all, elements);
    case CollectiveKind::ReduceScatter:
      return reduce_scatter(all, elements, w.reduce);
    case CollectiveKind::AllToAll:
      return all_to_all(all, elements);
    case CollectiveKind::Broadcast:
      return broadcast(all, elements, w.root);
    case CollectiveKind::Reduce:
      return reduce(all, elements, w.reduce, w.root);
    case CollectiveKind::Shift:
      return shift(all, elements, w.root);
    case CollectiveKind::Barrier:
      return;
  }
}

}  // namespace

static void run(const Collective& w, const OpContext<void>& c) {
  for (int i = 0; i < c.size(); ++i)
    if (!c.operand(i).contiguous) c.refuse_layout(i, "its elements one after another for a collective");
  if (w.kind == CollectiveKind::Shift && c.operand(0).owner == c.operand(c.size() - 1).owner)
    c.fail("a shift cannot put its output where its input is");
  if (w.row > 0) return exchange_rows(w, c);
  switch (w.dtype) {
    case DType::F32:
      return exchange<float>(w, c.call());
    case DType::F64:
      return exchange<double>(w, c.call());
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
  if (const auto* c = std::get_if<Collective>(&work);
      c && c->dtype != DType::F32 && c->dtype != DType::F64 && c->dtype != DType::I32)
    return nullptr;
  return find_untyped<Collective, Send, Recv>(work);
}

}  // namespace orrery
