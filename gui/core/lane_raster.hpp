// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <vector>

#include "gui/core/colouring.hpp"
#include "gui/core/document.hpp"
#include "gui/core/image.hpp"

namespace orrery::gui {

/// Colours by category and by how busy a pixel is, in sixteenths: brightness says busy, so idle time is visible at any
/// zoom.
class ColorTable {
 public:
  static constexpr int kLevels = 16;
  ColorTable(const Colouring& colouring, Color background);
  Color at(std::uint8_t category, float busy) const {
    return table_[category][static_cast<std::size_t>(std::min(busy, 1.0f) * kLevels + 0.5f)];
  }
  Color full(std::uint8_t category) const { return table_[category][kLevels]; }

 private:
  std::array<std::array<Color, kLevels + 1>, 256> table_{};
};

/// A slice that is wide enough to be drawn on its own.
struct WideSlice {
  int left = 0, right = 0;  // pixels
  std::uint32_t slice = 0;
};

/// One line of pixels of a lane. Costs time in proportion to pixels, not slices.
class LaneRaster {
 public:
  /// From which width on slices are drawn on their own, in pixels.
  static constexpr double kWide = 3;

  explicit LaneRaster(int width)
      : line_(static_cast<std::size_t>(width)), busy_(line_.size()), category_(line_.size()) {}

  /// The line for `time`; 0 where nothing ran. It may be drawn into until the next one.
  std::span<Color> draw(const Track& track, TimeRange time, const ColorTable& colors);
  /// What the last line shows at a pixel.
  struct Sample {
    float busy = 0;
    std::uint8_t category = 0;
  };
  Sample sample_at(std::size_t x) const { return {std::min(1.0f, busy_[x]), category_[x]}; }
  /// Slices of the last line that are at least kWide, from left to right.
  const std::vector<WideSlice>& wide() const { return wide_; }

 private:
  void sample(const Track& track, const Pyramid::Level& level);
  void draw_exactly(const Columns& slices);
  void draw_wide(const Columns& slices, const ColorTable& colors);
  void add(const Columns& slices, std::size_t i);
  std::size_t skip(const Columns& slices, std::size_t i);
  void cover(int x, double share, std::uint8_t category);

  TimeRange time_;
  double per_pixel_ = 1, pixels_per_ps_ = 1;
  std::vector<Color> line_;
  std::vector<float> busy_;
  std::vector<std::uint8_t> category_;
  std::vector<WideSlice> wide_;
};

/// Lanes added up by pixel and category.
class LaneSum {
 public:
  explicit LaneSum(int width) : busy_(static_cast<std::size_t>(width)) {}
  /// The last line of a raster of the same width.
  void add(const LaneRaster& raster);
  std::size_t width() const { return busy_.size(); }
  float busy(std::size_t x) const { return busy_[x]; }
  /// The category with the most time.
  std::uint8_t most(std::size_t x) const;

 private:
  std::vector<float> busy_;
  std::array<std::vector<float>, 256> by_category_;
  std::vector<std::uint8_t> used_;
};

}  // namespace orrery::gui
