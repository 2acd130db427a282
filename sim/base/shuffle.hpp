// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "sim/base/random.hpp"

namespace orrery {

/// Brings items into an order of which all are equally likely (Fisher and Yates): the same from the same generator.
template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (std::size_t n = items.size(); n > 1; --n) std::swap(items[n - 1], items[random.below(n)]);
}

/// Brings `count` of them, drawn without repetition, to the front, in the order in which they are drawn.
template <class T>
void draw_to_front(std::vector<T>& items, std::size_t count, Random& random) {
  for (std::size_t i = 0; i < count; ++i) std::swap(items[i], items[i + random.below(items.size() - i)]);
}

}  // namespace orrery
