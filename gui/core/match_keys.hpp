// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "gui/core/matching.hpp"

namespace orrery::gui {

constexpr std::uint64_t combined(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15ull;
  return (a ^ (b + kMix + (a << 6) + (a >> 2))) * kMix;
}

/// Of several values one key. Never 0, which means unknown.
template <class... Values>
std::uint64_t key_of(Values... values) {
  std::uint64_t k = 1;
  ((k = combined(k, static_cast<std::uint64_t>(values))), ...);
  return k == 0 ? 1 : k;
}

inline std::uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>{}(text); }

/// Collectives of one group, rank and part of a run, in order, by a key that both sides have.
using CollectiveGroups = std::map<std::uint64_t, std::vector<MatchItem*>>;
/// Those of one side are those of the other where only one reading is possible: they get the same number.
void join_collectives(const CollectiveGroups& a, const CollectiveGroups& b);

}  // namespace orrery::gui
