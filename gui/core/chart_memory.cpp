// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "gui/core/charts.hpp"
#include "gui/core/draw.hpp"

namespace orrery::gui {
namespace {

/// From what stays to what comes and goes.
constexpr std::array kFromBelow = {TensorRole::Parameter,  TensorRole::OptimizerState, TensorRole::Constant,
                                   TensorRole::KvCache,    TensorRole::Input,          TensorRole::Gradient,
                                   TensorRole::Activation, TensorRole::Communication,  TensorRole::Workspace,
                                   TensorRole::Result};
static_assert(kFromBelow.size() == kNumRoles);

class MemoryPainter {
 public:
  MemoryPainter(Canvas& canvas, const MemoryProfile& profile, const View& view)
      : canvas_{canvas}, profile_{profile}, view_{view}, look_{theme(view.theme)} {}

  void draw() {
    const Rect all = canvas_.size();
    canvas_.fill(all, look_.background);
    const int head = view_.px(24), margin = view_.px(64);
    draw_text(canvas_, {view_.px(8), 0, all.w - view_.px(16), head},
              fmt::format("{} · peak {}{}{}", profile_.title, to_text(Bytes{profile_.peak}),
                          profile_.peak_op.empty() ? "" : " at " + profile_.peak_op,
                          profile_.arena > 0 ? fmt::format(" · arena {}", to_text(Bytes{profile_.arena})) : ""),
              look_.text, {view_.px(12), Weight::Bold});
    const int height = all.h - head - view_.px(22), line = view_.px(16);
    const int bar = view_.px(70), width = all.w - margin - bar - view_.px(20);
    const bool has_captions = height >= view_.px(150), shows_places = !profile_.blocks.empty() && has_captions;
    const int caption = has_captions ? line : 0, parts = height - caption - (has_captions ? line : 0);
    const Rect stack{margin, head + caption, width, shows_places ? (parts - caption) / 2 : parts};
    draw_stack(stack);
    Rect last = stack;
    if (shows_places) {
      const int top = stack.bottom() + caption;
      last = {stack.x, top, stack.w, head + caption + parts - top};
      draw_places(last);
      draw_caption(last, "where it lies, by address");
    }
    draw_peak({stack.right() + view_.px(12), stack.y, bar, parts});
    if (has_captions) {
      draw_caption(stack, "how much is kept, by kind");
      draw_caption({stack.right() + view_.px(12), stack.y, bar, parts}, "at the peak");
      draw_times({last.x, last.bottom(), last.w, line});
    }
    draw_legend({0, all.bottom() - view_.px(22), all.w, view_.px(22)});
  }

 private:
  double x_of(std::int64_t at, Rect r) const {
    return r.x + double(at - view_.time.begin) / double(std::max<std::int64_t>(1, view_.time.length())) * r.w;
  }

  /// Above a part of the picture.
  void draw_caption(Rect part, std::string_view text) {
    const int line = view_.px(16);
    draw_text(canvas_, {part.x, part.y - line, part.w, line}, text, look_.muted, {view_.px(10)});
  }

  void draw_times(Rect r) {
    const Ticks t = ticks(view_.time, r.w, view_.px(110));
    for (std::int64_t at = t.first; at <= view_.time.end; at += t.step) {
      const int x = static_cast<int>(x_of(at, r));
      if (x < r.x || x >= r.right()) continue;
      canvas_.fill({x, r.y, 1, view_.px(4)}, look_.muted);
      draw_text(canvas_, {x + view_.px(3), r.y, r.right() - x, r.h}, tick_text(at, t.step), look_.muted,
                {view_.px(10)});
    }
  }

  void axis(Rect r, double most) {
    canvas_.fill(r, look_.row);
    canvas_.frame(r, look_.border);
    const FontStyle style{view_.px(10)};
    draw_text_right(canvas_, {0, r.y, r.x - view_.px(4), view_.px(14)}, to_text(Bytes{most}), look_.muted, style);
    if (r.h < view_.px(30)) return;  // no room for both
    draw_text_right(canvas_, {0, r.bottom() - view_.px(14), r.x - view_.px(4), view_.px(14)}, "0", look_.muted, style);
  }

  /// For each pixel the entry of a list by time that holds in it: that with the most bytes.
  template <class At, class Most>
  std::vector<std::size_t> entries(Rect r, std::size_t count, At at, Most most_of) const {
    std::vector<std::size_t> out(static_cast<std::size_t>(r.w), SIZE_MAX);
    const double per_pixel = double(view_.time.length()) / r.w;
    std::size_t next = 0;
    for (std::size_t step = count; step > 0; step /= 2)  // the first behind the left edge
      while (next + step <= count && at(next + step - 1) < view_.time.begin) next += step;
    std::size_t current = next > 0 ? next - 1 : SIZE_MAX;
    for (int x = 0; x < r.w; ++x) {
      const auto until = view_.time.begin + static_cast<std::int64_t>((x + 1) * per_pixel);
      std::size_t most = current;
      for (; next < count && at(next) < until; ++next) {
        current = next;
        if (most == SIZE_MAX || most_of(next) >= most_of(most)) most = next;
      }
      out[static_cast<std::size_t>(x)] = most;
    }
    return out;
  }

  double at_peak(TensorRole role) const {
    double sum = 0;
    for (const MemoryProfile::Owner& o : profile_.owners) sum += o.role == role ? o.bytes : 0;
    return sum;
  }

  /// What stays at the bottom, what comes and goes above it, by kind.
  void draw_stack(Rect r) {
    axis(r, profile_.peak);
    if (profile_.peak <= 0) return;
    profile_.shares.empty() ? draw_total(r) : draw_kinds(r);
    const int x = static_cast<int>(x_of(profile_.peak_at, r));
    if (x >= r.x && x < r.right()) canvas_.fill({x, r.y, view_.px(2), r.h}, look_.critical);
  }

