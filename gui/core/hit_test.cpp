// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "gui/core/draw.hpp"

namespace orrery::gui {
namespace {

/// A slice this many pixels beside the pointer is still meant: thin ones can be hit.
constexpr double kNear = 3;

const Row* row_at(const std::vector<Row>& rows, int y) {
  const auto it = std::partition_point(rows.begin(), rows.end(), [&](const Row& r) { return r.y + r.height <= y; });
  return it != rows.end() && it->y <= y ? &*it : nullptr;
}

EventIndex slice_at(const Track& track, std::int64_t at, std::int64_t near) {
  const Columns& s = track.slices;
  const std::size_t i = s.first_after(at);
  if (i < s.size() && s.start[i] <= at) return s.event[i];
  const bool after = i < s.size() && s.start[i] - at <= near;
  const bool before = i > 0 && at - s.end[i - 1] <= near;
  if (after && (!before || s.start[i] - at < at - s.end[i - 1])) return s.event[i];
  return before ? s.event[i - 1] : kNoEvent;
}

/// The slice of the second timeline in a row.
EventIndex other_at(const Companion& other, const Row& row, Rect r, int y, std::int64_t at, std::int64_t near) {
  const std::vector<std::uint32_t>& lanes = other.lanes_of[row.index];
  for (std::size_t i = 0; i < lanes.size(); ++i)
    if (const Rect lane = part_of_row(r, i, lanes.size()); y >= lane.y && y < lane.bottom())
      return slice_at(other.document.tracks()[lanes[i]], at, near);
  return kNoEvent;
}

}  // namespace

Hit hit_test(const Scene& scene, Rect whole, int x, int y) {
  const Regions parts = regions(whole, scene.view, scene.layout);
  Hit hit;
  const bool is_pinned = y >= parts.pinned.y && y < parts.pinned.bottom();
  if (is_pinned)
    hit.row = row_at(scene.layout.pinned, y - parts.pinned.y);
  else if (y >= parts.rows.y && y < parts.rows.bottom())
    hit.row = row_at(scene.layout.rows, y - parts.rows.y + scene.view.scroll);
  hit.is_header = hit.row != nullptr && x < parts.rows.x;
  if (hit.row == nullptr || hit.is_header) return hit;
  const std::int64_t at = time_at(parts, scene.view, x);
  const auto near = static_cast<std::int64_t>(kNear * double(scene.view.time.length()) / std::max(1, parts.rows.w));
  EventIndex e = kNoEvent;
  const bool is_lane = hit.row->kind == RowKind::Lane;
  Side side =
      hit.row->kind == RowKind::OtherLane || (is_lane && filled_side(scene) == Side::Other) ? Side::Other : Side::Main;
  if (side == Side::Other) {
    e = other_at(*scene.other, *hit.row, rect_of(*hit.row, is_pinned, parts, scene.view), y, at, near);
  } else if (is_lane || hit.row->kind == RowKind::Errors) {
    e = slice_at(scene.document.tracks()[hit.row->index], at, near);
  } else if (hit.row->kind == RowKind::CriticalPath && scene.insight != nullptr) {
    for (const PathSegment& s : scene.insight->path.segments)
      if (!s.is_gap && s.start_ps <= at && at < s.end_ps) e = s.span;
  }
  if (e != kNoEvent) hit.slice = Selected{side, e};
  return hit;
}

}  // namespace orrery::gui
