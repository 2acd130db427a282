// SPDX-License-Identifier: Apache-2.0
// Columns, pyramids, pixels, hits and sums of the timeline explorer.
#include <catch2/catch.hpp>

#include "gui/core/explorer.hpp"
#include "gui/core/lane_raster.hpp"
#include "gui/core/raster_canvas.hpp"
#include "tests/gui_testing.hpp"
#include "tests/timeline_testing.hpp"

using namespace orrery;
using namespace orrery::gui;

namespace {

constexpr Rect kPicture{0, 0, 1000, 600};

/// Two ranks: a (0 to 10 us), idle, b (20 to 30) on compute; sum (10 to 25) on comm, which waits for a and goes before
/// b.
Trace small_trace() {
  SmallPlan p{2};
  const OpId a = p.add("a", gemm());
  const OpId sum = p.add("sum", all_reduce(), Stream::Comm, {a});
  const OpId b = p.add("b", gemm(), Stream::Compute, {sum});
  Trace trace;
  for (const std::size_t rank : {0u, 1u}) {
    ran(trace.timeline, a, rank, 0, 10);
    ran(trace.timeline, sum, rank, 10, 25);
    ran(trace.timeline, b, rank, 25, 35);
  }
  trace.timeline.memory = {{0, RankId{0}, Tier::Device, 1000}, {10 * kMicrosecond, RankId{0}, Tier::Device, 4000}};
  trace.plans = describe(p.plan);
  return trace;
}

Explorer opened(Trace trace) {
  Explorer e;
  e.open(Document{std::move(trace), "test.orrery"});
  e.find_insight();
  return e;
}

std::int64_t busy_by_hand(const Document& d, TimeRange r) {
  std::int64_t sum = 0;
  for (const Track& t : d.tracks())
    for (std::size_t i = 0; i < t.slices.size(); ++i)
      sum += std::max<std::int64_t>(0, std::min(t.slices.end[i], r.end) - std::max(t.slices.start[i], r.begin));
  return sum;
}

}  // namespace

TEST_CASE("a document has a lane per rank and stream and finds the place of each span", "[gui]") {
  const Document d{small_trace(), "x"};
  REQUIRE(d.owners().size() == 2);
  REQUIRE(d.tracks().size() == 4);
  CHECK(d.num_slices() == 6);
  CHECK(d.tracks()[1].name == "comm");
  for (EventIndex e = 0; e < d.events().size(); ++e) {
    const Place p = d.place(e);
    CHECK(d.tracks()[p.track].slices.event[p.slice] == e);
  }
  CHECK(d.end() == 35 * kMicrosecond);
}

TEST_CASE("memory becomes a counter, and messages and arithmetic become rates", "[gui]") {
  const Document d{small_trace(), "x"};
  const auto find = [&](std::string_view name) -> const Counter& {
    for (const Counter& c : d.counters())
      if (c.name == name) return c;
    FAIL("no counter " << name);
    return d.counters().front();
  };
  CHECK(find("device memory").most == 4000);
  // 1024 B in 15 us.
  CHECK(find("link use").most == Approx(1024 / 15e-6));
  // 2·8·8·8 FLOP in 10 us.
  CHECK(find("arithmetic").most == Approx(1024 / 10e-6));
  CHECK(find("arithmetic").value.back() == 0);
}

TEST_CASE("every level of a pyramid has the busy time of its slices", "[gui]") {
  const Document d{testing::large_trace(1, 4000), "x"};
  for (const Track& t : d.tracks()) {
    std::int64_t busy = 0;
    for (std::size_t i = 0; i < t.slices.size(); ++i) busy += t.slices.end[i] - t.slices.start[i];
    for (int shift = 20; shift < 40; ++shift) {
      const Pyramid::Level level = t.pyramid.level(std::ldexp(1.0, shift));
      if (level.cells.empty()) continue;
      double sum = 0;
      for (const Cell& c : level.cells) sum += std::ldexp(double(c.busy) / kFullyBusy, level.shift);
      CHECK(sum == Approx(double(busy)).epsilon(1e-3));  // a cell has 16 bits
    }
  }
}

TEST_CASE("the level of a pyramid is the coarsest that is no wider than a pixel", "[gui]") {
  const Document d{testing::large_trace(1, 4000), "x"};
  const Pyramid& p = d.tracks()[0].pyramid;
  CHECK(p.level(1.0).cells.empty());
  const Pyramid::Level level = p.level(3e8);
  REQUIRE_FALSE(level.cells.empty());
  CHECK(std::ldexp(1.0, level.shift) <= 3e8);
  CHECK(std::ldexp(1.0, level.shift + 1) > 3e8);
}

