// SPDX-License-Identifier: Apache-2.0
#include "gui/core/svg_canvas.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::gui {
namespace {

std::string hex(Color c) { return fmt::format("#{:06x}", c & 0xffffffu); }

/// `fill="#…"`, with the opacity where there is one.
std::string paint(std::string_view attribute, Color c) {
  std::string out = fmt::format("{}=\"{}\"", attribute, hex(c));
  if (alpha(c) < 255) out += fmt::format(" {}-opacity=\"{:.3f}\"", attribute, double(alpha(c)) / 255);
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;  // XML has no control characters
  }
  return out;
}

}  // namespace

std::string SvgCanvas::document() const {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"DejaVu Sans, sans-serif\" shape-rendering=\"crispEdges\">\n",
      width_, height_);
  for (const Color c : hatches_)
    out += fmt::format(
        "<pattern id=\"h{:08x}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M6 0L0 6\" {}/>"
        "</pattern>\n",
        c, paint("stroke", c));
  return out + body_ + "</svg>\n";
}

void SvgCanvas::fill(Rect r, Color c) {
  r = intersection(r, size());
  if (r.is_empty()) return;
  body_ +=
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" {}/>\n", r.x, r.y, r.w, r.h, paint("fill", c));
}

void SvgCanvas::pixels(Rect r, std::span<const Color> line) {
  for (int x = 0; x < r.w;) {
    const Color c = line[static_cast<std::size_t>(x)];
    int end = x + 1;
    while (end < r.w && line[static_cast<std::size_t>(end)] == c) ++end;
    if (c != 0) fill({r.x + x, r.y, end - x, r.h}, c);
    x = end;
  }
}

void SvgCanvas::row(Rect r, const Backdrop& behind, std::span<const Color> line) {
  fill(r, behind.color);
  for (const int x : behind.at) fill(intersection({x, r.y, 1, r.h}, r), behind.lines);
  if (!line.empty()) pixels({r.x, r.y + 1, r.w, r.h - 2}, line);
  fill({r.x, r.bottom() - 1, r.w, 1}, behind.lines);
}

void SvgCanvas::bars(Rect r, const Bars& bars) {
  // A shape for each run of one colour: along the tops, and back along the bottoms.
  const auto is_bar = [&](std::size_t x) { return bars.high[x] > bars.low[x]; };
  const auto y = [&](float above) { return static_cast<float>(r.bottom()) - std::min(above, static_cast<float>(r.h)); };
  const auto n = static_cast<std::size_t>(r.w);
  for (std::size_t x = 0, end = 0; x < n; x = std::max(end, x + 1)) {
    if (!is_bar(x)) continue;
    for (end = x + 1; end < n && is_bar(end) && bars.color[end] == bars.color[x];) ++end;
    std::string path = fmt::format("M{} {:.2f}", r.x + static_cast<int>(x), y(bars.high[x]));
    for (std::size_t i = x + 1; i < end; ++i)
      if (bars.high[i] != bars.high[i - 1])
        path += fmt::format("H{}V{:.2f}", r.x + static_cast<int>(i), y(bars.high[i]));
    path += fmt::format("H{}V{:.2f}", r.x + static_cast<int>(end), y(bars.low[end - 1]));
    for (std::size_t i = end - 1; i > x; --i)
      if (bars.low[i] != bars.low[i - 1])
        path += fmt::format("H{}V{:.2f}", r.x + static_cast<int>(i), y(bars.low[i - 1]));
    body_ += fmt::format("<path d=\"{}H{}Z\" {}/>\n", path, r.x + static_cast<int>(x), paint("fill", bars.color[x]));
  }
}

void SvgCanvas::line(double x0, double y0, double x1, double y1, Color c, double width) {
  body_ += fmt::format(
      "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" {} stroke-width=\"{}\" shape-rendering=\"auto\" fill=\"none\"/>\n", x0,
      y0, x1, y1, paint("stroke", c), width);
}

void SvgCanvas::frame(Rect r, Color c, int width) {
  const double half = width / 2.0;
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" {} stroke-width=\"{}\"/>\n",
                       r.x + half, r.y + half, r.w - width, r.h - width, paint("stroke", c), width);
}

void SvgCanvas::hatch(Rect r, Color c) {
  r = intersection(r, size());
  if (r.is_empty()) return;
  hatches_.insert(c);
  body_ += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"url(#h{:08x})\"/>\n", r.x, r.y, r.w,
                       r.h, c);
}

void SvgCanvas::text(const Text& t) {
  const std::string shown = font_.elided(t.text, t.style, t.box.w);
  if (shown.empty()) return;
  const int y = t.box.y + (t.box.h - font_.height(t.style)) / 2 + font_.ascent(t.style);
  body_ += fmt::format("<text x=\"{}\" y=\"{}\" font-size=\"{}\"{} {}>{}</text>\n", t.box.x, y, t.style.pixels,
                       t.style.weight == Weight::Bold ? " font-weight=\"bold\"" : "", paint("fill", t.color),
                       escaped(shown));
}

}  // namespace orrery::gui
