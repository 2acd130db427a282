// SPDX-License-Identifier: Apache-2.0
#include "sim/app/memory_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "sim/app/svg.hpp"
#include "sim/base/units.hpp"

namespace orrery {
namespace {

constexpr int kWidth = 900, kPanel = 220, kLeft = 80, kTop = 34, kGap = 46, kLines = 4;

/// A curve of a panel.
struct Curve {
  const char* name;
  std::int64_t AllocationPoint::*value;
  const char* colour;
};
constexpr Curve kCurves[] = {{"reserved", &AllocationPoint::reserved, "#c7c7c7"},
                             {"active", &AllocationPoint::active, "#ff9d4d"},
                             {"allocated", &AllocationPoint::allocated, "#1f77b4"}};

/// The largest value of a curve in each column of the picture.
std::string area(const std::vector<AllocationPoint>& points, const Curve& curve, double top, double most) {
  std::string path = fmt::format("M{} {:.1f}", kLeft, top + kPanel);
  const std::size_t n = points.size();
  for (int x = 0; x < kWidth; ++x) {
    const std::size_t first = n * static_cast<std::size_t>(x) / kWidth;
    const std::size_t last = std::max(n * static_cast<std::size_t>(x + 1) / kWidth, first + 1);
    std::int64_t value = 0;
    for (std::size_t i = first; i < std::min(last, n); ++i) value = std::max(value, points[i].*curve.value);
    const double y = top + kPanel - double(value) / most * kPanel;
    path += fmt::format("L{} {:.1f}L{} {:.1f}", kLeft + x, y, kLeft + x + 1, y);
  }
  return fmt::format("<path d=\"{}L{} {:.1f}Z\" fill=\"{}\"/>\n", path, kLeft + kWidth, top + kPanel, curve.colour);
}

std::string panel(const MemoryPanel& p, double top, double most, std::int64_t capacity) {
  std::string s = fmt::format("<text x=\"{}\" y=\"{:.1f}\" font-size=\"13\">{}, over {} events</text>\n", kLeft,
                              top - 8, svg_text(p.title), p.points->size());
  for (const Curve& c : kCurves) s += area(*p.points, c, top, most);
  for (int i = 0; i <= kLines; ++i) {
    const double y = top + kPanel - double(i) / kLines * kPanel;
    s +=
        fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#000\" stroke-opacity=\"0.15\"/>\n",
                    kLeft, y, kLeft + kWidth, y);
    s += fmt::format("<text x=\"{}\" y=\"{:.1f}\" font-size=\"11\" text-anchor=\"end\">{}</text>\n", kLeft - 6, y + 4,
                     to_text(Bytes{most * i / kLines}));
  }
  if (capacity > 0 && double(capacity) <= most) {
    const double y = top + kPanel - double(capacity) / most * kPanel;
    s += fmt::format("<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#d62728\"/>\n", kLeft, y,
                     kLeft + kWidth, y);
  }
  return s;
}

}  // namespace

std::string memory_svg(const std::vector<MemoryPanel>& panels, std::int64_t capacity) {
  std::int64_t most = 1;
  for (const MemoryPanel& p : panels)
    for (const AllocationPoint& a : *p.points) most = std::max({most, a.reserved, a.active});
  const auto height = kTop + static_cast<int>(panels.size()) * (kPanel + kGap);
  std::string s = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kLeft + kWidth + 20, height);
  double x = kLeft;
  for (const Curve& c : kCurves) {
    s += fmt::format("<rect x=\"{:.0f}\" y=\"6\" width=\"10\" height=\"10\" fill=\"{}\"/>", x, c.colour);
    s += fmt::format("<text x=\"{:.0f}\" y=\"15\" font-size=\"11\">{}</text>\n", x + 14, c.name);
    x += 90;
  }
  for (std::size_t i = 0; i < panels.size(); ++i)
    s += panel(panels[i], kTop + 14 + double(i) * (kPanel + kGap), double(most), capacity);
  return s + "</svg>\n";
}

}  // namespace orrery
