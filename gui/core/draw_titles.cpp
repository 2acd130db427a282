// SPDX-License-Identifier: Apache-2.0
// What stands in front of the rows.
#include "gui/core/visible_rows.hpp"

namespace orrery::gui {

void draw_row_titles(Canvas& canvas, const Scene& scene, const Regions& parts) {
  const Theme& look = theme(scene.view.theme);
  const View& view = scene.view;
  canvas.fill(parts.headers, look.background);
  const auto draw = [&](const Row& row, Rect r) {
    const bool is_title = row.kind == RowKind::Group || row.kind == RowKind::Owner;
    const Rect box{0, r.y, parts.headers.w, r.h};
    canvas.fill(box, is_title ? look.panel : look.background);
    canvas.fill({0, r.bottom() - 1, parts.headers.w, 1}, look.grid);
    int x = view.px(10 + 12 * row.depth);
    if (is_title) {
      draw_text(canvas, {x, r.y, view.px(14), r.h}, row.is_folded ? "▸" : "▾", look.muted, {view.px(11)});
      x += view.px(14);
    }
    const bool is_other = row.kind == RowKind::OtherLane || row.kind == RowKind::Errors;
    const int height = row.kind == RowKind::Counter ? r.h / 2 : r.h;  // below stands how much it is at most
    const Rect text{x, r.y, parts.headers.w - x - view.px(8), height};
    draw_text(canvas, text, title_of(row, scene.layout, scene.document, scene.view), is_other ? look.muted : look.text,
              {view.px(12), is_title || row.kind == RowKind::CriticalPath ? Weight::Bold : Weight::Regular});
    if (row.kind == RowKind::OtherLane && scene.other != nullptr)
      draw_text_right(canvas, text, side_name(scene.document, scene.other->document, Side::Other), look.muted,
                      {view.px(10)});
    if (row.kind == RowKind::Lane && scene.other != nullptr && view.compare_mode != CompareMode::Difference)
      draw_text_right(canvas, text, side_name(scene.document, scene.other->document, filled_side(scene)), look.muted,
                      {view.px(10)});
    if (row.kind == RowKind::Counter) {
      const Counter& c = scene.document.counters()[row.index];
      draw_text_right(canvas, {text.x, r.y + r.h / 2, text.w, r.h / 2}, "max " + value_text(c.most, c.unit), look.muted,
                      {view.px(10)});
    }
  };
  each_visible(scene, parts, [&](const Row& row, Rect r) {
    if (r.bottom() > parts.rows.y) draw(row, r);
  });
  for (const Row& row : scene.layout.pinned)
    if (const Rect r = rect_of(row, true, parts, view); !r.is_empty()) draw(row, r);
  canvas.fill({parts.headers.right() - 1, parts.headers.y, 1, parts.headers.h}, look.border);
}

}  // namespace orrery::gui
