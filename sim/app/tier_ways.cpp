// SPDX-License-Identifier: Apache-2.0
#include "sim/app/tier_ways.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "sim/app/wiring.hpp"

namespace orrery {
namespace {

/// Strategies with more than one way; any other one shards everything (zero3) and keeps its defaults.
struct KnownWay {
  std::string_view strategy, name, options, data;
  bool several_ranks = false;  // on one it is the way before it
  bool recomputes = false;     // says itself what
};
constexpr KnownWay kKnownWays[] = {
    {"zero-offload", "zero-offload", "", "zero2"},
    {"zero-offload", "zero-offload, zero3", "", "zero3", true},
    {"zero-infinity", "zero-infinity, host", "weights: host, states: host", "zero3"},
    {"zero-infinity", "zero-infinity, disk", "", "zero3"},
    {"gemini", "gemini", "placement: auto", "zero3"},
    {.strategy = "memo", .name = "memo, all swapped", .options = "alpha: 1", .data = "zero3", .recomputes = true},
    {.strategy = "memo", .name = "memo, inputs swapped", .options = "alpha: 0", .data = "zero3", .recomputes = true},
};

bool has_option(const std::vector<OptionInfo>& options, std::string_view prefix) {
  return std::any_of(options.begin(), options.end(),
                     [&](const OptionInfo& o) { return o.path.compare(0, prefix.size(), prefix) == 0; });
}

std::string joined(const std::string& a, const std::string& b) { return a.empty() || b.empty() ? a + b : a + ", " + b; }

TierWay tier_way(const StrategyEntry& entry, const KnownWay& known, const MemoryRoom& room) {
  TierWay way{std::string{known.name}, std::string{entry.name}, std::string{known.options}, std::string{known.data}};
  way.chunked = has_option(entry.options(), "device_memory"), way.recomputes = known.recomputes;
  if (way.chunked) way.options = joined(way.options, fmt::format("device_memory: {:.0f} B", room.device));
  if (room.host > 0 && has_option(entry.options(), "host_memory"))
    way.options = joined(way.options, fmt::format("host_memory: {:.0f} B", room.host));
  return way;
}

}  // namespace

std::string TierWay::entry(const std::string& parallel) const {
  return fmt::format("{}: {{{}}}", strategy,
                     joined(options, parallel.empty() ? "" : fmt::format("parallel: {{{}}}", parallel)));
}

std::vector<TierWay> tier_ways(bool several_ranks, const MemoryRoom& room) {
  std::vector<TierWay> out;
  for (const StrategyEntry& entry : strategies()) {
    if (!has_option(entry.options(), "parallel.")) continue;
    const std::size_t before = out.size();
    for (const KnownWay& known : kKnownWays)
      if (known.strategy == entry.name && (several_ranks || !known.several_ranks))
        out.push_back(tier_way(entry, known, room));
    if (out.size() == before) out.push_back(tier_way(entry, {entry.name, entry.name, "", "zero3"}, room));
  }
  return out;
}

}  // namespace orrery