TEST_CASE("a lane is as busy in pixels as in time, at every zoom", "[gui]") {
  const Document d{testing::large_trace(1, 20'000), "x"};
  const Track& t = d.tracks()[0];
  const ColorTable colors{Colouring{}, rgb(255, 255, 255)};
  for (const double share : {1.0, 0.3, 0.05, 0.004}) {
    const auto length = static_cast<std::int64_t>(double(d.end()) * share);
    const TimeRange r{d.end() / 3 * (share < 1), d.end() / 3 * (share < 1) + length};
    LaneRaster raster{500};
    raster.draw(t, r, colors);
    double busy = 0;
    for (std::size_t x = 0; x < 500; ++x) busy += raster.sample_at(x).busy;
    std::int64_t exact = 0;
    for (std::size_t i = 0; i < t.slices.size(); ++i)
      exact += std::max<std::int64_t>(0, std::min(t.slices.end[i], r.end) - std::max(t.slices.start[i], r.begin));
    INFO("share " << share);
    CHECK(busy / 500 == Approx(double(exact) / double(length)).epsilon(0.02));
  }
}

TEST_CASE("idle time stays visible when zoomed out", "[gui]") {
  // Ops of 1 us every 10 us: a naive pixel per op would paint everything busy.
  SmallPlan p;
  Trace trace;
  for (int i = 0; i < 5000; ++i) ran(trace.timeline, p.add("op", gemm()), 0, i * 10, i * 10 + 1);
  trace.plans = describe(p.plan);
  const Document d{std::move(trace), "x"};
  LaneRaster raster{100};
  raster.draw(d.tracks()[0], {0, d.end()}, ColorTable{Colouring{}, rgb(255, 255, 255)});
  for (std::size_t x = 0; x < 100; ++x) CHECK(raster.sample_at(x).busy == Approx(0.1).margin(0.02));
}

TEST_CASE("what is under a pixel is what was drawn there", "[gui]") {
  const Explorer e = opened(small_trace());
  const Regions parts = regions(kPicture, e.view(), e.layout());
  for (const Row& row : e.layout().rows) {
    if (row.kind != RowKind::Lane) continue;
    const Rect r = rect_of(row, false, parts, e.view());
    const Columns& s = e.document().tracks()[row.index].slices;
    for (std::size_t i = 0; i < s.size(); ++i) {
      const int x = static_cast<int>((x_of(parts, e.view(), s.start[i]) + x_of(parts, e.view(), s.end[i])) / 2);
      const Hit hit = hit_test(e.scene(), kPicture, x, r.y + r.h / 2);
      REQUIRE(hit.slice);
      CHECK(hit.slice->event == s.event[i]);
    }
    const Hit header = hit_test(e.scene(), kPicture, 5, r.y + 3);
    CHECK(header.is_header);
    CHECK(header.row == &row);
  }
  CHECK(hit_test(e.scene(), kPicture, 500, 5).row == nullptr);
}

TEST_CASE("sums of a range are those of its slices, cut at its edges", "[gui]") {
  const Document d{testing::large_trace(3, 3000), "x"};
  for (const auto& [from, to] : {std::pair{0.0, 1.0}, {0.1, 0.2}, {0.33, 0.3301}, {0.9, 1.0}}) {
    const TimeRange r{static_cast<std::int64_t>(from * double(d.end())),
                      static_cast<std::int64_t>(to * double(d.end()))};
    CHECK(statistics(d, r).busy() == busy_by_hand(d, r));
  }
  CHECK(statistics(d, {0, d.end()}).count() == d.num_slices());
}

TEST_CASE("ops of all layers are one row of the table by name", "[gui]") {
  const Document d{testing::large_trace(1, 650), "x"};
  const auto rows = statistics_by_name(d, {0, d.end()});
  CHECK(rows.size() == 65);
  CHECK(rows.front().name.starts_with("layers.*.op"));
  CHECK(rows.front().count == 10);
  CHECK(rows.front().total >= rows.back().total);
}

TEST_CASE("a search finds all words in names and works, whatever the case", "[gui]") {
  const Document d{small_trace(), "x"};
  CHECK(search(d, "GEMM").size() == 4);
  CHECK(search(d, "sum ALL_REDUCE").size() == 2);
  CHECK(search(d, "sum gemm").empty());
  CHECK(search(d, "  ").empty());
}

TEST_CASE("flows lead from what an op waited for to what waits for it", "[gui]") {
  Explorer e = opened(small_trace());
  const EventIndex sum = search(e.document(), "sum").front();
  const Links links = links_of(e.document(), e.insight(), sum);
  REQUIRE(links.before.size() == 1);
  CHECK(e.document().events().name(links.before[0]) == "a");
  CHECK(links.partners.size() == 1);
  e.view().selected = Selected{Side::Main, sum};
  REQUIRE(e.follow(1));
  CHECK(e.document().events().name(e.follow(1)->event) == "b");
  CHECK(e.document().events().name(e.follow(-1)->event) == "a");
}

TEST_CASE("arrows and marks are looked up when something is selected or found, not for each picture", "[gui]") {
  Explorer e = opened(small_trace());
  CHECK(e.scene().links == nullptr);
  CHECK(e.scene().found == nullptr);
  const EventIndex sum = search(e.document(), "sum").front();
  e.view().selected = Selected{Side::Main, sum};
  CHECK(e.scene().links == nullptr);  // not those of another slice either
  e.refresh();
  REQUIRE(e.scene().links != nullptr);
  CHECK(e.scene().links->before.size() == 1);
  e.view().found = search(e.document(), "gemm");
  e.refresh();
  REQUIRE(e.scene().found != nullptr);
  std::size_t found = 0;
  for (std::size_t t = 0; t < e.document().tracks().size(); ++t)
    for (const std::uint32_t i : e.scene().found->of_track[t]) {
      CHECK(e.document().events().kind(e.document().tracks()[t].slices.event[i]) == "gemm");
      ++found;
    }
  CHECK(found == 4);
}

TEST_CASE("colours can say class, rank, layer, microbatch, phase and slack", "[gui]") {
  Explorer e = opened(testing::large_trace(2, 650));
  for (const auto& by : enum_names(ColourBy{})) {
    e.view().colour_by = by.value;
    e.refresh();
    INFO(by.name);
    CHECK(e.colouring().legend.size() >= 1);
  }
  e.view().colour_by = ColourBy::Slack;
  e.refresh();
  const EventIndex critical = e.insight()->path.segments.back().span;
  const Place p = e.document().place(critical);
  CHECK(e.document().tracks()[p.track].slices.category[p.slice] == 0);
}

TEST_CASE("ranks are grouped along an axis and groups can be folded", "[gui]") {
  Explorer e = opened(small_trace());
  CHECK(groupings_of(e.document()) == std::vector<std::string>{"dp"});
  e.view().group_by = "dp";
  e.refresh();
  REQUIRE(e.layout().groups.size() == 2);
  CHECK(e.layout().groups[1].name == "dp 1");
  const std::size_t before = e.layout().rows.size();
  e.toggle_fold(e.layout().rows.front());
  CHECK(e.layout().rows.size() < before);
  e.toggle_fold(e.layout().rows.front());
  CHECK(e.layout().rows.size() == before);
}

TEST_CASE("a pinned lane is drawn above the rows that scroll", "[gui]") {
  Explorer e = opened(small_trace());
  const int before = e.layout().pinned_height;
  e.toggle_pin(Row{.kind = RowKind::Lane, .index = 2}.key());
  CHECK(e.layout().pinned_height > before);
  e.toggle_pin(Row{.kind = RowKind::Lane, .index = 2}.key());
  CHECK(e.layout().pinned_height == before);
}

TEST_CASE("zooming keeps the instant under the pointer where it is", "[gui]") {
  const TimeRange whole{0, 1'000'000'000}, time{100'000'000, 500'000'000};
  const TimeRange closer = zoomed(time, 200'000'000, 0.5, whole);
  CHECK(closer.length() == 200'000'000);
  CHECK(double(200'000'000 - closer.begin) / double(closer.length()) == Approx(0.25));
  CHECK(zoomed(time, 200'000'000, 1e-9, whole).length() == 1000);
  CHECK(zoomed(time, 200'000'000, 1e9, whole).length() == 1'200'000'000);
  CHECK(panned(time, 100, whole).begin == 800'000'000);
}

TEST_CASE("a picture is the same bytes each time, as PNG and as SVG", "[gui]") {
  const Explorer e = opened(small_trace());
  Font font, other;
  CHECK(write_png(render_image(e, 800, 400, font)) == write_png(render_image(e, 800, 400, other)));
  const std::string svg = render_svg(e, 800, 400, font);
  CHECK(svg == render_svg(e, 800, 400, other));
  CHECK(svg.find(">rank 0</text>") != std::string::npos);
  CHECK(svg.ends_with("</svg>\n"));
}

TEST_CASE("a picture that was written reads back", "[gui]") {
  const Explorer e = opened(small_trace());
  Font font;
  const Image image = render_image(e, 300, 200, font);
  CHECK(different_pixels(image, read_png(write_png(image), "x.png"), 0) == 0);
  CHECK_THROWS_AS(read_png("no image", "x.png"), UserError);
}

TEST_CASE("texts of both themes have the contrast that WCAG asks for at level AA", "[gui]") {
  for (const ThemeName name : {ThemeName::Light, ThemeName::Dark}) {
    const Theme& t = theme(name);
    for (const Color background : {t.background, t.row, t.panel}) {
      CHECK(contrast(t.text, background) >= 4.5);
      CHECK(contrast(t.muted, background) >= 4.5);
      for (const Color line : {t.accent, t.critical, t.mark, t.selection}) CHECK(contrast(line, background) >= 3);
    }
    for (const Color flag : {t.accent, t.mark}) CHECK(contrast(ink_on(flag), flag) >= 4.5);
  }
  for (const Color c : category_colors()) CHECK(contrast(ink_on(c), c) >= 4.5);
}

namespace {

/// CIE L*a*b* of linear RGB, white point D65.
std::array<double, 3> lab(const std::array<double, 3>& rgb_linear) {
  constexpr double kXyz[3][3] = {{.4124, .3576, .1805}, {.2126, .7152, .0722}, {.0193, .1192, .9505}};
  constexpr double kWhite[3] = {.9505, 1, 1.089};
  double f[3];
  for (int i = 0; i < 3; ++i) {
    double v = 0;
    for (int j = 0; j < 3; ++j) v += kXyz[i][j] * std::clamp(rgb_linear[std::size_t(j)], 0.0, 1.0) / kWhite[i];
    f[i] = v > .008856 ? std::cbrt(v) : 7.787 * v + 16.0 / 116;
  }
  return {116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

}  // namespace

TEST_CASE("colours of categories stay apart without red or without green", "[gui]") {
  // Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
  constexpr double kVisions[3][3][3] = {
      {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
      {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}},
      {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}}};
  constexpr double kApart = 15;  // 2.3 can just be told apart
  const auto linear = [](std::uint32_t channel) {
    const double v = double(channel) / 255;
    return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  for (const auto& vision : kVisions) {
    std::vector<std::array<double, 3>> seen;
    for (const Color c : category_colors()) {
      const double in[3] = {linear(red(c)), linear(green(c)), linear(blue(c))};
      std::array<double, 3> out{};
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t j = 0; j < 3; ++j) out[i] += vision[i][j] * in[j];
      seen.push_back(lab(out));
    }
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) {
        INFO(i << " and " << j);
        CHECK(std::hypot(seen[i][0] - seen[j][0], seen[i][1] - seen[j][1], seen[i][2] - seen[j][2]) >= kApart);
      }
  }
}

TEST_CASE("contrast is that of WCAG", "[gui]") {
  CHECK(contrast(rgb(0, 0, 0), rgb(255, 255, 255)) == Approx(21));
  CHECK(contrast(rgb(255, 255, 255), rgb(118, 118, 118)) == Approx(4.54).margin(0.01));  // the well-known limit grey
}

TEST_CASE("ticks are 1, 2 or 5 apart and say as many decimals as they need", "[gui]") {
  for (const std::int64_t length : {1'000LL, 123'456LL, 98'765'432'100LL, 70'000'000'000'000LL}) {
    const Ticks t = ticks({0, length}, 1000, 100);
    std::int64_t leading = t.step;
    while (leading % 10 == 0) leading /= 10;
    CHECK((leading == 1 || leading == 2 || leading == 5));
    CHECK(double(t.step) / double(length) * 1000 >= 100);
  }
  CHECK(tick_text(2'002'000'000'000, 2'000'000'000) == "2.002 s");
  CHECK(exact_text(12'345'678) == "12.345678 us");
}

TEST_CASE("text is cut off with an ellipsis where it does not fit", "[gui]") {
  Font font;
  const std::string cut = font.elided("layers.12.attention.qkv", {12}, 60);
  CHECK(cut.ends_with("…"));
  CHECK(font.width(cut, {12}) <= 61);
  CHECK(font.elided("abc", {12}, 5).empty());
  CHECK(font.elided("abc", {12}, 500) == "abc");
}
