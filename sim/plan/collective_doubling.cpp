// SPDX-License-Identifier: Apache-2.0
// Exchanges over distances of 1, 2, 4 …: recursive halving and doubling, for any number of members, and Bruck's
// all-to-all.
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

using enum StepBuffer;

/// In round r, distance d = 2^r, member i gets from i + d the chunks i + d … i + 2d − 1 that this one holds, and no
/// more than are missing.
CollectiveStep gather_round(const StepMember& m, std::int64_t r, std::int64_t k) {
  const std::int64_t d = std::int64_t{1} << r, count = std::min(d, m.n() - d);
  CollectiveStep s = exchange_step(m.at(-d), m.at(d), k);
  s.source = m.chunks(Out, m.i, count), s.theirs = s.target = m.chunks(Out, m.i + d, count);
  return s;
}

/// The same backwards: what a chunk is copied to there, it is summed from here. `b` holds the sums so far.
CollectiveStep reduce_round(const StepMember& m, std::int64_t r, std::int64_t k, StepBuffer b) {
  const std::int64_t d = std::int64_t{1} << r, count = std::min(d, m.n() - d);
  CollectiveStep s = exchange_step(m.at(d), m.at(-d), k);
  s.source = m.chunks(b, m.i + d, count), s.theirs = s.own = s.target = m.chunks(b, m.i, count);
  s.reduces = true;
  return s;
}

std::int64_t all_gather_size(const StepMember& m) { return m.copies() + rounds_of(m.n()); }
CollectiveStep all_gather_step(const StepMember& m, std::int64_t k) {
  if (k < m.copies()) return copy_step(m.alone(In, m.i), m.chunks(Out, m.i));
  return gather_round(m, k - m.copies(), k);
}

std::int64_t reduce_scatter_size(const StepMember& m) { return 1 + rounds_of(m.n()); }
CollectiveStep reduce_scatter_step(const StepMember& m, std::int64_t k) {
  if (k == 0) return copy_step(m.whole(In), m.whole(Stage));
  CollectiveStep s = reduce_round(m, rounds_of(m.n()) - k, k, Stage);
  if (k == rounds_of(m.n())) s.target = m.alone(Out, m.i);
  return s;
}
std::int64_t reduce_scatter_stage(const CollectiveShape& s) { return s.elements; }

std::int64_t all_reduce_size(const StepMember& m) { return m.copies() + 2 * rounds_of(m.n()); }
CollectiveStep all_reduce_step(const StepMember& m, std::int64_t k) {
  const std::int64_t e = k - m.copies(), rounds = rounds_of(m.n());
  if (e < 0) return copy_step(m.whole(In), m.whole(Out));
  return e < rounds ? reduce_round(m, rounds - 1 - e, k, Out) : gather_round(m, e - rounds, k);
}
std::int64_t no_stage(const CollectiveShape&) { return 0; }

/// Bruck's: the stage holds at place j what goes to member i + j, later what came from i − j. In round r all at places
/// whose number has bit r, packed behind the places, go 2^r members on.
struct Bruck {
  explicit Bruck(const StepMember& member) : m{member}, part{m.elements() / m.n()}, all{part * m.n()} {}

  StepSlot with_bit(std::int64_t r) const {
    const std::int64_t bit = std::int64_t{1} << r, whole = (m.n() >> (r + 1)) << r,
                       rest = std::max<std::int64_t>(0, (m.n() & (2 * bit - 1)) - bit);
    return {Stage, bit * part, (whole + rest) * part, bit * part, 2 * bit * part, 0};
  }
  CollectiveStep pack(std::int64_t r) const {
    const StepSlot places = with_bit(r);
    CollectiveStep s = copy_step(places, {Stage, all, places.count});
    s.reuses = r > 0;
    return s;
  }
  CollectiveStep round(std::int64_t r, std::int64_t k) const {
    CollectiveStep s = exchange_step(m.at(std::int64_t{1} << r), m.at(-(std::int64_t{1} << r)), k);
    s.target = with_bit(r);
    s.source = s.theirs = {Stage, all, s.target.count};
    return s;
  }
  CollectiveStep turn_forth() const { return copy_step({In, m.i * part, all, 0, 0, all}, {Stage, 0, all}); }
  CollectiveStep turn_back() const { return copy_step({Stage, 0, all}, {Out, m.i * part, all, part, -part, all}); }

  const StepMember& m;
  std::int64_t part, all;
};

std::int64_t bruck_size(const StepMember& m) { return 2 + 2 * rounds_of(m.n()); }
CollectiveStep bruck_step(const StepMember& m, std::int64_t k) {
  const Bruck b{m};
  if (k == 0) return b.turn_forth();
  if (k == bruck_size(m) - 1) return b.turn_back();
  return k % 2 == 1 ? b.pack((k - 1) / 2) : b.round((k - 1) / 2, k);
}
std::int64_t bruck_stage(const CollectiveShape& s) {
  return s.elements + s.elements / s.members * ((s.members + 1) / 2);
}

constexpr StepAlgorithm kAlgorithms[] = {
    {CollectiveKind::AllReduce, CollectiveAlgorithm::Halving, all_reduce_size, all_reduce_step, no_stage},
    {CollectiveKind::AllGather, CollectiveAlgorithm::Halving, all_gather_size, all_gather_step, no_stage},
    {CollectiveKind::ReduceScatter, CollectiveAlgorithm::Halving, reduce_scatter_size, reduce_scatter_step,
     reduce_scatter_stage},
    {CollectiveKind::AllToAll, CollectiveAlgorithm::Bruck, bruck_size, bruck_step, bruck_stage}};

}  // namespace

std::span<const StepAlgorithm> doubling_algorithms() { return kAlgorithms; }

}  // namespace orrery
