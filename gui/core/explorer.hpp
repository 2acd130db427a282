// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gui/core/alignment.hpp"
#include "gui/core/draw.hpp"
#include "gui/core/statistics.hpp"

namespace orrery::gui {

/// The explorer without a window: what is open and how it is looked at. The window, `--exec`, `orrery trace render` and
/// tests do everything through it.
class Explorer {
 public:
  /// Replaces what is open; the comparison ends and the view starts from the whole run.
  void open(Document document);
  bool is_open() const { return document_ != nullptr; }
  const Document& document() const { return *document_; }

  /// Lays a second timeline beside the main one.
  void compare(std::unique_ptr<Companion> other);
  void end_comparison();
  /// Lays the second timeline on the axis another way.
  void realign(const CompareOptions& options) { gui::realign(*document_, *other_, options); }
  const Companion* other() const { return other_.get(); }

  /// Finds critical path and slack; nothing for traces without a plan. `set_insight` takes those found elsewhere.
  void find_insight();
  void set_insight(std::unique_ptr<const Insight> insight);
  const Insight* insight() const { return insight_.get(); }

  /// How it is looked at. After a change `refresh` brings up to date what is not looked up for each picture: colours,
  /// rows, arrows, marks of what was found.
  View& view() { return view_; }
  const View& view() const { return view_; }
  void refresh();
  const Layout& layout() const { return layout_; }
  const Colouring& colouring() const { return colouring_; }
  /// The document must be open.
  Scene scene() const;

  TimeRange whole() const;
  /// Shows all; or the selected slice or range with some time around it.
  void fit();
  void focus();
  /// Selects a slice, and moves the view so that it can be seen in a picture of this size.
  void select(Selected s, Rect picture);
  void scroll_to(EventIndex e, Rect picture);
  void scroll_to_row(RowKey key, Rect picture);
  void clamp_scroll(Rect picture);
  /// The selected slice's neighbour, what it waited for first, or what waited for it.
  std::optional<Selected> step(int by) const;
  std::optional<Selected> follow(int direction) const;
  void toggle_fold(const Row& row);
  void toggle_pin(RowKey key);

 private:
  void refresh_links();
  /// What colours depend on, so that they are only made again when it changed.
  struct ColourKey {
    ColourBy by{};
    ThemeName theme{};
    const Insight* insight = nullptr;
    const Companion* other = nullptr;
    const Document* document = nullptr;
    bool operator==(const ColourKey&) const = default;
  };

  std::unique_ptr<Document> document_;
  std::unique_ptr<Companion> other_;
  std::unique_ptr<const Insight> insight_;
  View view_;
  EventIndex linked_ = kNoEvent;  // whose links are kept
  const Insight* links_from_ = nullptr;
  Links links_;
  std::vector<EventIndex> found_;  // whose slices are kept
  FoundSlices found_slices_;
  Layout layout_;
  Colouring colouring_;
  ColourKey coloured_;
};

using Painter = std::function<void(Canvas&)>;
Image render_image(const Painter& paint, int width, int height, Font& font);
std::string render_svg(const Painter& paint, int width, int height, Font& font);
/// What is open.
Image render_image(const Explorer& explorer, int width, int height, Font& font);
std::string render_svg(const Explorer& explorer, int width, int height, Font& font);

}  // namespace orrery::gui
