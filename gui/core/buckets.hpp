// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "gui/core/time_range.hpp"

namespace orrery::gui {

/// Something along a time axis summed up in buckets of 2^k picoseconds for all k that matter, so that a picture costs
/// as many look-ups as it has pixels, however much there is to sum up. Each level has half as many buckets as the one
/// below.
template <class Cell>
class Buckets {
 public:
  /// Buckets of one width.
  struct Level {
    int shift = 0;  // the width is 2^shift
    std::int64_t origin = 0;
    std::span<const Cell> cells;
  };

  Buckets() = default;
  /// Over a range of time; the finest ones number more than half of `most` and at most one more than it, but 16 are
  /// always allowed.
  Buckets(TimeRange time, std::size_t most) : origin_{time.begin} {
    const auto length = static_cast<std::uint64_t>(std::max<std::int64_t>(1, time.length()));
    while ((length >> finest_) >= std::max<std::size_t>(16, most)) ++finest_;
    std::size_t count = static_cast<std::size_t>(length >> finest_) + 1, total = 0;
    first_ = {0};
    for (;; count = (count + 1) / 2) {
      total += count;
      first_.push_back(total);
      if (count == 1) break;
    }
    cells_.resize(total);
  }

  bool is_empty() const { return cells_.empty(); }
  std::span<Cell> finest() { return is_empty() ? std::span<Cell>{} : std::span{cells_}.first(first_[1]); }

  /// Calls `visit(bucket, time)` for each of the finest buckets that a range touches, with the time it has there. A
  /// range of no length touches one.
  template <class Visit>
  void each_bucket(TimeRange range, Visit visit) const {
    const std::int64_t start = range.begin - origin_, end = range.end - origin_;
    for (std::int64_t b = start >> finest_; b <= std::max(start, end - 1) >> finest_; ++b)
      visit(static_cast<std::size_t>(b), std::min(end, (b + 1) << finest_) - std::max(start, b << finest_));
  }
  /// The width of the finest.
  double width() const { return std::ldexp(1.0, finest_); }

  /// Finds the levels above the finest: `join(a, b)` is the bucket of two neighbours.
  template <class Join>
  void sum_up(Join join) {
    for (std::size_t level = 1; level + 1 < first_.size(); ++level) {
      const std::size_t below = first_[level - 1], count = first_[level] - below;
      for (std::size_t i = 0; i < first_[level + 1] - first_[level]; ++i) {
        const Cell right = 2 * i + 1 < count ? cells_[below + 2 * i + 1] : Cell{};
        cells_[first_[level] + i] = join(cells_[below + 2 * i], right);
      }
    }
  }

  /// The coarsest level whose buckets are no wider than this; no cells when even the finest are. It looks into these
  /// buckets: it must not outlive them.
  Level level(double) const&& = delete;
  Level level(double picoseconds) const& {
    if (is_empty() || picoseconds < width()) return {};
    const int levels = static_cast<int>(first_.size()) - 1;
    const int above = std::min(levels - 1, static_cast<int>(std::floor(std::log2(picoseconds))) - finest_);
    const auto l = static_cast<std::size_t>(above);
    return {finest_ + above, origin_, {cells_.data() + first_[l], first_[l + 1] - first_[l]}};
  }

 private:
  std::int64_t origin_ = 0;
  int finest_ = 0;
  std::vector<std::size_t> first_;  // of each level in cells_, finest first; one more than levels
  std::vector<Cell> cells_;
};

/// Shares of buckets are counted in this.
constexpr std::uint32_t kWholeBucket = 1u << 16;

/// The buckets under one pixel: of the first it covers the share `head`, of the last `tail` where that is another one,
/// of those between all.
template <class Cell>
struct UnderPixel {
  const Cell *first, *last;
  std::uint32_t head, tail;  // of kWholeBucket

  /// Calls `visit(cell, share)` for each.
  template <class Visit>
  void each(Visit visit) const {
    visit(*first, head);
    if (first == last) return;
    for (const Cell* c = first + 1; c < last; ++c) visit(*c, kWholeBucket);
    if (tail > 0) visit(*last, tail);
  }
};

/// Calls `visit(x, under)` for those of `width` pixels over which the time goes that lie over a level, from left to
/// right.
template <class Level, class Visit>
void each_pixel(const Level& level, TimeRange time, int width, Visit visit) {
  using Cell = typename decltype(level.cells)::value_type;
  if (level.cells.empty()) return;
  const double cells = static_cast<double>(level.cells.size()), inverse = std::ldexp(1.0, -level.shift);
  const double begin = static_cast<double>(time.begin - level.origin) * inverse,
               step = static_cast<double>(time.length()) / width * inverse;
  const int from = static_cast<int>(std::clamp(std::floor(-begin / step), 0.0, static_cast<double>(width))),
            to = static_cast<int>(std::clamp(std::ceil((cells - begin) / step), 0.0, static_cast<double>(width)));
  // Positions have 32 binary places.
  const auto fixed = [](double v) { return static_cast<std::int64_t>(std::llround(std::ldexp(v, 32))); };
  const auto share = [](std::int64_t v) { return static_cast<std::uint32_t>((v & 0xffffffff) >> 16); };
  const auto last = static_cast<std::int64_t>(level.cells.size()) - 1;
  const std::int64_t by = fixed(step);
  std::int64_t at = fixed(begin + from * step);
  for (int x = from; x < to; ++x, at += by) {
    const std::int64_t first = at >> 32, end = (at + by) >> 32;
    if (end < 0 || first > last) continue;
    const Cell* cell = level.cells.data();
    const std::uint32_t tail = end > last ? kWholeBucket : share(at + by);
    const std::uint32_t head = first >= 0 ? kWholeBucket - share(at) : end == 0 ? tail : kWholeBucket;
    visit(x, UnderPixel<Cell>{cell + std::max<std::int64_t>(first, 0), cell + std::min(end, last), head, tail});
  }
}

}  // namespace orrery::gui
