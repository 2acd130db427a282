// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/timeline/digest.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {

/// Spans of one stream of a rank that do not overlap, by start. Lane 0 holds the ops; pieces of detailed collectives
/// and what overlaps all the same lie in lanes of their own, since viewers want slices of a track to nest.
struct Lane {
  RankId rank;
  Stream stream = Stream::Compute;
  std::uint32_t number = 0;
  std::vector<SpanIndex> spans;
};

/// By rank, stream and number. Times are compared in whole nanoseconds, which is what viewers see.
std::vector<Lane> lanes_of(const Trace& trace);

/// "comm", and behind the first lane "comm 2".
std::string name_of(const Lane& lane);

/// An arrow from a span to one that depends on it.
struct Arrow {
  SpanIndex from, to;
};

/// The arrows of all recorded dependencies, in order of `to`. Their numbers from 1 are flow ids.
std::vector<Arrow> arrows_of(const Trace& trace);

/// A stream, phase, tier or class by its word; false when there is none.
bool find_by_name(std::string_view name, Stream& out);
bool find_by_name(std::string_view name, Phase& out);
bool find_by_name(std::string_view name, Tier& out);
bool find_by_name(std::string_view name, OpClass& out);

}  // namespace orrery
