// SPDX-License-Identifier: Apache-2.0
// Waterfall of the step-time error, and durations of matched ops against each other.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gui/core/charts.hpp"
#include "gui/core/draw.hpp"

namespace orrery::gui {
namespace {

/// Less than a picosecond, the least that a timeline tells.
constexpr double kNothing = 1e-12;

}  // namespace

void draw_waterfall(Canvas& canvas, const Explanation& e, const View& view) {
  const Theme& look = theme(view.theme);
  const Rect all = canvas.size();
  canvas.fill(all, look.background);
  // Classes that add nothing would only take room from those that do.
  std::vector<Share> shares;
  std::string unchanged;
  for (const Share& s : e.shares)
    if (std::abs(s.forward) > kNothing || std::abs(s.reverse) > kNothing)
      shares.push_back(s);
    else
      unchanged += (unchanged.empty() ? "" : ", ") + s.name;
  const int count = static_cast<int>(shares.size()) + (unchanged.empty() ? 2 : 3),
            row = std::clamp((all.h - 8) / count, view.px(16), view.px(28));
  const FontStyle style{view.px(11)}, bold{view.px(11), Weight::Bold};
  int name_width = view.px(70);
  for (const Share& s : shares) name_width = std::max(name_width, canvas.font().width(s.name, style) + view.px(16));
  name_width = std::min(name_width, all.w * 2 / 5);
  const int value_width = view.px(150);
  const Rect plot{name_width, 4, std::max(20, all.w - name_width - value_width), row * count};
  double low = std::min(e.main, e.other), high = std::max(e.main, e.other), at = e.main;
  for (const Share& s : shares) {
    at += s.mean();
    low = std::min(low, at);
    high = std::max(high, at);
  }
  const double margin = std::max((high - low) * 0.1, high * 1e-6);
  const auto x = [&](double seconds) {
    return plot.x + static_cast<int>((seconds - low + margin) / (high - low + 2 * margin) * plot.w);
  };
  int y = plot.y;
  const auto line = [&](std::string_view name, double from, double to, Color c, const std::string& value,
                        const FontStyle& font) {
    draw_text(canvas, {view.px(8), y, name_width - view.px(12), row}, name, look.text, font);
    const int left = std::min(x(from), x(to)), right = std::max(x(from), x(to));
    canvas.fill({left, y + 2, std::max(2, right - left), row - 4}, c);
    draw_text(canvas, {plot.right() + view.px(6), y, value_width - view.px(10), row}, value, look.text, font);
    y += row;
  };
  line("first", low - margin, e.main, look.middle, to_text(Seconds{e.main}), bold);
  at = e.main;
  for (const Share& s : shares) {
    const double spread = std::abs(s.forward - s.reverse) / 2;
    line(s.name, at, at + s.mean(), s.mean() < 0 ? look.low : look.high,
         signed_text(s.mean()) +
             (spread > std::abs(e.main) * 1e-6 ? fmt::format(" ± {}", to_text(Seconds{spread})) : ""),
         style);
    canvas.fill({x(at + s.mean()), y - row, 1, row}, look.muted);
    at += s.mean();
  }
  line("second", low - margin, e.other, look.middle,
       fmt::format("{} ({:+.1f} %)", to_text(Seconds{e.other}), e.main > 0 ? 100 * (e.other / e.main - 1) : 0), bold);
  if (!unchanged.empty())
    draw_text(canvas, {view.px(8), y, all.w - view.px(16), row}, "nothing from " + unchanged, look.muted, style);
}

Scatter::Scatter(const Document& main, const Companion& other)
    : main_name_{side_name(main, other.document, Side::Main)},
      other_name_{side_name(main, other.document, Side::Other)} {
  std::vector<EventIndex> matched;
  for (EventIndex e = 0; e < other.matching.partner_of_main.size(); ++e)
    if (other.matching.partner_of_main[e] != kNoEvent && !std::isnan(other.errors[e])) matched.push_back(e);
  const std::size_t stride = matched.size() / kMaxPoints + 1;
  double low = 1e30, high = 0;
  for (std::size_t i = 0; i < matched.size(); i += stride) {
    const EventIndex e = matched[i], p = other.matching.partner_of_main[e];
    const double m = double(main.events().end(e) - main.events().start(e));
    const double o = double(other.document.events().end(p) - other.document.events().start(p));
    if (m <= 0 || o <= 0) continue;
    points_.push_back({e, std::log10(m), std::log10(o)});
    low = std::min({low, points_.back().main, points_.back().other});
    high = std::max({high, points_.back().main, points_.back().other});
  }
  if (points_.empty()) return;
  low_ = low - 0.1;
  high_ = high + 0.1;
}

Rect Scatter::plot(Rect canvas, const View& view) const {
  const int left = view.px(64), bottom = view.px(40), top = view.px(10), right = view.px(12);
  return {left, top, std::max(10, canvas.w - left - right), std::max(10, canvas.h - top - bottom)};
}

int Scatter::x_of(const Point& p, Rect r) const {
  return r.x + static_cast<int>((p.main - low_) / (high_ - low_) * (r.w - 1));
}
int Scatter::y_of(const Point& p, Rect r) const {
  return r.bottom() - 1 - static_cast<int>((p.other - low_) / (high_ - low_) * (r.h - 1));
}

void Scatter::draw_axes(Canvas& canvas, Rect r, const View& view) const {
  const Theme& look = theme(view.theme);
  const FontStyle style{view.px(10)};
  canvas.fill(r, look.row);
  for (int decade = static_cast<int>(std::ceil(low_)); decade <= high_; ++decade) {
    const double share = (decade - low_) / (high_ - low_);
    const int x = r.x + static_cast<int>(share * r.w), y = r.bottom() - static_cast<int>(share * r.h);
    canvas.fill({x, r.y, 1, r.h}, look.grid);
    canvas.fill({r.x, y, r.w, 1}, look.grid);
    const std::string text = to_text(Seconds{std::pow(10.0, decade - 12)});
    draw_text_centred(canvas, {x - 40, r.bottom() + 2, 80, view.px(14)}, text, look.muted, style);
    draw_text_right(canvas, {0, y - view.px(7), r.x - view.px(4), view.px(14)}, text, look.muted, style);
  }
  canvas.frame(r, look.border);
  // Equal durations, and 30 % around them.
  canvas.line(r.x, r.bottom(), r.right(), r.y, look.muted, 1);
  const double shift = std::log10(1 + kErrorRange) / (high_ - low_) * r.h;
  canvas.line(r.x, r.bottom() - shift, r.right() - shift * r.w / r.h, r.y, look.grid, 1);
  canvas.line(r.x + shift * r.w / r.h, r.bottom(), r.right(), r.y + shift, look.grid, 1);
  draw_text_centred(canvas, {r.x, r.bottom() + view.px(18), r.w, view.px(16)},
                    main_name_ + " duration; upwards: " + other_name_, look.muted, style);
}

void Scatter::draw(Canvas& canvas, const View& view, const Colouring& colouring, const Document& main,
                   std::optional<Rect> brush) const {
  const Theme& look = theme(view.theme);
  canvas.fill(canvas.size(), look.background);
  const Rect r = plot(canvas.size(), view);
  draw_axes(canvas, r, view);
  const int dot = view.px(3);
  for (const Point& p : points_) {
    const Place place = main.place(p.event);
    const Color c = colouring.colors[main.tracks()[place.track].slices.category[place.slice]];
    canvas.fill({x_of(p, r) - dot / 2, y_of(p, r) - dot / 2, dot, dot}, with_alpha(c, 170));
  }
  for (const Point& p : points_)
    if (view.selected && view.selected->side == Side::Main && view.selected->event == p.event)
      canvas.frame({x_of(p, r) - view.px(6), y_of(p, r) - view.px(6), view.px(12), view.px(12)}, look.selection,
                   view.px(2));
  if (brush) canvas.frame(*brush, look.accent);
}

std::vector<EventIndex> Scatter::in(Rect brush, Rect canvas, const View& view, const Document& main) const {
  const Rect r = plot(canvas, view);
  std::vector<EventIndex> out;
  for (const Point& p : points_)
    if (brush.contains(x_of(p, r), y_of(p, r))) out.push_back(p.event);
  std::sort(out.begin(), out.end(), [&](EventIndex a, EventIndex b) { return main.start(a) < main.start(b); });
  return out;
}

std::optional<EventIndex> Scatter::nearest(int x, int y, Rect canvas, const View& view) const {
  const Rect r = plot(canvas, view);
  std::optional<EventIndex> best;
  int distance = view.px(8) * view.px(8);
  for (const Point& p : points_) {
    const int dx = x_of(p, r) - x, dy = y_of(p, r) - y;
    if (dx * dx + dy * dy >= distance) continue;
    distance = dx * dx + dy * dy;
    best = p.event;
  }
  return best;
}

}  // namespace orrery::gui
