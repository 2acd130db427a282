// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

namespace orrery {

/// Where page-locked memory lies that was locked at once: CUDA refuses copies to or from places that go over from one
/// such piece into the next.
class PinnedPieces {
 public:
  void add(std::uintptr_t first, std::int64_t bytes) { ends_[first] = first + static_cast<std::uintptr_t>(bytes); }
  void remove(std::uintptr_t first) { ends_.erase(first); }
  /// Of so many bytes from a place on, those before the end of its piece; all of them where nothing is locked.
  std::int64_t within(std::uintptr_t place, std::int64_t bytes) const {
    auto it = ends_.upper_bound(place);
    if (it == ends_.begin()) return bytes;
    --it;
    return it->second <= place ? bytes : std::min(bytes, static_cast<std::int64_t>(it->second - place));
  }

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by first address
};

}  // namespace orrery
