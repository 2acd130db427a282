// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "gui/core/draw.hpp"

namespace orrery::gui {

/// Calls `draw(row, rectangle)` for rows that scroll and can be seen or are under the pinned ones.
template <class Draw>
void each_scrolled(const Scene& scene, const Regions& parts, Draw draw) {
  const auto& rows = scene.layout.rows;
  auto it = std::partition_point(rows.begin(), rows.end(),
                                 [&](const Row& row) { return row.y + row.height <= scene.view.scroll; });
  for (; it != rows.end() && it->y < scene.view.scroll + parts.rows.h; ++it)
    draw(*it, Rect{parts.rows.x, parts.rows.y + it->y - scene.view.scroll, parts.rows.w, it->height});
}

/// The same for pinned rows.
template <class Draw>
void each_pinned(const Scene& scene, const Regions& parts, Draw draw) {
  for (const Row& row : scene.layout.pinned)
    if (const Rect r = rect_of(row, true, parts, scene.view); !r.is_empty()) draw(row, r);
}

/// Pinned ones first.
template <class Draw>
void each_visible(const Scene& scene, const Regions& parts, Draw draw) {
  each_pinned(scene, parts, draw);
  each_scrolled(scene, parts, draw);
}

}  // namespace orrery::gui
