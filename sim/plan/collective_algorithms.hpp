// SPDX-License-Identifier: Apache-2.0
// What the algorithms of collectives have in common; only their sources need it.
#pragma once

#include <bit>

#include "sim/plan/collective_steps.hpp"

namespace orrery {

constexpr std::int64_t wrapped(std::int64_t x, std::int64_t n) { return (x % n + n) % n; }
/// ⌈log₂ n⌉.
constexpr std::int64_t rounds_of(std::int64_t n) { return std::bit_width(static_cast<std::uint64_t>(n - 1)); }

/// A member of a collective, and parts of its buffers.
struct StepMember {
  const CollectiveShape& shape;
  std::int64_t i = 0;
  int lane = 0;

  std::int64_t n() const { return shape.members; }
  std::int64_t elements() const { return shape.elements; }
  std::int32_t at(std::int64_t places) const { return static_cast<std::int32_t>(wrapped(i + places, n())); }
  /// The number of steps of its own before the exchanges: a copy where the input does not lie in the output.
  std::int64_t copies() const { return shape.in_place ? 0 : 1; }
  StepSlot whole(StepBuffer b) const { return {b, 0, elements()}; }
  /// Chunks c … c + m − 1 of n, round the end.
  StepSlot chunks(StepBuffer b, std::int64_t c, std::int64_t m = 1) const {
    const auto first = [&](std::int64_t j) { return elements() * j / n(); };
    const std::int64_t from = wrapped(c, n()), last = from + m;
    const std::int64_t end = last <= n() ? first(last) : elements() + first(last - n());
    return {b, first(from), end - first(from), 0, 0, last <= n() ? 0 : elements()};
  }
  /// The part of chunk c that a buffer of one chunk holds.
  StepSlot alone(StepBuffer b, std::int64_t c, std::int64_t first = 0) const { return {b, first, chunks(b, c).count}; }
  StepSlot piece(StepBuffer b, std::int64_t k) const {
    const std::int64_t first = elements() * k / shape.pieces;
    return {b, first, elements() * (k + 1) / shape.pieces - first};
  }
};

inline std::int32_t step_number(std::int64_t k) { return static_cast<std::int32_t>(k); }
inline CollectiveStep copy_step(const StepSlot& from, const StepSlot& to) { return {.own = from, .target = to}; }

/// Both sides are at the same step.
inline CollectiveStep exchange_step(std::int32_t to, std::int32_t from, std::int64_t k) {
  const auto step = static_cast<std::int32_t>(k);
  return {.to = to, .from = from, .to_step = step, .from_step = step, .since = step};
}

/// One way to do a kind of collective.
struct StepAlgorithm {
  CollectiveKind kind;
  CollectiveAlgorithm algorithm;
  std::int64_t (*size)(const StepMember&);
  CollectiveStep (*step)(const StepMember&, std::int64_t k);
  std::int64_t (*stage)(const CollectiveShape&);
};

// By family: the rings, the exchanges over distances of powers of two, the direct ones, the trees.
std::span<const StepAlgorithm> ring_algorithms();
std::span<const StepAlgorithm> doubling_algorithms();
std::span<const StepAlgorithm> direct_algorithms();
std::span<const StepAlgorithm> tree_algorithms();
std::span<const StepAlgorithm> binary_tree_algorithms();

}  // namespace orrery
