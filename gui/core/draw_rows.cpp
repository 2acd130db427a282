// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "gui/core/draw.hpp"
#include "gui/core/lane_raster.hpp"
#include "gui/core/visible_rows.hpp"

namespace orrery::gui {
namespace {

/// The most pixels of lanes that the rows of folded groups of a picture look at.
constexpr std::size_t kLookUps = 600'000;
/// Of the colours of errors, on each side of zero.
constexpr int kErrorSteps = 64;

/// Lanes that lie under folded titles which can be seen.
std::size_t num_summarised(const Scene& scene, const Regions& parts) {
  std::size_t n = 0;
  for (const Row& row : scene.layout.rows) {
    if (!row.is_folded || row.y + row.height <= scene.view.scroll || row.y >= scene.view.scroll + parts.rows.h)
      continue;
    n += row.kind == RowKind::Group ? scene.layout.groups[row.index].owners.size() : 1;
  }
  return n;
}

/// Draws rows one after another with the buffers that they share.
class RowPainter {
 public:
  RowPainter(Canvas& canvas, const Scene& scene, const Regions& parts)
      : summarised_{num_summarised(scene, parts)},
        canvas_{canvas},
        scene_{scene},
        view_{scene.view},
        look_{theme(scene.view.theme)},
        parts_{parts},
        raster_{parts.rows.w},
        colors_{scene.colouring, look_.row},
        other_colors_{scene.other != nullptr ? scene.other->colouring : scene.colouring, look_.row},
        bars_{parts.rows.w, 0},
        peaks_{parts.rows.w, 0},
        backdrop_{look_.row, look_.grid, {}} {
    const Ticks t = ticks(view_.time, parts.ruler.w, view_.px(110));
    for (std::int64_t at = t.first; at < view_.time.end; at += t.step)
      if (const int x = static_cast<int>(x_of(parts, view_, at)); x >= parts.rows.x) backdrop_.at.push_back(x);
    for (int i = -kErrorSteps; i <= kErrorSteps; ++i)
      error_colors_[static_cast<std::size_t>(i + kErrorSteps)] = error_color(look_, kErrorRange * i / kErrorSteps);
  }

  void draw(const Row& row, Rect r) {
    switch (row.kind) {
      case RowKind::Lane:
        return draw_lane(row, r);
      case RowKind::OtherLane:
        return draw_other(row, r);
      case RowKind::Errors:
        return draw_errors(row, r);
      case RowKind::Counter:
        return draw_counter(scene_.document.counters()[row.index], r);
      case RowKind::CriticalPath:
        return draw_critical_path(r);
      case RowKind::Group:
        canvas_.fill(r, look_.panel);
        if (row.is_folded) draw_summary(scene_.layout.groups[row.index].owners, r);
        return;
      case RowKind::Owner:
        canvas_.fill(r, look_.panel);
        if (row.is_folded) draw_summary({&row.index, 1}, r);
        return;
    }
  }

 private:
  Rect inner(Rect r) const { return {r.x, r.y + 1, r.w, r.h - 2}; }

  /// An empty row.
  void clear(Rect r) { canvas_.row(r, backdrop_, {}); }

  void draw_lane(const Row& row, Rect r) {
    // Only differences have a colour there; what has no partner is hatched.
    if (scene_.other != nullptr && view_.compare_mode == CompareMode::Difference) return draw_errors(row, r);
    const Side filled = filled_side(scene_);
    if (filled == Side::Other)
      draw_other(row, r);
    else
      draw_slices(scene_.document.tracks()[row.index], scene_.document.events(), colors_, r, Side::Main);
    if (scene_.other != nullptr && view_.compare_mode == CompareMode::Overlay) draw_outlines(row, r, filled);
  }

  void draw_other(const Row& row, Rect r) {
    if (scene_.other == nullptr) return;
    const std::vector<std::uint32_t>& lanes = scene_.other->lanes_of[row.index];
    if (lanes.empty()) {
      clear(r);
      return canvas_.hatch(inner(r), with_alpha(look_.muted, 110));
    }
    const Document& other = scene_.other->document;
    for (std::size_t i = 0; i < lanes.size(); ++i)
      draw_slices(other.tracks()[lanes[i]], other.events(), other_colors_, part_of_row(r, i, lanes.size()),
                  Side::Other);
  }

