// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "calibrate/calibrate.hpp"
#include "sim/base/random.hpp"

namespace orrery {

/// Half-open range of numbers.
struct Numbers {
  std::size_t begin = 0, end = 0;
  bool holds(std::size_t i) const { return begin <= i && i < end; }
};

/// One that does next to nothing but move data.
struct MovingBench {
  std::size_t bench = 0;
  Bytes moved;
};

/// All that a calibration measures, and what is which.
struct Selection {
  std::vector<Bench> benches;
  Numbers sweep;                   // the cache sweep: products that read more and more between two uses of a weight
  Numbers steps;                   // whole steps on one core
  Numbers beside;                  // some of them on all cores at once
  std::vector<std::size_t> alone;  // of each of these: the same step on one core
  Numbers turns;                   // the same step on more ranks than there are cores
  std::size_t pairs = 0;           // of ranks, more than cores, that exchange small messages
  MovingBench memory;              // all cores copy more than the last cache holds
  MovingBench far, near;           // one core reads more than the last cache holds, and what it does hold
};

/// Ops that stand alone, the cache sweep, products whose weights stay near, steps, some of them on all cores at once
/// and on more ranks than cores, messages between 2 to 16 ranks, and the rates of memory and of the last cache.
Selection select_benches(const CalibrateOptions& options, std::vector<Bench> steps, Random& random);

}  // namespace orrery
