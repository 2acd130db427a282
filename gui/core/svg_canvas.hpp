// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>

#include "gui/core/canvas.hpp"

namespace orrery::gui {

/// Writes the same picture as SVG: lines of pixels become one rectangle per run of a colour, texts stay texts.
class SvgCanvas final : public Canvas {
 public:
  SvgCanvas(int width, int height, Font& font) : width_{width}, height_{height}, font_{font} {}

  /// The whole file.
  std::string document() const;

  Rect size() const override { return {0, 0, width_, height_}; }
  void fill(Rect r, Color c) override;
  void pixels(Rect r, std::span<const Color> line) override;
  void row(Rect r, const Backdrop& behind, std::span<const Color> line) override;
  void bars(Rect r, const Bars& bars) override;
  void line(double x0, double y0, double x1, double y1, Color c, double width) override;
  void frame(Rect r, Color c, int width) override;
  void hatch(Rect r, Color c) override;
  void text(const Text& t) override;
  Font& font() override { return font_; }

 private:
  int width_, height_;
  Font& font_;
  std::string body_;
  std::set<Color> hatches_;
};

}  // namespace orrery::gui