  void draw_slices(const Track& track, const EventSource& events, const ColorTable& colors, Rect r, Side side) {
    const std::span<Color> line = raster_.draw(track, view_.time, colors);
    if (side == Side::Main && scene_.found != nullptr) mark_found(track, line);
    canvas_.row(r, backdrop_, line);
    const FontStyle style{view_.px(11), Weight::Regular};
    for (const WideSlice& w : raster_.wide()) {
      const EventIndex e = track.slices.event[w.slice];
      const Color c = colors.full(track.slices.category[w.slice]);
      const int left = std::max(w.left, 0), right = std::min(w.right, r.w);
      if (r.h >= view_.px(14) && right - left >= view_.px(26))
        draw_text(canvas_, {r.x + left + view_.px(4), r.y, right - left - view_.px(6), r.h}, events.name(e), ink_on(c),
                  style);
      if (view_.selected == Selected{side, e} || is_partner_of_selected(side, e))
        canvas_.frame({r.x + left, r.y, right - left, r.h}, look_.selection, view_.px(2));
    }
    draw_thin_selection(track, r, side);
  }

  bool is_partner_of_selected(Side side, EventIndex e) const {
    if (scene_.other == nullptr || !view_.selected || view_.selected->side == side) return false;
    const auto& partner =
        side == Side::Main ? scene_.other->matching.partner_of_main : scene_.other->matching.partner_of_other;
    return e < partner.size() && partner[e] == view_.selected->event;
  }

  /// A selected slice that is too thin for a frame gets a line.
  void draw_thin_selection(const Track& track, Rect r, Side side) {
    if (!view_.selected || view_.selected->side != side) return;
    const Document& document = side == Side::Main ? scene_.document : scene_.other->document;
    const EventIndex e = view_.selected->event;
    if (e >= document.events().size() || &document.tracks()[document.place(e).track] != &track) return;
    const double x = x_of(parts_, view_, document.start(e)), end = x_of(parts_, view_, document.end(e));
    if (end - x < LaneRaster::kWide && x >= r.x && x < r.right())
      canvas_.fill({static_cast<int>(x) - 1, r.y, view_.px(3), r.h}, look_.selection);
  }

  /// A mark where a slice that was found begins.
  void mark_found(const Track& track, std::span<Color> line) {
    const auto index = static_cast<std::size_t>(&track - scene_.document.tracks().data());
    const int width = static_cast<int>(line.size()), mark = view_.px(2);
    const auto put = [&](int x) {
      for (int i = std::max(x, 0); i < std::min(x + mark, width); ++i) line[static_cast<std::size_t>(i)] = look_.mark;
    };
    const double per_pixel = double(view_.time.length()) / width;
    const auto level = scene_.found->begins[index].level(per_pixel);
    each_pixel(level, view_.time, width, [&](int x, const UnderPixel<std::uint8_t>& under) {
      if (*under.first != 0) put(x);
    });
    if (!level.cells.empty()) return;
    const std::vector<std::uint32_t>& slices = scene_.found->of_track[index];
    const std::vector<std::int64_t>& start = track.slices.start;
    auto it = std::partition_point(slices.begin(), slices.end(),
                                   [&](std::uint32_t i) { return start[i] < view_.time.begin; });
    for (; it != slices.end() && start[*it] <= view_.time.end; ++it)
      put(static_cast<int>(double(start[*it] - view_.time.begin) / per_pixel));
  }

  /// Frames of the slices of the timeline that does not fill the row.
  void draw_outlines(const Row& row, Rect r, Side filled) {
    const auto frames = [&](const Track& track) {
      raster_.draw(track, view_.time, colors_);
      for (const WideSlice& w : raster_.wide()) canvas_.frame({r.x + w.left, r.y, w.right - w.left, r.h}, look_.text);
    };
    if (filled == Side::Other) return frames(scene_.document.tracks()[row.index]);
    for (const std::uint32_t lane : scene_.other->lanes_of[row.index]) frames(scene_.other->document.tracks()[lane]);
  }

