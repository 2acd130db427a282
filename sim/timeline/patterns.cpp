// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/patterns.hpp"

#include <algorithm>
#include <unordered_map>

namespace orrery {

Patterns::Patterns(const PlanDigest& plan) {
  std::unordered_map<std::uint64_t, std::uint32_t> numbers;  // by the first op of a block and how many it has
  copies_.reserve(plan.repetitions.size());
  for (const Repetition& r : plan.repetitions) {
    const auto number = static_cast<std::uint32_t>(numbers.size());
    const std::uint32_t pattern =
        numbers.try_emplace(std::uint64_t{r.num_ops} << 32 | r.like.value, number).first->second;
    copies_.push_back({r.first.value, r.num_ops, pattern});
  }
  size_ = numbers.size();
}

std::vector<Patterns::Piece> Patterns::pieces(std::size_t first, std::size_t num_ops) const {
  std::vector<Piece> out;
  auto at = static_cast<std::uint32_t>(first);
  const auto end = static_cast<std::uint32_t>(first + num_ops);
  auto copy = std::lower_bound(copies_.begin(), copies_.end(), at,
                               [](const Piece& c, std::uint32_t op) { return c.first < op; });
  for (; copy != copies_.end() && copy->first + copy->num_ops <= end; ++copy) {
    if (at < copy->first) out.push_back({at, copy->first - at});
    out.push_back(*copy);
    at = copy->first + copy->num_ops;
  }
  if (at < end) out.push_back({at, end - at});
  return out;
}

}  // namespace orrery
