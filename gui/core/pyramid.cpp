// SPDX-License-Identifier: Apache-2.0
#include "gui/core/pyramid.hpp"

#include <algorithm>
#include <bit>

namespace orrery::gui {
namespace {

int log2_of(std::int64_t duration) {
  return duration <= 0 ? 0 : std::bit_width(static_cast<std::uint64_t>(duration)) - 1;
}

/// Collects what runs in one bucket. Slices are few there, so a list is enough.
class Bucket {
 public:
  void add(std::uint32_t slice, std::uint8_t category, std::int64_t time, std::int64_t duration) {
    busy_ += time;
    if (time > longest_time_ || duration_ < 0) {
      longest_time_ = time;
      longest_ = slice;
      duration_ = duration;
    }
    for (auto& [c, t] : times_)
      if (c == category) {
        t += time;
        return;
      }
    times_.emplace_back(category, time);
  }

  Cell take(double width) {
    Cell cell;
    if (!times_.empty()) {
      const double share = double(busy_) / width;
      cell.busy = static_cast<std::uint16_t>(std::clamp(share * kFullyBusy, busy_ > 0 ? 1.0 : 0.0, double(kFullyBusy)));
      cell.longest = longest_;
      cell.log2_longest = static_cast<std::uint8_t>(log2_of(duration_));
      cell.category =
          std::max_element(times_.begin(), times_.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
    }
    *this = Bucket{std::move(times_)};
    return cell;
  }

  Bucket() = default;

 private:
  explicit Bucket(std::vector<std::pair<std::uint8_t, std::int64_t>>&& times) : times_{std::move(times)} {
    times_.clear();  // keeps its memory
  }

  std::vector<std::pair<std::uint8_t, std::int64_t>> times_;  // by category
  std::int64_t busy_ = 0, longest_time_ = 0, duration_ = -1;
  std::uint32_t longest_ = 0;
};

Cell parent_of(const Cell& a, const Cell& b) {
  const Cell& more = b.busy > a.busy ? b : a;
  const Cell& longer = b.log2_longest > a.log2_longest ? b : a;
  const int sum = int{a.busy} + int{b.busy};
  return {longer.longest, static_cast<std::uint16_t>((sum + 1) / 2), more.category, longer.log2_longest};
}

}  // namespace

std::size_t Columns::first_after(std::int64_t at) const {
  return static_cast<std::size_t>(std::upper_bound(end.begin(), end.end(), at) - end.begin());
}

Pyramid::Pyramid(const Columns& columns) {
  if (columns.size() < 2) return;
  buckets_ = Buckets<Cell>{{columns.start.front(), columns.end.back()}, columns.size()};
  recolour(columns);
}

void Pyramid::recolour(const Columns& columns) {
  const std::span<Cell> cells = buckets_.finest();
  if (cells.empty()) return;
  const double width = buckets_.width();
  Bucket bucket;
  std::size_t current = 0;
  std::fill(cells.begin(), cells.end(), Cell{});
  for (std::size_t i = 0; i < columns.size(); ++i)
    buckets_.each_bucket({columns.start[i], columns.end[i]}, [&](std::size_t b, std::int64_t time) {
      if (b != current) {
        cells[current] = bucket.take(width);
        current = b;
      }
      bucket.add(static_cast<std::uint32_t>(i), columns.category.empty() ? std::uint8_t{0} : columns.category[i], time,
                 columns.end[i] - columns.start[i]);
    });
  cells[current] = bucket.take(width);
  buckets_.sum_up(parent_of);
}

}  // namespace orrery::gui