  /// The mean error as a bar above (longer) or below (shorter) the middle; a tick where some op is further off; hatched
  /// where ops have no partner.
  void draw_errors(const Row& row, Rect r) {
    canvas_.fill(r, look_.row);
    const int middle = r.y + r.h / 2;
    canvas_.fill({r.x, middle, r.w, 1}, look_.grid);
    errors_.assign(static_cast<std::size_t>(r.w), {});
    const double per_pixel = double(view_.time.length()) / r.w;
    const ErrorBuckets::Level level = scene_.other->strips[row.index].level(per_pixel);
    each_pixel(level, view_.time, r.w, [&](int x, const UnderPixel<ErrorCell>& under) {
      under.each([&](const ErrorCell& c, std::uint32_t) { errors_[static_cast<std::size_t>(x)] += c; });
    });
    if (level.cells.empty()) add_errors(scene_.document.tracks()[row.index].slices, per_pixel);
    std::fill(bars_.high.begin(), bars_.high.end(), 0.0f);
    std::fill(bars_.low.begin(), bars_.low.end(), 0.0f);
    peaks_.high = bars_.high;
    peaks_.low = bars_.low;
    const ErrorScale scale{float(r.bottom() - middle), float(std::max(1, r.h / 2 - 1))};
    for (std::size_t x = 0; x < errors_.size(); ++x)
      if (errors_[x].time > 0 && errors_[x].unmatched <= errors_[x].time) set_error(x, scale);
    canvas_.bars(r, bars_);
    canvas_.bars(r, peaks_);
    hatch_unmatched(r);
  }

  /// Slices themselves, where a pixel is narrower than buckets are.
  void add_errors(const Columns& slices, double per_pixel) {
    const int width = static_cast<int>(errors_.size());
    const EventErrors& errors = scene_.other->shown().values;
    for (std::size_t i = slices.first_after(view_.time.begin); i < slices.size() && slices.start[i] < view_.time.end;
         ++i) {
      const double left = double(slices.start[i] - view_.time.begin) / per_pixel,
                   right = double(slices.end[i] - view_.time.begin) / per_pixel;
      const float error = errors[slices.event[i]];
      const int last = std::min(width, std::max(static_cast<int>(std::ceil(right)), static_cast<int>(left) + 1));
      for (int x = std::max(0, static_cast<int>(left)); x < last; ++x)
        errors_[static_cast<std::size_t>(x)] += ErrorCell::of(
            static_cast<std::uint32_t>(i), error, std::max(1e-6, std::min(right, x + 1.0) - std::max(left, double(x))));
    }
  }

  /// The middle of a strip of errors above its bottom, and how high a bar can be.
  struct ErrorScale {
    float middle = 0, half = 1;
  };
  void set_error(std::size_t x, ErrorScale scale) {
    const double mean = double(errors_[x].sum) / double(errors_[x].time), worst = errors_[x].worst;
    const auto pixels = [&](double error) {
      const auto p = static_cast<float>(error / kErrorRange) * scale.half;
      return std::clamp(static_cast<float>(static_cast<int>(p + std::copysign(0.5f, p))), -scale.half, scale.half);
    };
    const auto from_to = [&](Bars& bars, float from, float to, Color c) {
      bars.low[x] = scale.middle + std::min(from, to) - (from + to < 0 ? 1.0f : 0.0f);
      bars.high[x] = scale.middle + std::max(from, to) - (from + to < 0 ? 1.0f : 0.0f);
      bars.color[x] = c;
    };
    const float bar = pixels(mean), tick = pixels(worst);
    if (bar != 0) from_to(bars_, 0, bar, color_of_error(mean));
    if (std::abs(mean) > kErrorRange)  // over the range: its end is marked
      from_to(peaks_, bar - std::copysign(2.0f, bar), bar, look_.text);
    else if (std::abs(tick) > std::abs(bar) || tick * bar < 0)
      from_to(peaks_, tick - std::copysign(1.0f, tick), tick, color_of_error(worst));
  }

  Color color_of_error(double error) const {
    const double share = std::clamp(error / kErrorRange, -1.0, 1.0);
    return error_colors_[static_cast<std::size_t>((share + 1) * kErrorSteps + 0.5)];
  }

