// SPDX-License-Identifier: Apache-2.0
#include "sim/strategy/remat.hpp"

#include <algorithm>

namespace orrery {

std::int64_t RematSchedule::peak(const RematGraph& g) const {
  std::int64_t most = 0;
  const int n = g.size();
  for (int t = 0; t < n; ++t) {
    const auto& now = made[std::size_t(t)];
    std::vector<bool> there = kept[std::size_t(t)];
    const auto stays = [&](int i, int k) {
      if (t + 1 < n && kept[std::size_t(t) + 1][std::size_t(i)]) return true;
      return std::any_of(g.edges.begin(), g.edges.end(), [&](const auto& e) {
        return e.first == i && e.second > k && e.second <= t && now[std::size_t(e.second)];
      });
    };
    for (int k = 0; k <= t; ++k) {
      if (!now[std::size_t(k)]) continue;
      there[std::size_t(k)] = true;
      std::int64_t bytes = 0;
      for (int i = 0; i < n; ++i) bytes += there[std::size_t(i)] ? g.bytes[std::size_t(i)] : 0;
      most = std::max(most, bytes + g.extra_of(k));
      for (int i = 0; i <= k; ++i)
        if (there[std::size_t(i)] && !stays(i, k)) there[std::size_t(i)] = false;
    }
  }
  return most;
}

}  // namespace orrery