  void draw_total(Rect r) {
    const std::vector<std::size_t> at = entries(
        r, profile_.at.size(), [&](std::size_t i) { return profile_.at[i]; },
        [&](std::size_t i) { return profile_.total[i]; });
    Bars bars{r.w, look_.muted};
    for (std::size_t x = 0; x < at.size(); ++x)
      bars.high[x] = at[x] == SIZE_MAX ? 0 : static_cast<float>(profile_.total[at[x]] / profile_.peak * (r.h - 2));
    canvas_.bars({r.x, r.y + 1, r.w, r.h - 2}, bars);
  }

  void draw_kinds(Rect r) {
    const auto total = [&](std::size_t i) {
      return std::accumulate(profile_.shares[i].bytes.begin(), profile_.shares[i].bytes.end(), 0.0F);
    };
    const std::vector<std::size_t> at = entries(
        r, profile_.shares.size(), [&](std::size_t i) { return profile_.shares[i].at; }, total);
    Bars bars{r.w, look_.muted};
    const auto per_byte = static_cast<float>((r.h - 2) / profile_.peak);
    for (std::size_t x = 0; x < at.size(); ++x) bars.high[x] = at[x] == SIZE_MAX ? 0 : total(at[x]) * per_byte;
    for (auto kind = kFromBelow.rbegin(); kind != kFromBelow.rend(); ++kind) {
      std::fill(bars.color.begin(), bars.color.end(), role_color(*kind));
      canvas_.bars({r.x, r.y + 1, r.w, r.h - 2}, bars);
      for (std::size_t x = 0; x < at.size(); ++x)
        if (at[x] != SIZE_MAX) bars.high[x] -= profile_.shares[at[x]].bytes[static_cast<std::size_t>(*kind)] * per_byte;
    }
  }

  /// Blocks where they lie in the arena, over time. What is smaller than a pixel in both directions is left out.
  void draw_places(Rect r) {
    std::int64_t top = 1;
    for (const StorageBlock& b : profile_.blocks) top = std::max(top, b.offset + b.bytes);
    axis(r, double(top));
    const auto y_of = [&](std::int64_t offset) { return r.bottom() - 1 - double(offset) / double(top) * (r.h - 2); };
    for (const StorageBlock& b : profile_.blocks) {
      if (b.from_ps >= view_.time.end) break;
      if (b.to_ps <= view_.time.begin) continue;
      const double left = std::max<double>(r.x, x_of(b.from_ps, r)),
                   right = std::min<double>(r.right(), x_of(b.to_ps, r));
      const double high = y_of(b.offset + b.bytes), low = y_of(b.offset);
      if (right - left < 1 && low - high < 1) continue;
      const Rect block{static_cast<int>(left), static_cast<int>(high),
                       std::max(1, static_cast<int>(right) - static_cast<int>(left)),
                       std::max(1, static_cast<int>(low) - static_cast<int>(high))};
      draw_block(block, b);
    }
  }

  void draw_block(Rect r, const StorageBlock& b) {
    const Color c = role_color(profile_.role_of(b));
    canvas_.fill(r, c);
    if (r.w >= 4 && r.h >= 4) canvas_.frame(r, look_.row);
    if (r.h >= view_.px(12) && r.w >= view_.px(40))
      draw_text(canvas_, {r.x + view_.px(4), r.y, r.w - view_.px(8), r.h}, profile_.name_of(b), ink_on(c),
                {view_.px(10)});
  }

  /// The peak by kind, as a column.
  void draw_peak(Rect r) {
    canvas_.fill(r, look_.row);
    double below = 0;
    if (profile_.peak <= 0) return;
    for (const TensorRole role : kFromBelow) {
      const double bytes = at_peak(role);
      const int bottom = r.bottom() - static_cast<int>(below / profile_.peak * r.h);
      below = std::min(profile_.peak, below + bytes);
      const int top = r.bottom() - static_cast<int>(below / profile_.peak * r.h);
      const Color c = role_color(role);
      canvas_.fill({r.x, top, r.w, bottom - top}, c);
      if (bottom - top >= view_.px(12))
        draw_text_centred(canvas_, {r.x, top, r.w, bottom - top}, to_text(Bytes{bytes}), ink_on(c), {view_.px(10)});
    }
    canvas_.frame(r, look_.border);
  }

  void draw_legend(Rect r) {
    const FontStyle style{view_.px(11)};
    int x = r.x + view_.px(8);
    for (const TensorRole role : kFromBelow) {
      if (!is_used(role)) continue;
      const std::string_view name = orrery::name_of(role);
      canvas_.fill({x, r.y + (r.h - view_.px(10)) / 2, view_.px(10), view_.px(10)}, role_color(role));
      x += view_.px(14);
      draw_text(canvas_, {x, r.y, r.right() - x, r.h}, name, look_.text, style);
      x += canvas_.font().width(name, style) + view_.px(12);
    }
  }

  bool is_used(TensorRole role) const {
    const auto index = static_cast<std::size_t>(role);
    return at_peak(role) > 0 || std::any_of(profile_.shares.begin(), profile_.shares.end(),
                                            [&](const MemoryProfile::Share& s) { return s.bytes[index] > 0; });
  }

  Canvas& canvas_;
  const MemoryProfile& profile_;
  const View& view_;
  const Theme& look_;
};

}  // namespace

void draw_memory(Canvas& canvas, const MemoryProfile& profile, const View& view) {
  MemoryPainter{canvas, profile, view}.draw();
}

}  // namespace orrery::gui
