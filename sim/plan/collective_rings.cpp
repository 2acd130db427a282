// SPDX-License-Identifier: Apache-2.0
// Rings: each member hears from the one before it and tells the one behind it.
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

using enum StepBuffer;

/// Members that reduce or gather a stretch of the buffer round a ring. Partners of its steps are positions on it.
struct Ring {
  std::int64_t position = 0, size = 1;
  std::int64_t first = 0, count = 0;  // the stretch
  StepBuffer initial = In;            // where a member's own values are

  StepSlot part(StepBuffer b, std::int64_t c) const {
    const std::int64_t j = wrapped(c, size), from = first + count * j / size;
    return {b, from, first + count * (j + 1) / size - from};
  }
  CollectiveStep turn(std::int64_t k) const {
    const auto next = static_cast<std::int32_t>(wrapped(position + 1, size)),
               before = static_cast<std::int32_t>(wrapped(position - 1, size));
    return exchange_step(next, before, k);
  }
  /// In step k position p sends part p − k, with what was added to it on its way, and adds its own to part p − k − 1:
  /// part p + 1 is complete after size − 1 steps.
  CollectiveStep reduce(std::int64_t k) const {
    const StepBuffer so_far = k == 0 ? initial : Out;
    const std::int64_t got = position - k - 1;
    CollectiveStep s = turn(k);
    s.source = part(so_far, position - k), s.theirs = part(so_far, got);
    s.own = part(initial, got), s.target = part(Out, got);
    s.reduces = true;
    return s;
  }
  /// In step k position p passes on part p + 1 − k.
  CollectiveStep gather(std::int64_t k) const {
    CollectiveStep s = turn(k);
    s.source = part(Out, position + 1 - k), s.theirs = s.target = part(Out, position - k);
    return s;
  }
};

/// Reduces in rings of the g members of a node, then over the nodes round a ring of those of equal place, each on its
/// part, then gathers in the nodes. With all in one node it is the plain ring.
struct Levels {
  Levels(const StepMember& m, std::int64_t g)
      : local{m.i % g, g, 0, m.elements(), In}, per_node{g}, place{m.i % g}, node{m.i / g}, nodes{m.n() / g} {
    const StepSlot mine = local.part(Out, place + 1);
    across = {node, nodes, mine.first, mine.count, g > 1 ? Out : In};
  }
  std::int64_t size() const { return 2 * (per_node - 1) + 2 * (nodes - 1); }
  CollectiveStep step(std::int64_t k) const {
    const std::int64_t inner = per_node - 1, outer = nodes - 1;
    if (k < inner) return inside(local.reduce(k), k);
    if (k < inner + outer) return between(across.reduce(k - inner), k);
    if (k < inner + 2 * outer) return between(across.gather(k - inner - outer), k);
    return inside(local.gather(k - inner - 2 * outer), k);
  }

  Ring local, across;
  std::int64_t per_node, place, node, nodes;

 private:
  CollectiveStep inside(CollectiveStep s, std::int64_t k) const { return placed(s, k, 1, node * per_node); }
  CollectiveStep between(CollectiveStep s, std::int64_t k) const { return placed(s, k, per_node, place); }
  static CollectiveStep placed(CollectiveStep s, std::int64_t k, std::int64_t stride, std::int64_t first) {
    s.to = static_cast<std::int32_t>(first + s.to * stride),
    s.from = static_cast<std::int32_t>(first + s.from * stride);
    s.to_step = s.from_step = s.since = step_number(k);
    return s;
  }
};

std::int64_t hierarchical_size(const StepMember& m) { return Levels{m, m.shape.per_node}.size(); }
CollectiveStep hierarchical_step(const StepMember& m, std::int64_t k) { return Levels{m, m.shape.per_node}.step(k); }
std::int64_t all_reduce_size(const StepMember& m) { return 2 * (m.n() - 1); }
CollectiveStep all_reduce_step(const StepMember& m, std::int64_t k) {
  const Ring ring{m.i, m.n(), 0, m.elements(), In};
  if (k < m.n() - 1) return ring.reduce(k);
  CollectiveStep s = ring.gather(k - m.n() + 1);
  s.to_step = s.from_step = s.since = step_number(k);
  return s;
}
std::int64_t no_stage(const CollectiveShape&) { return 0; }

std::int64_t all_gather_size(const StepMember& m) { return m.copies() + m.n() - 1; }

/// In exchange e member i passes on chunk i − e.
CollectiveStep all_gather_step(const StepMember& m, std::int64_t k) {
  const std::int64_t e = k - m.copies();
  if (e < 0) return copy_step(m.alone(In, m.i), m.chunks(Out, m.i));
  CollectiveStep s = exchange_step(m.at(1), m.at(-1), k);
  s.source = m.chunks(Out, m.i - e), s.theirs = s.target = m.chunks(Out, m.i - e - 1);
  return s;
}

