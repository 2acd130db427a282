// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/bulk_flows.hpp"

#include <algorithm>

#include "sim/base/random.hpp"

namespace orrery {
namespace {

/// How many members, one after another, share the node of the first, when all nodes hold so many; else all of them.
std::size_t members_per_node(std::span<const RankId> members, const CostModel& cost) {
  std::size_t g = 1;
  while (g < members.size() && cost.node_of(members[g]) == cost.node_of(members[0])) ++g;
  if (members.size() % g != 0) return members.size();
  for (std::size_t i = 0; i < members.size(); ++i)
    if (cost.node_of(members[i]) != cost.node_of(members[i - i % g])) return members.size();
  return g;
}

/// Rings inside of the nodes and rings of equal places; `passes` is 2 where each byte goes round twice.
std::vector<BulkFlow> rings(Bytes bytes, double passes, std::span<const RankId> members, const CostModel& cost) {
  const std::size_t n = members.size(), g = members_per_node(members, cost), nodes = n / g;
  const double inside = passes * double(g - 1) / double(g), between = passes * double(nodes - 1) / double(n);
  std::vector<BulkFlow> flows;
  for (std::size_t i = 0; i < n; ++i) {
    if (g > 1) flows.push_back({members[i], members[i - i % g + (i + 1) % g], inside * bytes});
    if (nodes > 1) flows.push_back({members[i], members[(i + g) % n], between * bytes});
  }
  return flows;
}

/// Round by one number of places after the other; where they are too many, by a random one of each equal part of them.
std::vector<BulkFlow> all_pairs(Bytes bytes, std::span<const RankId> members, std::size_t most_places) {
  std::vector<BulkFlow> flows;
  const std::size_t n = members.size(), others = n - 1, parts = std::min(others, most_places);
  const Bytes each = bytes / double(n) * (double(others) / double(parts));
  Random random{n, 0};
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = part * others / parts, next = (part + 1) * others / parts;
    const std::size_t places = 1 + first + static_cast<std::size_t>(random.below(next - first));
    for (std::size_t i = 0; i < n; ++i) flows.push_back({members[i], members[(i + places) % n], each});
  }
  return flows;
}

}  // namespace

std::vector<BulkFlow> bulk_flows(const Collective& work, std::span<const RankId> members, const CostModel& cost,
                                 std::size_t most_places) {
  std::vector<BulkFlow> flows;
  if (members.size() <= 1 || work.bytes <= Bytes{0}) return flows;
  switch (work.kind) {
    case CollectiveKind::AllReduce:
      return rings(work.bytes, 2, members, cost);
    case CollectiveKind::AllGather:
    case CollectiveKind::ReduceScatter:
      return rings(work.bytes, 1, members, cost);
    case CollectiveKind::AllToAll:
      return all_pairs(work.bytes, members, most_places);
    case CollectiveKind::Broadcast:
    case CollectiveKind::Reduce:
      for (std::size_t i = 0; i + 1 < members.size(); ++i) {
        const std::size_t from = static_cast<std::size_t>(work.root) + i + (work.kind == CollectiveKind::Reduce);
        flows.push_back({members[from % members.size()], members[(from + 1) % members.size()], work.bytes});
      }
      return flows;
    case CollectiveKind::Shift:
      if (const std::size_t places = places_of_shift(work.root, members.size()); places > 0)
        for (std::size_t i = 0; i < members.size(); ++i)
          flows.push_back({members[i], members[(i + places) % members.size()], work.bytes});
      return flows;
    case CollectiveKind::Barrier:
      return flows;
  }
  return flows;
}

}  // namespace orrery
