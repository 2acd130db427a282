// SPDX-License-Identifier: Apache-2.0
#include "gui/core/raster_canvas.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "gui/core/parallel.hpp"

namespace orrery::gui {
namespace {

constexpr int kHatchPeriod = 6;
/// More would wait for memory.
constexpr std::size_t kMostThreads = 4;

/// Draws into an image beside others, all but texts: labels are kept by the font, which is for one thread.
class PartCanvas final : public RasterCanvas {
 public:
  using RasterCanvas::RasterCanvas;
  void text(const Text& t) override { texts_.emplace_back(t, std::string{t.text}); }
  void draw_texts(RasterCanvas& on) const {
    for (const auto& [t, letters] : texts_) on.text({t.box, letters, t.color, t.style});
  }

 private:
  std::vector<std::pair<Text, std::string>> texts_;
};

}  // namespace

void draw_text(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style) {
  if (!box.is_empty() && !text.empty()) canvas.text({box, text, color, style});
}

void draw_text_right(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style) {
  const int free = std::max(0, box.w - canvas.font().width(text, style));
  draw_text(canvas, {box.x + free, box.y, box.w - free, box.h}, text, color, style);
}

void draw_text_centred(Canvas& canvas, Rect box, std::string_view text, Color color, FontStyle style) {
  const int free = std::max(0, box.w - canvas.font().width(text, style)) / 2;
  draw_text(canvas, {box.x + free, box.y, box.w - free, box.h}, text, color, style);
}

void RasterCanvas::fill(Rect r, Color c) {
  r = intersection(r, size());
  if (r.is_empty()) return;
  const std::uint32_t a = alpha(c);
  for (int y = r.y; y < r.bottom(); ++y) {
    Color* line = image_.line(y) + r.x;
    if (a == 255)
      std::fill(line, line + r.w, c);
    else
      for (int x = 0; x < r.w; ++x) line[x] = mix(line[x], c, a + (a >> 7));
  }
}

void RasterCanvas::pixels(Rect r, std::span<const Color> line) {
  const Rect visible = intersection(r, size());
  if (visible.is_empty()) return;
  const Color* from = line.data() + (visible.x - r.x);
  for (int y = visible.y; y < visible.bottom(); ++y) {
    Color* to = image_.line(y) + visible.x;
    for (int x = 0; x < visible.w; ++x) to[x] = from[x] != 0 ? from[x] : to[x];
  }
}

void RasterCanvas::copy(Rect r, const Color* line) {
  r = intersection(r, size());
  for (int y = r.y; y < r.bottom(); ++y)
    std::memcpy(image_.line(y) + r.x, line + r.x, sizeof(Color) * static_cast<std::size_t>(std::max(0, r.w)));
}

void RasterCanvas::row(Rect r, const Backdrop& behind, std::span<const Color> line) {
  const Rect visible = intersection(r, size());
  if (visible.is_empty()) return;
  line_.assign(static_cast<std::size_t>(image_.width), behind.color);
  for (const int x : behind.at)
    if (x >= 0 && x < image_.width) line_[static_cast<std::size_t>(x)] = behind.lines;
  copy({r.x, r.y, r.w, line.empty() ? r.h - 1 : 1}, line_.data());
  if (!line.empty()) {
    for (int x = visible.x; x < visible.right(); ++x) {
      const Color c = line[static_cast<std::size_t>(x - r.x)];
      line_[static_cast<std::size_t>(x)] = c != 0 ? c : line_[static_cast<std::size_t>(x)];
    }
    copy({r.x, r.y + 1, r.w, r.h - 2}, line_.data());
  }
  fill({r.x, r.bottom() - 1, r.w, 1}, behind.lines);
}

void RasterCanvas::bars(Rect r, const Bars& bars) {
  const Rect visible = intersection(r, size());
  if (visible.is_empty()) return;
  tops_.resize(static_cast<std::size_t>(r.w));
  bottoms_.resize(tops_.size());
  int first = visible.bottom(), last = visible.y;
  std::size_t pixels = 0;
  for (std::size_t x = 0; x < tops_.size(); ++x) {
    const float high = std::clamp(bars.high[x], 0.0f, static_cast<float>(r.h));
    const auto whole = static_cast<int>(high);
    tops_[x] = r.bottom() - whole;
    bottoms_[x] = r.bottom() - static_cast<int>(bars.low[x]);
    if (const float rest = high - static_cast<float>(whole); rest > 0 && high > bars.low[x])
      blend(r.x + static_cast<int>(x), tops_[x] - 1, bars.color[x], rest);
    pixels += static_cast<std::size_t>(std::max(0, bottoms_[x] - tops_[x]));
    if (tops_[x] < bottoms_[x]) first = std::min(first, tops_[x]), last = std::max(last, bottoms_[x]);
  }
  if (pixels <= 2 * tops_.size()) {  // marks
    for (int x = visible.x; x < visible.right(); ++x) {
      const auto i = static_cast<std::size_t>(x - r.x);
      for (int y = std::max(visible.y, tops_[i]); y < std::min(visible.bottom(), bottoms_[i]); ++y)
        image_.line(y)[x] = bars.color[i];
    }
    return;
  }
  // Line by line: column by column would touch as many lines of the cache as it has pixels.
  const auto skipped = static_cast<std::size_t>(visible.x - r.x);
  const int *tops = tops_.data() + skipped, *bottoms = bottoms_.data() + skipped;
  const Color* colors = bars.color.data() + skipped;
  for (int y = std::max(visible.y, first); y < std::min(visible.bottom(), last); ++y) {
    Color* to = image_.line(y) + visible.x;
    for (int x = 0; x < visible.w; ++x) to[x] = ((y >= tops[x]) & (y < bottoms[x])) ? colors[x] : to[x];
  }
}

void RasterCanvas::blend(int x, int y, Color c, double coverage) {
  if (coverage <= 0 || !size().contains(x, y)) return;
  Color& to = image_.line(y)[x];
  to = mix(to, c, static_cast<std::uint32_t>(std::min(1.0, coverage) * (alpha(c) + (alpha(c) >> 7))));
}

/// Coverage of a pixel falls from 1 to 0 over the pixel at the edge of the line.
void RasterCanvas::line(double x0, double y0, double x1, double y1, Color c, double width) {
  const double dx = x1 - x0, dy = y1 - y0;
  const bool is_steep = std::abs(dy) > std::abs(dx);
  const double length = is_steep ? std::abs(dy) : std::abs(dx);
  const Rect all = size();
  const double limit = is_steep ? all.h : all.w;
  const double from = is_steep ? y0 : x0, step = is_steep ? (dy < 0 ? -1 : 1) : (dx < 0 ? -1 : 1);
  const double slope = length > 0 ? (is_steep ? dx : dy) / length : 0;
  // Only the part inside of the image along the main direction.
  double first = 0, last = length;
  if (step > 0) {
    first = std::max(first, -from - 1);
    last = std::min(last, limit - from + 1);
  } else {
    first = std::max(first, from - limit - 1);
    last = std::min(last, from + 1);
  }
  for (double i = first; i <= last; i += 1) {
    const int major = static_cast<int>(std::floor(from + step * i));
    const double minor = (is_steep ? x0 : y0) + slope * i, half = width / 2;
    for (int m = static_cast<int>(std::floor(minor - half - 0.5)); m <= static_cast<int>(std::ceil(minor + half + 0.5));
         ++m) {
      const double coverage = half + 0.5 - std::abs(m + 0.5 - minor);
      if (is_steep)
        blend(m, major, c, coverage);
      else
        blend(major, m, c, coverage);
    }
  }
}

void RasterCanvas::frame(Rect r, Color c, int width) {
  fill({r.x, r.y, r.w, width}, c);
  fill({r.x, r.bottom() - width, r.w, width}, c);
  fill({r.x, r.y + width, width, r.h - 2 * width}, c);
  fill({r.right() - width, r.y + width, width, r.h - 2 * width}, c);
}

void RasterCanvas::hatch(Rect r, Color c) {
  const Rect visible = intersection(r, size());
  const std::uint32_t a = alpha(c);
  for (int y = visible.y; y < visible.bottom(); ++y)
    for (int x = visible.x; x < visible.right(); ++x)
      if ((x + y) % kHatchPeriod < 1) image_.line(y)[x] = mix(image_.line(y)[x], c, a + (a >> 7));
}

void RasterCanvas::stamp(const Label& label, int x, int y, Rect r, Color c) {
  const Rect visible = intersection(intersection({x, y, label.width, label.height}, r), size());
  for (int row = visible.y; row < visible.bottom(); ++row) {
    const std::uint8_t* from = label.coverage.data() + (row - y) * label.width + (visible.x - x);
    Color* to = image_.line(row) + visible.x;
    for (int i = 0; i < visible.w; ++i)
      if (from[i] != 0) to[i] = mix(to[i], c, from[i] + (from[i] >> 7u));
  }
}

void RasterCanvas::together(const std::function<void(Canvas&)>& draw) {
  const std::size_t threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  if (threads == 1) return draw(*this);
  std::vector<PartCanvas> parts(threads, PartCanvas{image_, font_});
  in_parallel(threads, [&](std::size_t i) { draw(parts[i]); });
  for (const PartCanvas& p : parts) p.draw_texts(*this);
}

void RasterCanvas::text(const Text& t) {
  const Label& label = font_.label(t.text, t.style);
  const int y = t.box.y + (t.box.h - label.height) / 2;
  if (label.width <= t.box.w) return stamp(label, t.box.x, y, t.box, t.color);
  const Label& more = font_.label("…", t.style);
  const std::size_t letters = label.letters_before(more, t.box.w);
  if (letters == 0) return;
  const int cut = label.end_of(letters);
  stamp(label, t.box.x, y, {t.box.x, t.box.y, cut, t.box.h}, t.color);
  stamp(more, t.box.x + cut, y, t.box, t.color);
}

}  // namespace orrery::gui