  void hatch_unmatched(Rect r) {
    const auto is_unmatched = [&](std::size_t x) { return errors_[x].unmatched > errors_[x].time; };
    for (std::size_t x = 0, end = 0; x < errors_.size(); x = end) {
      for (end = x + 1; end < errors_.size() && is_unmatched(end) == is_unmatched(x);) ++end;
      if (is_unmatched(x))
        canvas_.hatch({r.x + static_cast<int>(x), r.y + 1, static_cast<int>(end - x), r.h - 2}, look_.muted);
    }
  }

  /// The mean of each pixel's time, and paler the most.
  void draw_counter(const Counter& counter, Rect r) {
    clear(r);
    if (counter.at.empty() || counter.most <= 0) return;
    const Rect area{r.x, r.y + 3, r.w, r.h - 4};
    counter.sample(view_.time, bars_.high, peaks_.high);
    // What is behind the end of the run is not known.
    const auto known = std::min(double(r.w), std::ceil(x_of(parts_, view_, scene_.document.end()) - r.x));
    const auto scale = static_cast<float>(area.h / counter.most);
    const Color c = counter.unit == "B" ? look_.accent : counter.unit == "B/s" ? category_color(9) : category_color(3);
    const Color pale = mix(look_.row, c, 60);
    for (Bars* bars : {&peaks_, &bars_}) {
      std::fill(bars->low.begin(), bars->low.end(), 0.0f);
      std::fill(bars->color.begin(), bars->color.end(), bars == &peaks_ ? pale : mix(pale, c, 130));
      for (std::size_t x = 0; x < bars->high.size(); ++x) bars->high[x] = double(x) < known ? bars->high[x] * scale : 0;
    }
    canvas_.bars(area, peaks_);
    canvas_.bars(area, bars_);
  }

  void draw_critical_path(Rect r) {
    clear(r);
    if (scene_.insight == nullptr) return;
    const double per_pixel = double(view_.time.length()) / r.w;
    int drawn = -1;
    std::vector<Color> line(static_cast<std::size_t>(r.w));
    const auto& segments = scene_.insight->path.segments;
    auto it = std::lower_bound(segments.begin(), segments.end(), view_.time.begin,
                               [](const PathSegment& s, std::int64_t t) { return s.end_ps < t; });
    std::vector<std::pair<SpanIndex, Rect>> labels;
    for (; it != segments.end() && it->start_ps < view_.time.end; ++it) {
      const int left = std::max(drawn, static_cast<int>(double(it->start_ps - view_.time.begin) / per_pixel));
      const int right = std::min(r.w, static_cast<int>(double(it->end_ps - view_.time.begin) / per_pixel));
      if (right <= left) {
        // On to the first that reaches the next pixel.
        const auto edge = view_.time.begin + static_cast<std::int64_t>((left + 1) * per_pixel);
        const auto next =
            std::partition_point(it, segments.end() - 1, [&](const PathSegment& s) { return s.end_ps < edge; });
        it = std::max(it, next - 1);
        continue;
      }
      drawn = right;
      const Rect box{r.x + std::max(left, 0), r.y + 2, right - std::max(left, 0), r.h - 4};
      if (it->is_gap || it->span == kNoSpan) {
        canvas_.hatch(box, look_.muted);
        continue;
      }
      const Color c = color_of(it->span);
      std::fill_n(line.begin() + (box.x - r.x), box.w, c);
      if (box.w >= LaneRaster::kWide) line[static_cast<std::size_t>(box.x - r.x)] = mix(c, rgb(0, 0, 0), 90);
      if (box.w >= view_.px(26)) labels.emplace_back(it->span, box);
    }
    canvas_.pixels({r.x, r.y + 2, r.w, r.h - 4}, line);
    canvas_.fill({r.x, r.bottom() - 2, r.w, 2}, with_alpha(look_.critical, 200));
    for (const auto& [span, box] : labels)
      draw_text(canvas_, {box.x + view_.px(4), r.y, box.w - view_.px(6), r.h}, scene_.document.events().name(span),
                ink_on(color_of(span)), {view_.px(11), Weight::Regular});
  }

  /// Of a slice that is drawn on its own.
  Color color_of(EventIndex e) const {
    const Place place = scene_.document.place(e);
    return colors_.full(scene_.document.tracks()[place.track].slices.category[place.slice]);
  }

