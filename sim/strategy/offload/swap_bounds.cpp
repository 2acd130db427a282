// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "sim/strategy/offload/memo.hpp"

namespace orrery {

double SwapBounds::alpha() const { return std::clamp(std::min(link, host), 0.0, 1.0); }

SwapBounds swap_bounds(const SwappedLayer& layer, std::int64_t layers, Seconds forward, BytesPerSecond to_host,
                       Bytes host) {
  constexpr double kAll = std::numeric_limits<double>::infinity();
  const auto part = [&](Bytes room) { return layer.others > Bytes{0} ? (room - layer.always) / layer.others : kAll; };
  const double swapped = double(std::max<std::int64_t>(layers - 2, 0));
  return {part(forward * to_host), swapped > 0 ? part(host / swapped) : kAll};
}

}  // namespace orrery
