// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace orrery {

/// The largest n from 1 to `most` that passes, given that whatever is smaller than one that passes does so too; 0: not
/// even 1 does. n is doubled, then the gap behind the last one that passes halved, until it is 1, or no more than 1
/// part of `parts` of n where that is not 0.
template <class Passes>
std::int64_t largest_passing(std::int64_t most, Passes passes, std::int64_t parts = 0) {
  std::int64_t good = 0, bad = 1;
  while (bad <= most && passes(bad)) good = bad, bad *= 2;
  bad = std::min(bad, most + 1);
  while (bad - good > std::max<std::int64_t>(1, parts > 0 ? good / parts : 0)) {
    const std::int64_t middle = good + (bad - good) / 2;
    (passes(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace orrery
