// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "gui/core/events.hpp"
#include "gui/core/theme.hpp"
#include "gui/core/time_range.hpp"
#include "sim/base/options.hpp"

namespace orrery::gui {

enum class ColourBy : std::uint8_t { Class, Rank, Layer, Microbatch, Phase, Error, Slack };
std::span<const EnumName<ColourBy>> enum_names(ColourBy);

/// How two timelines are drawn: the other one in lanes of its own with a strip of errors, as frames over the slices, in
/// turns, or only where they differ.
enum class CompareMode : std::uint8_t { Lanes, Overlay, Blink, Difference };
std::span<const EnumName<CompareMode>> enum_names(CompareMode);

/// The word of a value, as options and workspace files say it.
template <class E>
std::string_view word_of(E value) {
  for (const EnumName<E>& e : enum_names(value))
    if (e.value == value) return e.name;
  return {};
}

/// What of a matched op is drawn as its error: how much longer it takes, as a share or in time; how much later it
/// begins after alignment; how much longer its lane is idle before it; how much longer its rank computes and
/// communicates at once while it runs.
enum class ErrorChannel : std::uint8_t { Duration, Time, Start, Gap, Overlap };
std::span<const EnumName<ErrorChannel>> enum_names(ErrorChannel);

struct Mark {
  std::int64_t at = 0;
  std::string label;
  bool operator==(const Mark&) const = default;
};

/// Which of two timelines that are looked at together.
enum class Side : std::uint8_t { Main, Other };

struct Selected {
  Side side = Side::Main;
  EventIndex event = kNoEvent;
  bool operator==(const Selected&) const = default;
};

/// Identifies a row for as long as a document lives, whatever is shown or hidden.
using RowKey = std::uint64_t;

/// How a document is looked at: all that a workspace file keeps.
struct View {
  TimeRange time;
  int scroll = 0;  // pixels below the top of the rows that scroll
  ThemeName theme = ThemeName::Light;
  double scale = 1;  // of all sizes, 1 to 2
  ColourBy colour_by = ColourBy::Class;
  CompareMode compare_mode = CompareMode::Lanes;
  ErrorChannel error_channel = ErrorChannel::Duration;
  bool blink_other = false;  // in CompareMode::Blink: the other one is to be seen
  std::string group_by;      // "", "node", or an axis of the mesh
  bool show_counters = true, show_flows = true, show_critical_path = true;
  std::set<RowKey> folded;
  std::vector<RowKey> pinned;
  std::optional<Selected> selected;
  std::optional<TimeRange> range;
  std::vector<Mark> marks;
  std::vector<EventIndex> found;  // of the last search, by time
  bool is_stale = false;          // a new result is on its way

  int px(double at_scale_1) const { return static_cast<int>(at_scale_1 * scale + 0.5); }
};

/// A range around a point that is `factor` times as long, not shorter than a nanosecond and not longer than
/// 1.2 times `whole`.
TimeRange zoomed(TimeRange time, std::int64_t around, double factor, TimeRange whole);
TimeRange panned(TimeRange time, double share, TimeRange whole);

}  // namespace orrery::gui
