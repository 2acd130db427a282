// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "gui/core/canvas.hpp"

namespace orrery::gui {

/// Draws into an image. The image and the font outlive the canvas.
class RasterCanvas : public Canvas {
 public:
  RasterCanvas(Image& image, Font& font) : image_{image}, font_{font} {}

  Rect size() const override { return {0, 0, image_.width, image_.height}; }
  void fill(Rect r, Color c) override;
  void pixels(Rect r, std::span<const Color> line) override;
  void row(Rect r, const Backdrop& behind, std::span<const Color> line) override;
  void bars(Rect r, const Bars& bars) override;
  void line(double x0, double y0, double x1, double y1, Color c, double width) override;
  void frame(Rect r, Color c, int width) override;
  void hatch(Rect r, Color c) override;
  void text(const Text& t) override;
  Font& font() override { return font_; }
  void together(const std::function<void(Canvas&)>& draw) override;

 private:
  void blend(int x, int y, Color c, double coverage);
  /// One line of pixels over the height of a rectangle.
  void copy(Rect r, const Color* line);
  /// The part of a label that lies in `r`, of which (x, y) is the top left corner of the label.
  void stamp(const Label& label, int x, int y, Rect r, Color c);

  Image& image_;
  Font& font_;
  std::vector<Color> line_;
  std::vector<int> tops_, bottoms_;
};

}  // namespace orrery::gui
