// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gui/core/font.hpp"
#include "gui/core/image.hpp"

namespace orrery::gui {

/// A text in the middle of the height of `box`, with "…" where it does not fit.
struct Text {
  Rect box;
  std::string_view text;
  Color color = 0;
  FontStyle style;
};

/// What lies behind a row: upright lines over a plain colour, and a line at the bottom.
struct Backdrop {
  Color color = 0, lines = 0;
  std::vector<int> at;  // pixels of the picture
};

/// A bar per pixel column, each from so many pixels above the bottom to so many; none where `high` is not above `low`.
struct Bars {
  std::vector<float> low, high;  // low ones are whole
  std::vector<Color> color;
  Bars(int width, Color c) : low(std::size_t(width)), high(low.size()), color(low.size(), c) {}
};

/// Where pictures are drawn: pixels or SVG. One list of calls makes both.
class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual Rect size() const = 0;
  /// Colours may be translucent here and for lines.
  virtual void fill(Rect r, Color c) = 0;
  /// One line of opaque pixels, repeated over the height: `r.w` of them. 0 leaves a pixel as it is.
  virtual void pixels(Rect r, std::span<const Color> line) = 0;
  /// A row: what lies behind it, and a line of pixels over all but the first and the last of its height.
  virtual void row(Rect r, const Backdrop& behind, std::span<const Color> line) = 0;
  /// Opaque bars that stand over `r`, one per pixel of its width.
  virtual void bars(Rect r, const Bars& bars) = 0;
  virtual void line(double x0, double y0, double x1, double y1, Color c, double width = 1) = 0;
  virtual void frame(Rect r, Color c, int width = 1) = 0;
  /// Diagonal lines: what is stale, unmatched or unknown.
  virtual void hatch(Rect r, Color c) = 0;
  virtual void text(const Text& t) = 0;
  virtual Font& font() = 0;
  /// Calls `draw` at least once, maybe on several threads at a time, each with a canvas of its own onto this picture.
  /// The calls share out among themselves what has no pixel in common. Texts come on top of all else that they draw,
  /// and their fonts must not be asked for widths.
  virtual void together(const std::function<void(Canvas&)>& draw) { draw(*this); }
};

/// Draws text with "…" where it does not fit, in the middle of the height of `box`.
void draw_text(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style);
/// The same, at the right edge.
void draw_text_right(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style);
void draw_text_centred(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style);

}  // namespace orrery::gui
