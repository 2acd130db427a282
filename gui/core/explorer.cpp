// SPDX-License-Identifier: Apache-2.0
#include "gui/core/explorer.hpp"

#include <algorithm>

#include "gui/core/raster_canvas.hpp"
#include "gui/core/svg_canvas.hpp"

namespace orrery::gui {

void Explorer::open(Document document) {
  other_.reset();
  insight_.reset();
  coloured_ = {};
  linked_ = kNoEvent;
  found_.clear();
  document_ = std::make_unique<Document>(std::move(document));
  View fresh;
  fresh.theme = view_.theme;
  fresh.scale = view_.scale;
  fresh.colour_by = view_.colour_by == ColourBy::Error ? ColourBy::Class : view_.colour_by;
  fresh.show_counters = view_.show_counters;
  fresh.show_flows = view_.show_flows;
  fresh.show_critical_path = view_.show_critical_path;
  view_ = std::move(fresh);
  fit();
  refresh();
}

void Explorer::compare(std::unique_ptr<Companion> other) {
  other_ = std::move(other);
  coloured_ = {};
  refresh();
}

void Explorer::end_comparison() {
  other_.reset();
  if (view_.colour_by == ColourBy::Error) view_.colour_by = ColourBy::Class;
  if (view_.selected && view_.selected->side == Side::Other) view_.selected.reset();
  coloured_ = {};
  refresh();
}

void Explorer::find_insight() {
  if (document_ != nullptr && document_->trace() != nullptr)
    set_insight(std::make_unique<const Insight>(*document_->trace()));
}

void Explorer::set_insight(std::unique_ptr<const Insight> insight) {
  insight_ = std::move(insight);
  refresh();
}

void Explorer::refresh() {
  if (document_ == nullptr) return;
  if (other_ != nullptr && other_->channel != view_.error_channel) {
    show_errors(*document_, *other_, view_.error_channel);
    coloured_ = {};
  }
  const ColourKey key{view_.colour_by, view_.theme, view_.colour_by == ColourBy::Slack ? insight_.get() : nullptr,
                      other_.get(), document_.get()};
  if (!(key == coloured_)) {
    const std::optional<ShownErrors> errors =
        other_ != nullptr ? std::optional{other_->shown()} : std::optional<ShownErrors>{};
    colouring_ = colour(*document_, view_, insight_.get(), errors ? &*errors : nullptr);
    if (other_ != nullptr) {
      View plain = view_;
      if (plain.colour_by == ColourBy::Error || plain.colour_by == ColourBy::Slack) plain.colour_by = ColourBy::Class;
      other_->colouring = colour(other_->document, plain, nullptr, nullptr);
    }
    coloured_ = key;
  }
  layout_ = gui::layout(*document_, other_.get(), view_, insight_ != nullptr);
  refresh_links();
  if (view_.found == found_) return;
  found_ = view_.found;
  found_slices_ = found_slices(*document_, found_);
}

void Explorer::refresh_links() {
  const bool is_main = view_.selected && view_.selected->side == Side::Main;
  const EventIndex e = is_main && view_.selected->event < document_->events().size() ? view_.selected->event : kNoEvent;
  if (e == linked_ && insight_.get() == links_from_) return;
  linked_ = e;
  links_from_ = insight_.get();
  links_ = e != kNoEvent ? links_of(*document_, insight_.get(), e) : Links{};
}

Scene Explorer::scene() const {
  const bool has_links = linked_ != kNoEvent && view_.selected == Selected{Side::Main, linked_};
  return {*document_,
          colouring_,
          layout_,
          view_,
          insight_.get(),
          other_.get(),
          has_links ? &links_ : nullptr,
          found_.empty() ? nullptr : &found_slices_};
}

TimeRange Explorer::whole() const {
  TimeRange all{document_->begin(), std::max(document_->end(), document_->begin() + 1)};
  if (other_ != nullptr) {
    all.begin = std::min(all.begin, other_->document.begin());
    all.end = std::max(all.end, other_->document.end());
  }
  return all;
}

void Explorer::fit() {
  const TimeRange all = whole();
  const std::int64_t margin = all.length() / 100;
  view_.time = {all.begin - margin / 4, all.end + margin};
}

void Explorer::focus() {
  TimeRange target;
  if (view_.range) {
    target = *view_.range;
  } else if (view_.selected) {
    const Document& d = view_.selected->side == Side::Main ? *document_ : other_->document;
    target = {d.start(view_.selected->event), d.end(view_.selected->event)};
  } else {
    return fit();
  }
  const std::int64_t margin = std::max<std::int64_t>(500, target.length() / 3);
  view_.time = {target.begin - margin, target.end + margin};
}

void Explorer::scroll_to(EventIndex e, Rect picture) {
  scroll_to_row(Row{.kind = RowKind::Lane, .index = document_->place(e).track}.key(), picture);
}

void Explorer::scroll_to_row(RowKey key, Rect picture) {
  const Regions parts = regions(picture, view_, layout_);
  for (const Row& row : layout_.rows) {
    if (row.key() != key) continue;
    if (row.y < view_.scroll || row.y + row.height > view_.scroll + parts.rows.h)
      view_.scroll = row.y - parts.rows.h / 2;
  }
  clamp_scroll(picture);
}

void Explorer::clamp_scroll(Rect picture) {
  const Regions parts = regions(picture, view_, layout_);
  view_.scroll = std::clamp(view_.scroll, 0, std::max(0, layout_.height - parts.rows.h));
}

void Explorer::select(Selected s, Rect picture) {
  view_.selected = s;
  const Document& d = s.side == Side::Main ? *document_ : other_->document;
  const std::int64_t start = d.start(s.event), end = d.end(s.event), length = view_.time.length();
  if (end - start > length || (end - start) * 400 < length) {
    const std::int64_t wanted =
        std::clamp<std::int64_t>(length, (end - start) * 2, std::max<std::int64_t>(2000, (end - start) * 200));
    view_.time = zoomed({start - wanted / 2, start + wanted / 2}, start, 1, whole());
  } else if (start < view_.time.begin || end > view_.time.end) {
    view_.time = {start + (end - start) / 2 - length / 2, start + (end - start) / 2 - length / 2 + length};
  }
  if (s.side == Side::Main) scroll_to(s.event, picture);
}

std::optional<Selected> Explorer::step(int by) const {
  if (!view_.selected) return {};
  const Document& d = view_.selected->side == Side::Main ? *document_ : other_->document;
  const EventIndex next = neighbour(d, view_.selected->event, by);
  return next == kNoEvent ? std::nullopt : std::optional{Selected{view_.selected->side, next}};
}

std::optional<Selected> Explorer::follow(int direction) const {
  if (!view_.selected || view_.selected->side != Side::Main) return {};
  const EventIndex e = view_.selected->event;
  const Links links = e == linked_ ? links_ : links_of(*document_, insight_.get(), e);
  const std::vector<EventIndex>& next = direction > 0 ? links.after : links.before;
  if (next.empty()) return {};
  // Forward to what began first, back to what ended last: the one that mattered.
  const auto best =
      direction > 0
          ? std::min_element(next.begin(), next.end(),
                             [&](EventIndex a, EventIndex b) { return document_->start(a) < document_->start(b); })
          : std::max_element(next.begin(), next.end(),
                             [&](EventIndex a, EventIndex b) { return document_->end(a) < document_->end(b); });
  return Selected{Side::Main, *best};
}

void Explorer::toggle_fold(const Row& row) {
  if (row.kind != RowKind::Group && row.kind != RowKind::Owner) return;
  const RowKey key = row.key();
  if (!view_.folded.insert(key).second) view_.folded.erase(key);
  refresh();
}

void Explorer::toggle_pin(RowKey key) {
  if (std::erase(view_.pinned, key) == 0) view_.pinned.push_back(key);
  refresh();
}

Image render_image(const Painter& paint, int width, int height, Font& font) {
  Image image{width, height, 0xff000000u};
  RasterCanvas canvas{image, font};
  paint(canvas);
  return image;
}

std::string render_svg(const Painter& paint, int width, int height, Font& font) {
  SvgCanvas canvas{width, height, font};
  paint(canvas);
  return canvas.document();
}

Image render_image(const Explorer& explorer, int width, int height, Font& font) {
  return render_image([&](Canvas& c) { draw_timeline(c, explorer.scene()); }, width, height, font);
}

std::string render_svg(const Explorer& explorer, int width, int height, Font& font) {
  return render_svg([&](Canvas& c) { draw_timeline(c, explorer.scene()); }, width, height, font);
}

}  // namespace orrery::gui
