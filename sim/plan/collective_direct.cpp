// SPDX-License-Identifier: Apache-2.0
// Direct exchanges: each member hears from every other one what it needs of it, in step d from the one d places away.
#include "sim/plan/collective_algorithms.hpp"

namespace orrery {
namespace {

using enum StepBuffer;

std::int64_t no_stage(const CollectiveShape&) { return 0; }
std::int64_t stage_in_place(const CollectiveShape& s) { return s.in_place ? s.elements : 0; }

/// Member i adds the others' chunk i to its own.
CollectiveStep reduce_from(const StepMember& m, std::int64_t d, std::int64_t k, const StepSlot& sum) {
  CollectiveStep s = exchange_step(m.at(-d), m.at(d), k);
  s.source = m.chunks(In, m.i - d), s.theirs = m.chunks(In, m.i);
  s.own = d == 1 ? m.chunks(In, m.i) : sum;
  s.target = sum, s.reduces = true;
  s.since = 0;
  return s;
}

CollectiveStep gather_from(const StepMember& m, std::int64_t d, std::int64_t k, std::int64_t since) {
  CollectiveStep s = exchange_step(m.at(-d), m.at(d), k);
  s.source = m.chunks(Out, m.i), s.theirs = s.target = m.chunks(Out, m.i + d);
  s.since = step_number(since);
  return s;
}

std::int64_t all_reduce_size(const StepMember& m) { return 2 * (m.n() - 1); }
CollectiveStep all_reduce_step(const StepMember& m, std::int64_t k) {
  return k < m.n() - 1 ? reduce_from(m, k + 1, k, m.chunks(Out, m.i)) : gather_from(m, k - m.n() + 2, k, m.n() - 1);
}

std::int64_t reduce_scatter_size(const StepMember& m) { return m.n() - 1; }
CollectiveStep reduce_scatter_step(const StepMember& m, std::int64_t k) {
  return reduce_from(m, k + 1, k, m.alone(Out, m.i));
}

std::int64_t all_gather_size(const StepMember& m) { return m.copies() + m.n() - 1; }
CollectiveStep all_gather_step(const StepMember& m, std::int64_t k) {
  const std::int64_t d = k - m.copies() + 1;
  return d < 1 ? copy_step(m.alone(In, m.i), m.chunks(Out, m.i)) : gather_from(m, d, k, m.copies());
}

/// In place, the input goes to the stage first: the output of a member lies where others still read its input.
std::int64_t all_to_all_size(const StepMember& m) { return m.n(); }
CollectiveStep all_to_all_step(const StepMember& m, std::int64_t k) {
  const StepBuffer input = m.shape.in_place ? Stage : In;
  if (k == 0) {
    if (m.shape.in_place) return copy_step(m.whole(In), m.whole(Stage));
    return copy_step(m.chunks(In, m.i), m.chunks(Out, m.i));
  }
  CollectiveStep s = exchange_step(m.at(k), m.at(-k), k);
  s.source = m.chunks(input, m.i + k), s.theirs = m.chunks(input, m.i), s.target = m.chunks(Out, m.i - k);
  s.since = m.shape.in_place ? 1 : 0;
  return s;
}

std::int64_t places(const StepMember& m) { return wrapped(m.shape.root, m.n()); }
std::int64_t shift_size(const StepMember& m) { return places(m) == 0 ? m.copies() : m.shape.in_place ? 2 : 1; }
CollectiveStep shift_step(const StepMember& m, std::int64_t k) {
  if (places(m) == 0) return copy_step(m.whole(In), m.whole(Out));
  if (m.shape.in_place && k == 0) return copy_step(m.whole(In), m.whole(Stage));
  CollectiveStep s = exchange_step(m.at(places(m)), m.at(-places(m)), k);
  s.source = s.theirs = m.whole(m.shape.in_place ? Stage : In), s.target = m.whole(Out);
  return s;
}

std::int64_t barrier_size(const StepMember& m) { return rounds_of(m.n()); }
CollectiveStep barrier_step(const StepMember& m, std::int64_t k) {
  return exchange_step(m.at(std::int64_t{1} << k), m.at(-(std::int64_t{1} << k)), k);
}

constexpr StepAlgorithm kAlgorithms[] = {
    {CollectiveKind::AllReduce, CollectiveAlgorithm::Direct, all_reduce_size, all_reduce_step, no_stage},
    {CollectiveKind::AllGather, CollectiveAlgorithm::Direct, all_gather_size, all_gather_step, no_stage},
    {CollectiveKind::ReduceScatter, CollectiveAlgorithm::Direct, reduce_scatter_size, reduce_scatter_step, no_stage},
    {CollectiveKind::AllToAll, CollectiveAlgorithm::Direct, all_to_all_size, all_to_all_step, stage_in_place},
    {CollectiveKind::Shift, CollectiveAlgorithm::Direct, shift_size, shift_step, stage_in_place},
    {CollectiveKind::Barrier, CollectiveAlgorithm::Direct, barrier_size, barrier_step, no_stage}};

}  // namespace

std::span<const StepAlgorithm> direct_algorithms() { return kAlgorithms; }

}  // namespace orrery
