// SPDX-License-Identifier: Apache-2.0
#include "gui/core/lane_raster.hpp"

#include <algorithm>
#include <cmath>

namespace orrery::gui {
namespace {

/// Something ran: it can be seen however short it was.
constexpr double kFaintest = 0.14;
constexpr float kLeastBusy = 1e-6f;

}  // namespace

ColorTable::ColorTable(const Colouring& colouring, Color background) {
  for (std::size_t c = 0; c < table_.size(); ++c)
    for (int level = 0; level <= kLevels; ++level) {
      const double share = kFaintest + (1 - kFaintest) * level / kLevels;
      table_[c][static_cast<std::size_t>(level)] =
          mix(background, colouring.colors[c], static_cast<std::uint32_t>(share * 256));
    }
}

std::span<Color> LaneRaster::draw(const Track& track, TimeRange time, const ColorTable& colors) {
  std::fill(busy_.begin(), busy_.end(), 0.0f);
  wide_.clear();
  time_ = time;
  per_pixel_ = double(time.length()) / double(line_.size());
  pixels_per_ps_ = 1 / per_pixel_;
  const Pyramid::Level level = track.pyramid.level(per_pixel_);
  if (level.cells.empty())
    draw_exactly(track.slices);
  else
    sample(track, level);
  for (std::size_t x = 0; x < line_.size(); ++x) line_[x] = busy_[x] > 0 ? colors.at(category_[x], busy_[x]) : 0;
  draw_wide(track.slices, colors);
  return line_;
}

void LaneRaster::draw_wide(const Columns& slices, const ColorTable& colors) {
  for (const WideSlice& w : wide_) {
    const std::uint8_t category = slices.category[w.slice];
    const Color c = colors.full(category);
    const int first = std::max(0, w.left), last = std::clamp(w.right, first, static_cast<int>(line_.size()));
    std::fill(line_.begin() + first, line_.begin() + last, c);
    std::fill(busy_.begin() + first, busy_.begin() + last, 1.0f);
    std::fill(category_.begin() + first, category_.begin() + last, category);
    // A darker first pixel keeps neighbours of one colour apart.
    if (w.left >= 0 && w.left < static_cast<int>(line_.size()))
      line_[static_cast<std::size_t>(w.left)] = mix(c, rgb(0, 0, 0), 90);
  }
}

void LaneRaster::sample(const Track& track, const Pyramid::Level& level) {
  const int log2_wide = static_cast<int>(std::ceil(std::log2(kWide * per_pixel_)));
  const auto share = static_cast<float>(std::ldexp(1.0, level.shift) * pixels_per_ps_ / kWholeBucket / kFullyBusy);
  std::uint32_t drawn = UINT32_MAX;
  each_pixel(level, time_, static_cast<int>(line_.size()), [&](int x, const UnderPixel<Cell>& under) {
    std::uint64_t busy = 0;
    int most = 0;
    std::uint8_t category = 0;
    under.each([&](const Cell& cell, std::uint32_t part) {
      busy += std::uint64_t{part} * cell.busy;
      if (cell.busy > most) {
        most = cell.busy;
        category = cell.category;
      }
      if (cell.log2_longest >= log2_wide && cell.longest != drawn) {
        drawn = cell.longest;
        add(track.slices, drawn);
      }
    });
    if (most == 0) return;
    busy_[static_cast<std::size_t>(x)] = std::max(static_cast<float>(busy) * share, kLeastBusy);
    category_[static_cast<std::size_t>(x)] = category;
  });
}

void LaneRaster::draw_exactly(const Columns& slices) {
  for (std::size_t i = slices.first_after(time_.begin); i < slices.size() && slices.start[i] < time_.end;) {
    add(slices, i);
    i = skip(slices, i);
  }
}

/// The next slice to draw: where a pixel has very many, all but the first 64 of them are passed over.
std::size_t LaneRaster::skip(const Columns& slices, std::size_t i) {
  constexpr std::size_t kCrowd = 64;
  if (i % kCrowd != 0 || i + kCrowd >= slices.size()) return i + 1;
  const double pixel = std::floor(double(slices.start[i] - time_.begin) * pixels_per_ps_);
  const auto edge = time_.begin + static_cast<std::int64_t>((pixel + 1) * per_pixel_);
  if (slices.end[i + kCrowd] >= edge) return i + 1;
  const auto from = slices.end.begin() + static_cast<std::ptrdiff_t>(i);
  const auto next = static_cast<std::size_t>(std::lower_bound(from, slices.end.end(), edge) - slices.end.begin());
  // What is passed over counts as busy: slices this close together leave no gap that could be seen.
  const double share = double(slices.end[next - 1] - slices.end[i]) * pixels_per_ps_;
  if (pixel >= 0 && pixel < double(line_.size())) cover(static_cast<int>(pixel), share, slices.category[i]);
  return next;
}

void LaneRaster::cover(int x, double share, std::uint8_t category) {
  const auto i = static_cast<std::size_t>(x);
  if (busy_[i] < share) category_[i] = category;
  busy_[i] += std::max(static_cast<float>(share), kLeastBusy);
}

void LaneRaster::add(const Columns& slices, std::size_t i) {
  const double left = double(slices.start[i] - time_.begin) * pixels_per_ps_,
               right = double(slices.end[i] - time_.begin) * pixels_per_ps_, width = double(line_.size());
  if (right < 0 || left >= width) return;
  if (right - left >= kWide) {
    const int l = static_cast<int>(std::max(-2.0, std::floor(left + 0.5))),
              r = static_cast<int>(std::min(width + 2, std::floor(right + 0.5)));
    wide_.push_back({l, r, static_cast<std::uint32_t>(i)});
    return;
  }
  const double from = std::max(0.0, left), to = std::min(width, right);
  const int first = static_cast<int>(from), last = std::max(first, static_cast<int>(std::ceil(to)) - 1);
  const std::uint8_t category = slices.category[i];
  if (first == last) return cover(first, to - from, category);
  cover(first, first + 1 - from, category);
  for (int x = first + 1; x < last; ++x) cover(x, 1, category);
  cover(last, to - last, category);
}

void LaneSum::add(const LaneRaster& raster) {
  for (std::size_t x = 0; x < busy_.size(); ++x) {
    const LaneRaster::Sample s = raster.sample_at(x);
    if (s.busy <= 0) continue;
    busy_[x] += s.busy;
    std::vector<float>& sums = by_category_[s.category];
    if (sums.empty()) {
      sums.resize(busy_.size());
      used_.push_back(s.category);
    }
    sums[x] += s.busy;
  }
}

std::uint8_t LaneSum::most(std::size_t x) const {
  return *std::max_element(used_.begin(), used_.end(), [&](std::uint8_t a, std::uint8_t b) {
    return std::pair{by_category_[a][x], b} < std::pair{by_category_[b][x], a};
  });
}

}  // namespace orrery::gui
