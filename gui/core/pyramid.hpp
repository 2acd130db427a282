// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "gui/core/buckets.hpp"
#include "gui/core/events.hpp"

namespace orrery::gui {

/// Slices of one lane, by start, not overlapping. Times are picoseconds.
struct Columns {
  std::vector<std::int64_t> start, end;
  std::vector<EventIndex> event;
  std::vector<std::uint8_t> category;

  std::size_t size() const { return start.size(); }
  void add(std::int64_t s, std::int64_t e, EventIndex i) {
    start.push_back(s);
    end.push_back(e);
    event.push_back(i);
  }
  /// The first slice that ends after `at`.
  std::size_t first_after(std::int64_t at) const;
};

/// What a lane does in one bucket of time.
struct Cell {
  std::uint32_t longest = 0;      // into the columns: the slice with the most time in the bucket
  std::uint16_t busy = 0;         // share of the bucket, of kFullyBusy
  std::uint8_t category = 0;      // the one with the most time
  std::uint8_t log2_longest = 0;  // of the whole duration of `longest`, rounded down; 0 for an empty bucket
};
constexpr int kFullyBusy = 65535;

/// A lane summed up, so that a picture costs as many look-ups as it has pixels however many slices there are. The
/// finest buckets number between half as many as the slices and as many.
class Pyramid {
 public:
  using Level = Buckets<Cell>::Level;

  Pyramid() = default;
  explicit Pyramid(const Columns& columns);

  /// See Buckets: it looks into this pyramid and must not outlive it.
  Level level(double picoseconds) const&& = delete;
  Level level(double picoseconds) const& { return buckets_.level(picoseconds); }
  /// Categories of the slices have changed.
  void recolour(const Columns& columns);

 private:
  Buckets<Cell> buckets_;
};

}  // namespace orrery::gui
