// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace orrery::gui {

/// Picoseconds from a begin to an end.
struct TimeRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
  bool operator==(const TimeRange&) const = default;
};

}  // namespace orrery::gui