  /// The mean of the first lanes of some owners. Where there are very many, columns are drawn in groups.
  void draw_summary(std::span<const std::uint32_t> owners, Rect r) {
    const Rect middle{r.x, r.y + r.h / 4, r.w, r.h / 2};
    if (owners.size() == 1 && summarised_ * static_cast<std::size_t>(r.w) <= kLookUps) {
      const Owner& owner = scene_.document.owners()[owners.front()];
      if (owner.tracks.empty()) return;
      return canvas_.pixels(middle, raster_.draw(scene_.document.tracks()[owner.tracks.front()], view_.time, colors_));
    }
    const int stride = std::clamp(static_cast<int>(summarised_ * static_cast<std::size_t>(r.w) / kLookUps) + 1, 1, r.w);
    LaneSum sum{(r.w + stride - 1) / stride};
    LaneRaster raster{static_cast<int>(sum.width())};
    for (const std::uint32_t o : owners) {
      if (scene_.document.owners()[o].tracks.empty()) continue;
      raster.draw(scene_.document.tracks()[scene_.document.owners()[o].tracks.front()], view_.time, colors_);
      sum.add(raster);
    }
    std::vector<Color> line(static_cast<std::size_t>(r.w));
    for (int x = 0; x < r.w; ++x) {
      const auto column = static_cast<std::size_t>(x / stride);
      if (sum.busy(column) > 0)
        line[static_cast<std::size_t>(x)] =
            colors_.at(sum.most(column), sum.busy(column) / static_cast<float>(owners.size()));
    }
    canvas_.pixels(middle, line);
  }

  std::size_t summarised_;
  Canvas& canvas_;
  const Scene& scene_;
  const View& view_;
  const Theme& look_;
  const Regions& parts_;
  LaneRaster raster_;
  ColorTable colors_, other_colors_;
  Bars bars_, peaks_;
  Backdrop backdrop_;
  std::vector<ErrorCell> errors_;  // of the pixels of a row
  std::array<Color, 2 * kErrorSteps + 1> error_colors_{};
};

}  // namespace

Rect rect_of(const Row& row, bool is_pinned, const Regions& parts, const View& view) {
  if (is_pinned)
    return intersection({parts.pinned.x, parts.pinned.y + row.y, parts.pinned.w, row.height}, parts.pinned);
  const Rect r{parts.rows.x, parts.rows.y + row.y - view.scroll, parts.rows.w, row.height};
  return intersection(r, parts.rows).is_empty() ? Rect{} : r;
}

Side filled_side(const Scene& scene) {
  if (scene.other == nullptr) return Side::Main;
  const bool is_measured = scene.document.source() == "predicted" && scene.other->document.source() != "predicted";
  const bool fills = (scene.view.compare_mode == CompareMode::Blink && scene.view.blink_other) ||
                     (scene.view.compare_mode == CompareMode::Overlay && is_measured);
  return fills ? Side::Other : Side::Main;
}

Rect part_of_row(Rect row, std::size_t i, std::size_t n) {
  const auto y = [&](std::size_t k) { return row.y + static_cast<int>(k) * row.h / static_cast<int>(n); };
  return {row.x, y(i), row.w, std::max(1, y(i + 1) - y(i))};
}

void draw_rows(Canvas& canvas, const Scene& scene, const Regions& parts) {
  using Rows = std::vector<std::pair<const Row*, Rect>>;
  const auto paint = [&](const Rows& rows) {
    std::atomic<std::size_t> next = 0;
    canvas.together([&](Canvas& part) {
      RowPainter painter{part, scene, parts};
      for (std::size_t i = next++; i < rows.size(); i = next++) painter.draw(*rows[i].first, rows[i].second);
    });
  };
  // Rows that scroll first: what sticks out at the top is painted over by the pinned ones, titles and ruler.
  Rows scrolled, pinned;
  each_scrolled(scene, parts, [&](const Row& row, Rect r) { scrolled.emplace_back(&row, r); });
  paint(scrolled);
  if (parts.pinned.h == 0) return;
  each_pinned(scene, parts, [&](const Row& row, Rect r) { pinned.emplace_back(&row, r); });
  paint(pinned);
  canvas.fill({0, parts.pinned.bottom() - 2, parts.pinned.right(), 2}, theme(scene.view.theme).border);
}

}  // namespace orrery::gui
