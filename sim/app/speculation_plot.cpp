// SPDX-License-Identifier: Apache-2.0
#include "sim/app/speculation_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "sim/app/svg.hpp"

namespace orrery {
namespace {

constexpr double kFrameWidth = 560, kFrameHeight = 360, kFrameLeft = 48, kFrameTop = 36, kLegend = 190, kBottom = 40,
                 kLine = 15;

struct Axes {
  double first, last, high;  // log₂ of batches; the largest speed-up
  double x(double batch) const {
    return kFrameLeft + (last > first ? (std::log2(batch) - first) / (last - first) : 0.5) * kFrameWidth;
  }
  double y(double speedup) const { return kFrameTop + kFrameHeight * (1 - speedup / high); }
};

std::string frame(const Axes& a, const std::vector<std::int64_t>& batches) {
  std::string s = fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
                              kFrameLeft, kFrameTop, kFrameWidth, kFrameHeight);
  for (const std::int64_t b : batches)
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n", a.x(double(b)),
                     kFrameTop + kFrameHeight + 16, b);
  for (double v = 0; v <= a.high; v += 0.5)
    s += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{:.1f}x</text>\n", kFrameLeft - 5, a.y(v) + 4,
                     v);
  s += fmt::format(
      "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#888\" stroke-dasharray=\"5 4\"/>\n",
      kFrameLeft, a.y(1), kFrameLeft + kFrameWidth);
  return s + fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">batch</text>\n", kFrameLeft + kFrameWidth / 2,
                         kFrameTop + kFrameHeight + 32);
}

std::string curve(const Axes& a, const std::vector<std::int64_t>& batches, const SpeculationCurve& c, std::size_t i) {
  const char* colour = kSvgColours[i % std::size(kSvgColours)];
  std::string points;
  for (std::size_t b = 0; b < batches.size(); ++b)
    points += fmt::format("{:.1f},{:.1f} ", a.x(double(batches[b])), a.y(c.speedups[b]));
  const char* dashes = i < std::size(kSvgColours) ? "" : " stroke-dasharray=\"3 3\"";
  return fmt::format(
      "<polyline fill=\"none\" stroke=\"{0}\" stroke-width=\"1.8\"{1} points=\"{2}\"/>\n"
      "<line x1=\"{3}\" y1=\"{4}\" x2=\"{5}\" y2=\"{4}\" stroke=\"{0}\" stroke-width=\"1.8\"{1}/>"
      "<text x=\"{6}\" y=\"{7}\">{8}</text>\n",
      colour, dashes, points, kFrameLeft + kFrameWidth + 10, kFrameTop + 8 + kLine * double(i),
      kFrameLeft + kFrameWidth + 28, kFrameLeft + kFrameWidth + 33, kFrameTop + 12 + kLine * double(i),
      svg_text(c.name));
}

}  // namespace

std::string speculation_svg(const std::string& title, const std::vector<std::int64_t>& batches,
                            const std::vector<SpeculationCurve>& curves) {
  Axes a{std::log2(double(batches.front())), std::log2(double(batches.back())), 1};
  for (const SpeculationCurve& c : curves)
    a.high = std::max(a.high, *std::max_element(c.speedups.begin(), c.speedups.end()));
  a.high = std::ceil(2 * a.high) / 2;
  std::string body = frame(a, batches);
  for (std::size_t i = 0; i < curves.size(); ++i) body += curve(a, batches, curves[i], i);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"#fff\"/>\n<text x=\"{2}\" y=\"22\" font-size=\"13\">{3}</text>\n{4}</svg>\n",
      kFrameLeft + kFrameWidth + kLegend, kFrameTop + kFrameHeight + kBottom, kFrameLeft, svg_text(title), body);
}

}  // namespace orrery
