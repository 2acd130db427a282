// SPDX-License-Identifier: Apache-2.0
// Everything around the rows: ruler, minimap, legend, marks and the selected range.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/core/draw.hpp"
#include "gui/core/lane_raster.hpp"

namespace orrery::gui {
namespace {

FontStyle small_style(const View& view) { return {view.px(11), Weight::Regular}; }

void draw_steps(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  const Rect band{parts.ruler.x, parts.ruler.y, parts.ruler.w, parts.ruler.h / 2};
  int drawn = band.x;  // marks of a trace of another program overlap: each starts behind the last one
  for (const Marker& m : scene.document.markers()) {
    if (m.end <= scene.view.time.begin || m.start >= scene.view.time.end) continue;
    const int left = std::max(drawn, static_cast<int>(x_of(parts, scene.view, m.start)));
    const int right = std::min(band.right(), static_cast<int>(x_of(parts, scene.view, m.end)));
    if (right - left < 3) continue;
    drawn = right;
    canvas.fill({left, band.y + 2, right - left - 1, band.h - 3}, look.grid);
    draw_text_centred(canvas, {left + 4, band.y, right - left - 8, band.h}, m.name, look.muted,
                      small_style(scene.view));
  }
}

void draw_ruler(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  const View& view = scene.view;
  canvas.fill({0, parts.ruler.y, parts.ruler.right(), parts.ruler.h}, look.panel);
  draw_text(canvas, {view.px(10), parts.ruler.y, parts.ruler.x - view.px(16), parts.ruler.h},
            fmt::format("{} {}", scene.document.source(), scene.document.name()), look.text,
            {view.px(12), Weight::Bold});
  if (!scene.document.markers().empty()) draw_steps(canvas, scene, parts);
  const Ticks t = ticks(view.time, parts.ruler.w, view.px(110));
  const int y = parts.ruler.y + parts.ruler.h / 2;
  for (std::int64_t at = t.first; at < view.time.end; at += t.step) {
    const int x = static_cast<int>(x_of(parts, view, at));
    if (x < parts.ruler.x) continue;
    canvas.fill({x, y + 2, 1, parts.ruler.bottom() - y - 2}, look.border);
    draw_text(canvas, {x + 4, y, std::min(view.px(104), parts.ruler.right() - x - 4), parts.ruler.h / 2},
              tick_text(at, t.step), look.muted, small_style(view));
  }
  canvas.fill({0, parts.ruler.bottom() - 1, parts.ruler.right(), 1}, look.border);
}

/// What no row covers: below the last one.
void draw_ground(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  const Ticks t = ticks(scene.view.time, parts.ruler.w, scene.view.px(110));
  const int bottom = parts.rows.bottom();
  const int top = std::clamp(parts.rows.y + scene.layout.height - scene.view.scroll, parts.rows.y, bottom);
  canvas.fill({parts.rows.x, top, parts.rows.w, bottom - top}, look.background);
  for (std::int64_t at = t.first; at < scene.view.time.end; at += t.step)
    if (const int x = static_cast<int>(x_of(parts, scene.view, at)); x >= parts.ruler.x)
      canvas.fill({x, top, 1, bottom - top}, look.grid);
}

void draw_legend(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  const View& view = scene.view;
  canvas.fill(parts.legend, look.panel);
  canvas.fill({0, parts.legend.y, parts.legend.w, 1}, look.border);
  const FontStyle style = small_style(view);
  int x = view.px(10);
  const auto word = [&](std::string_view text, Color c) {
    const int width = canvas.font().width(text, style);
    draw_text(canvas, {x, parts.legend.y, std::min(width, parts.legend.right() - x), parts.legend.h}, text, c, style);
    x += width + view.px(14);
  };
  word(fmt::format("colour: {}", word_of(view.colour_by)), look.muted);
  const int box = view.px(10);
  for (const Colouring::Entry& e : scene.colouring.legend) {
    canvas.fill({x, parts.legend.y + (parts.legend.h - box) / 2, box, box}, e.color);
    x += box + view.px(5);
    word(e.name, look.text);
  }
}

void draw_range(Canvas& canvas, const Scene& scene, const Regions& parts) {
  if (!scene.view.range) return;
  const Theme& look = theme(scene.view.theme);
  const double from = x_of(parts, scene.view, scene.view.range->begin),
               to = x_of(parts, scene.view, scene.view.range->end);
  const int left = static_cast<int>(std::clamp<double>(from, parts.ruler.x, parts.ruler.right()));
  const int right = static_cast<int>(std::clamp<double>(to, parts.ruler.x, parts.ruler.right()));
  const int top = parts.ruler.y, bottom = parts.rows.bottom();
  const Color shade = with_alpha(look.text, 34);
  canvas.fill({parts.ruler.x, parts.ruler.bottom(), left - parts.ruler.x, bottom - parts.ruler.bottom()}, shade);
  canvas.fill({right, parts.ruler.bottom(), parts.ruler.right() - right, bottom - parts.ruler.bottom()}, shade);
  canvas.fill({left, top, 1, bottom - top}, look.accent);
  canvas.fill({right, top, 1, bottom - top}, look.accent);
  const std::string text = exact_text(scene.view.range->length());
  const FontStyle style{scene.view.px(11), Weight::Bold};
  const int width = canvas.font().width(text, style) + scene.view.px(12);
  const Rect label{(left + right - width) / 2, top + 1, width, parts.ruler.h / 2};
  canvas.fill(label, look.accent);
  draw_text_centred(canvas, label, text, ink_on(look.accent), style);
}

void draw_marks(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  for (const Mark& m : scene.view.marks) {
    const int x = static_cast<int>(x_of(parts, scene.view, m.at));
    if (x < parts.ruler.x || x >= parts.ruler.right()) continue;
    canvas.fill({x, parts.ruler.y, 1, parts.rows.bottom() - parts.ruler.y}, look.mark);
    const FontStyle style{scene.view.px(11), Weight::Bold};
    const int width = canvas.font().width(m.label, style) + scene.view.px(10);
    const Rect flag{x, parts.ruler.y, width, parts.ruler.h / 2};
    canvas.fill(flag, look.mark);
    draw_text_centred(canvas, flag, m.label, ink_on(look.mark), style);
  }
}

}  // namespace

Regions regions(Rect whole, const View& view, const Layout& layout) {
  const int left = std::min(view.px(190), whole.w / 3), minimap = view.px(34), ruler = view.px(36),
            legend = view.px(22);
  Regions r;
  r.minimap = {left, 0, whole.w - left, minimap};
  r.ruler = {left, minimap, whole.w - left, ruler};
  const int top = minimap + ruler, bottom = std::max(top, whole.h - legend);
  const int pinned = std::min(layout.pinned_height, (bottom - top) / 2);
  r.pinned = {left, top, whole.w - left, pinned};
  r.rows = {left, top + pinned, whole.w - left, bottom - top - pinned};
  r.headers = {0, top, left, bottom - top};
  r.legend = {0, bottom, whole.w, whole.h - bottom};
  return r;
}

std::int64_t time_at(const Regions& parts, const View& view, double x) {
  const double share = (x - parts.rows.x) / std::max(1, parts.rows.w);
  return view.time.begin + static_cast<std::int64_t>(std::llround(share * double(view.time.length())));
}

double x_of(const Regions& parts, const View& view, std::int64_t at) {
  return parts.rows.x +
         double(at - view.time.begin) / double(std::max<std::int64_t>(1, view.time.length())) * parts.rows.w;
}

Ticks ticks(TimeRange time, int pixels, int least_distance) {
  const double wanted = double(time.length()) * least_distance / std::max(1, pixels);
  std::int64_t step = 1;
  for (int i = 0; double(step) < wanted && step < INT64_MAX / 10; ++i) step = i % 3 == 1 ? step / 2 * 5 : step * 2;
  const std::int64_t first = (time.begin >= 0 ? (time.begin + step - 1) / step : time.begin / step) * step;
  return {first, step};
}

void draw_timeline(Canvas& canvas, const Scene& scene) {
  const Theme& look = theme(scene.view.theme);
  const Rect whole = canvas.size();
  const Regions parts = regions(whole, scene.view, scene.layout);
  draw_ground(canvas, scene, parts);
  draw_rows(canvas, scene, parts);
  if (scene.view.show_flows) draw_links(canvas, scene, parts);
  draw_range(canvas, scene, parts);
  draw_row_titles(canvas, scene, parts);
  draw_minimap(canvas, scene, parts);
  draw_ruler(canvas, scene, parts);
  draw_range(
      canvas, scene,
      {.minimap = parts.minimap, .ruler = parts.ruler, .rows = {parts.rows.x, parts.ruler.bottom(), parts.rows.w, 0}});
  draw_marks(canvas, scene, parts);
  draw_legend(canvas, scene, parts);
  if (scene.view.is_stale)
    canvas.hatch({parts.rows.x, parts.ruler.bottom(), parts.rows.w, parts.rows.bottom() - parts.ruler.bottom()},
                 with_alpha(look.muted, 150));
}

}  // namespace orrery::gui