std::int64_t largest_chunk(const CollectiveShape& s) { return (s.elements + s.members - 1) / s.members; }
std::int64_t reduce_scatter_size(const StepMember& m) { return m.n() - 1; }
std::int64_t reduce_scatter_stage(const CollectiveShape& s) { return 2 * largest_chunk(s); }

/// In step k member i sends the sum so far of chunk i − k − 1 and adds its own to that of chunk i − k − 2; sums on
/// their way lie in the stage, in two places in turn.
CollectiveStep reduce_scatter_step(const StepMember& m, std::int64_t k) {
  const std::int64_t sent = m.i - k - 1, got = m.i - k - 2;
  const auto so_far = [&](std::int64_t c) {
    return k == 0 ? m.chunks(In, c) : m.alone(Stage, c, (k - 1) % 2 * largest_chunk(m.shape));
  };
  CollectiveStep s = exchange_step(m.at(1), m.at(-1), k);
  s.source = so_far(sent), s.theirs = so_far(got), s.own = m.chunks(In, got);
  s.target = k == m.n() - 2 ? m.alone(Out, got) : m.alone(Stage, got, k % 2 * largest_chunk(m.shape));
  s.reduces = true;
  s.reuses = k >= 2 && k < m.n() - 2;
  return s;
}

// Pipelines: positions count from the root.

std::int64_t position(const StepMember& m) { return wrapped(m.i - m.shape.root, m.n()); }

std::int64_t broadcast_size(const StepMember& m) {
  const std::int64_t p = position(m), pieces = m.shape.pieces;
  return p == 0 ? m.copies() + pieces : p == m.n() - 1 ? pieces : pieces + 1;
}

/// A member gets piece k in its step k and sends it in the next; the root sends it in step k, after its own copy.
CollectiveStep broadcast_step(const StepMember& m, std::int64_t k) {
  const std::int64_t p = position(m), pieces = m.shape.pieces, copies = m.copies();
  if (p == 0 && k < copies) return copy_step(m.whole(In), m.whole(Out));
  CollectiveStep s;
  const std::int64_t sent = p == 0 ? k - copies : k - 1;
  if (p < m.n() - 1 && sent >= 0) {
    s.to = m.at(1), s.to_step = step_number(sent);
    s.source = m.piece(Out, sent);
  }
  if (p > 0 && k < pieces) {
    s.from = m.at(-1), s.from_step = s.since = step_number(p == 1 ? k + copies : k + 1);
    s.theirs = s.target = m.piece(Out, k);
  }
  return s;
}

std::int64_t reduce_size(const StepMember& m) {
  const std::int64_t p = position(m), pieces = m.shape.pieces;
  return p == 0 || p == m.n() - 1 ? pieces : pieces + 1;
}
std::int64_t largest_piece(const CollectiveShape& s) { return (s.elements + s.pieces - 1) / s.pieces; }
std::int64_t reduce_stage(const CollectiveShape& s) { return 2 * largest_piece(s); }

/// The last one sends piece k in its step k. The others add their own to piece k in step k and send it in the next; it
/// lies in the stage, in two places in turn.
CollectiveStep reduce_step(const StepMember& m, std::int64_t k) {
  const std::int64_t p = position(m), last = m.n() - 1, pieces = m.shape.pieces;
  const auto staged = [&](std::int64_t piece) {
    return StepSlot{Stage, piece % 2 * largest_piece(m.shape), m.piece(In, piece).count};
  };
  CollectiveStep s;
  const std::int64_t sent = p == last ? k : k - 1;
  if (p > 0 && sent >= 0) {
    s.to = m.at(-1), s.to_step = step_number(sent);
    s.source = p == last ? m.piece(In, sent) : staged(sent);
  }
  if (p < last && k < pieces) {
    s.from = m.at(1), s.from_step = s.since = step_number(p + 1 == last ? k : k + 1);
    s.theirs = p + 1 == last ? m.piece(In, k) : staged(k);
    s.own = m.piece(In, k), s.target = p == 0 ? m.piece(Out, k) : staged(k);
    s.reduces = true, s.reuses = p > 0 && k >= 2;
  }
  return s;
}

constexpr StepAlgorithm kAlgorithms[] = {
    {CollectiveKind::AllReduce, CollectiveAlgorithm::Ring, all_reduce_size, all_reduce_step, no_stage},
    {CollectiveKind::AllReduce, CollectiveAlgorithm::Hierarchical, hierarchical_size, hierarchical_step, no_stage},
    {CollectiveKind::AllGather, CollectiveAlgorithm::Ring, all_gather_size, all_gather_step, no_stage},
    {CollectiveKind::ReduceScatter, CollectiveAlgorithm::Ring, reduce_scatter_size, reduce_scatter_step,
     reduce_scatter_stage},
    {CollectiveKind::Broadcast, CollectiveAlgorithm::Ring, broadcast_size, broadcast_step, no_stage},
    {CollectiveKind::Reduce, CollectiveAlgorithm::Ring, reduce_size, reduce_step, reduce_stage}};

}  // namespace

std::span<const StepAlgorithm> ring_algorithms() { return kAlgorithms; }

}  // namespace orrery
