// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "gui/core/canvas.hpp"
#include "gui/core/insight.hpp"
#include "gui/core/rows.hpp"
#include "gui/core/statistics.hpp"

namespace orrery::gui {

/// All that a picture of a timeline depends on.
struct Scene {
  const Document& document;
  const Colouring& colouring;
  const Layout& layout;
  const View& view;
  const Insight* insight = nullptr;    // null: not there yet, or a trace without a plan
  const Companion* other = nullptr;    // null: no comparison
  const Links* links = nullptr;        // at the selected slice; null: none
  const FoundSlices* found = nullptr;  // of View::found; null: none
};

/// The parts of a picture, in pixels.
struct Regions {
  Rect minimap, ruler, headers, pinned, rows, legend;
};
Regions regions(Rect whole, const View& view, const Layout& layout);

/// A picture of a timeline; the same calls for the window, PNG and SVG.
void draw_timeline(Canvas& canvas, const Scene& scene);

/// The instant of a pixel column, and the pixel of an instant.
std::int64_t time_at(const Regions& regions, const View& view, double x);
double x_of(const Regions& regions, const View& view, std::int64_t at);

/// Whose slices a lane of the main timeline shows: in turns, or, as an overlay, the measured one under frames of the
/// predicted one.
Side filled_side(const Scene& scene);

/// What lies under a pixel.
struct Hit {
  const Row* row = nullptr;  // of the layout; null beside rows
  bool is_header = false;
  std::optional<Selected> slice;
};
Hit hit_test(const Scene& scene, Rect whole, int x, int y);

/// The rectangle of a row on the canvas, where it can be seen; empty otherwise.
Rect rect_of(const Row& row, bool is_pinned, const Regions& regions, const View& view);

/// A row of several lanes one below the other: the i-th of n, which is at least a pixel high.
Rect part_of_row(Rect row, std::size_t i, std::size_t n);

/// Ticks of a time axis: 1, 2 or 5 times a power of ten apart.
struct Ticks {
  std::int64_t first = 0, step = 1;
};
Ticks ticks(TimeRange time, int pixels, int least_distance);
/// "12.35 ms", with as many decimals as the step needs.
std::string tick_text(std::int64_t at, std::int64_t step);
/// An exact duration for details: "12.345678 ms".
std::string exact_text(std::int64_t picoseconds);
/// A difference. A picosecond is the least that a timeline tells: less is rounding and "0 s".
std::string signed_text(double seconds);
/// A value of a counter with its unit: "4.2 GiB", "380 GB/s".
std::string value_text(double value, const std::string& unit);

// The pieces of draw_timeline.
void draw_rows(Canvas& canvas, const Scene& scene, const Regions& parts);
void draw_row_titles(Canvas& canvas, const Scene& scene, const Regions& parts);
void draw_links(Canvas& canvas, const Scene& scene, const Regions& parts);
void draw_minimap(Canvas& canvas, const Scene& scene, const Regions& parts);

}  // namespace orrery::gui
