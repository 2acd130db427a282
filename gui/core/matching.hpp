// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "gui/core/document.hpp"
#include "sim/base/units.hpp"

namespace orrery::gui {

/// How sure it is that two events are the same op; lower is surer.
enum class MatchTier : std::uint8_t {
  Id,          // both carry the id of the plan's op, its step and rank
  Collective,  // n-th collective of the same group on the same rank
  Marked,      // order of kinds inside the same step and layer, where only one reading is possible
  Sequence     // order of kinds where another reading is possible: over a whole stream, which may be wrong by whole
               // layers; of ops of a layer that changed places, or that may have been run together with another one
};
constexpr int kNumMatchTiers = 4;
constexpr std::uint8_t kUnmatched = 255;
std::string_view name_of(MatchTier t);

/// What matching sees of an event. Keys of 0 are unknown.
struct MatchItem {
  EventIndex event = kNoEvent;
  std::uint64_t collective = 0;  // group, rank and number in order
  std::uint64_t segment = 0;     // step and layer
  std::uint64_t kind = 0;        // what the op does and its sizes
  bool is_fused = false;         // the name of its kernel says that it does what several ops do
  std::uint64_t stretch = 0;     // part of a stream that the last tier does not look beyond: a step
};

/// The events of one stream in order.
struct MatchStream {
  std::uint32_t rank = 0;
  std::string name;
  std::vector<MatchItem> items;
};

/// Several events of one side that are one event of the other: fused or split kernels.
struct Fusion {
  std::vector<EventIndex> main, other;
};

struct Matching {
  std::vector<EventIndex> partner_of_main, partner_of_other;  // kNoEvent without a partner
  std::vector<std::uint8_t> tier_of_main;                     // MatchTier, or kUnmatched
  std::array<std::uint64_t, kNumMatchTiers> pairs{};          // per tier
  std::vector<Fusion> fusions;
  std::uint64_t unmatched_main = 0, unmatched_other = 0;  // of what can be compared: not launches, not marks
  Seconds unmatched_main_time, unmatched_other_time;      // their durations added up

  Matching() = default;
  /// Without any pair yet.
  Matching(std::size_t num_main, std::size_t num_other);
  void pair(EventIndex main, EventIndex other, MatchTier tier);
  std::uint64_t num_pairs() const { return pairs[0] + pairs[1] + pairs[2] + pairs[3]; }
  /// What an event of the main document is part of; null for nothing.
  const Fusion* fusion_of(EventIndex main) const;
};

/// Matches by the keys of streams, tier by tier: each tier only sees what those before it left. Inside a segment a pair
/// is sure only if all best readings have it (see readings.hpp), so that a missing, added, fused or swapped op leaves
/// gaps and not wrong pairs.
Matching match(std::span<const MatchStream> main, std::size_t num_main, std::span<const MatchStream> other,
               std::size_t num_other);

/// The streams of two documents with the keys that both have.
struct MatchInput {
  std::vector<MatchStream> main, other;
};
MatchInput match_input(const Document& main, const Document& other);

/// Where both ran the same plan every op has an id, and what has another id is another op: no other key is looked at.
Matching match(const Document& main, const Document& other);

}  // namespace orrery::gui
