// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace orrery {

/// Values that are made from values: node i reads what `edges` (from, to) bring, all of them made before it.
struct RematGraph {
  std::vector<double> cost;
  std::vector<std::int64_t> bytes;
  std::vector<std::pair<int, int>> edges;
  std::vector<std::int64_t> extra = {};  // bytes beside its value while a node is made; empty: none
  std::vector<bool> once = {};           // nodes that cannot be made again; empty: none

  int size() const { return static_cast<int>(cost.size()); }
  std::int64_t extra_of(int i) const { return extra.empty() ? 0 : extra[static_cast<std::size_t>(i)]; }
  bool is_once(int i) const { return !once.empty() && once[static_cast<std::size_t>(i)]; }
  bool operator==(const RematGraph&) const = default;
};

/// Stage t makes node t for the first time, and in front of it any earlier ones again, in their order.
struct RematSchedule {
  std::vector<std::vector<bool>> made;  // [stage][node]
  std::vector<std::vector<bool>> kept;  // [stage][node]: there when the stage begins
  double cost = 0;
  bool is_optimal = false;  // else the best that was found in time

  /// The most bytes at a time, when every value goes after its last use.
  std::int64_t peak(const RematGraph& graph) const;
};

/// Finds schedules of least cost. What strategies ask of a search that they do not know.
class RematSolver {
 public:
  virtual ~RematSolver() = default;
  /// No more than `budget` bytes at a time; nothing when no schedule fits, or none was found in time.
  virtual std::optional<RematSchedule> solve(const RematGraph& graph, std::int64_t budget) const = 0;
};

}  // namespace orrery
