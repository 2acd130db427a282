// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/base/options.hpp"

namespace orrery {

/// Which chunk leaves the device when another one needs its room.
enum class Eviction : std::uint8_t { Belady, Lru, Fifo, Static, Order };
inline std::span<const EnumName<Eviction>> enum_names(Eviction) {
  static constexpr EnumName<Eviction> names[] = {{Eviction::Belady, "belady"},
                                                 {Eviction::Lru, "lru"},
                                                 {Eviction::Fifo, "fifo"},
                                                 {Eviction::Static, "static"},
                                                 {Eviction::Order, "order"}};
  return names;
}

/// What one op asks of the cache: chunks that have to be on the device, chunks that must not, and the bytes that all
/// chunks on the device may take meanwhile.
struct CacheStep {
  std::vector<std::uint32_t> needed, banned;
  std::int64_t capacity = 0;
};

/// A chunk comes to the device, or leaves it, ahead of a step.
struct CacheEvent {
  std::uint32_t step = 0, chunk = 0;
  bool comes = false;
};

struct CachePlan {
  std::vector<CacheEvent> events;  // in order; at the end all chunks leave, ahead of a step behind the last one
  std::int64_t misses = 0;         // chunks that came
  std::int64_t evictions = 0;      // that left to make room, or because the host needed them
  std::int64_t returned = 0;       // that left at the end
  std::int64_t most_bytes = 0;     // on the device at once
};

/// Decides, knowing all steps, which chunks come and leave when: none is on the device at first. A chunk that is needed
/// never leaves for another one of its step. Victims: the one whose next use is farthest (belady), whose last use is
/// longest ago (lru), that came first (fifo); ties by number. order: the lowest number, as a step without a trace does.
/// static: the first chunks that always fit beside the
/// largest step stay from their first use on, all others leave right behind theirs. Throws UserError when a step needs
/// more than its capacity.
///
/// Chunks of equal size: no policy misses less often than belady (Belady, IBM Systems Journal 5(2), 1966).
CachePlan plan_cache(std::span<const std::int64_t> bytes, std::span<const CacheStep> steps, Eviction policy);

/// Lets chunks come before the steps that need them, one after another as they are needed, no sooner than the
/// `ahead`-th before has come: to the earliest step from which on there is room, by the capacities of `steps`. Nothing
/// leaves for it. Where `stays` is set, a chunk whose room was not needed since it left does not leave.
void come_ahead(CachePlan& plan, std::span<const std::int64_t> bytes, std::span<const CacheStep> steps,
                std::int64_t ahead, bool stays = false);

/// Lets chunks that are marked come before the first step, where there is room from there on until they are needed
/// first. Nothing leaves for it.
void come_first(CachePlan& plan, std::span<const std::int64_t> bytes, std::span<const CacheStep> steps,
                const std::vector<bool>& marked);

}  // namespace orrery
