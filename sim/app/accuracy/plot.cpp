// SPDX-License-Identifier: Apache-2.0
#include "sim/app/accuracy/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "sim/app/svg.hpp"

namespace orrery {
namespace {

constexpr int kPanel = 360, kMargin = 56, kHead = 30, kPerLine = 3, kLegendLine = 13;
constexpr double kDot = 1.3, kQuarter = 1.25;

/// A square with the same logarithmic range on both axes.
class Panel {
 public:
  Panel(const JudgedQuantity& quantity, double left, double top) : quantity_{quantity}, left_{left}, top_{top} {
    low_ = 1e300, high_ = -1e300;
    for (const AccuracyPoint& p : quantity_.points)
      for (const double v : {p.value.measured, p.value.predicted})
        if (v > 0) low_ = std::min(low_, std::log10(v)), high_ = std::max(high_, std::log10(v));
    low_ = std::floor(low_), high_ = std::max(std::ceil(high_), low_ + 1);
  }

  std::string svg(const std::string& title) const { return frame(title) + dots() + legend(); }

 private:
  double along(double log) const { return (log - low_) / (high_ - low_) * kPanel; }
  double x(double log) const { return left_ + along(log); }
  double y(double log) const { return top_ + kPanel - along(log); }

  std::string line(double shift, const char* style) const {
    const double first = std::max(low_, low_ - shift), last = std::min(high_, high_ - shift);
    return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x(first),
                       y(first + shift), x(last), y(last + shift), style);
  }

  std::string frame(const std::string& title) const {
    std::string s = fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"{2}\" height=\"{2}\" fill=\"none\" stroke=\"#888\"/>\n"
        "<text x=\"{0:.0f}\" y=\"{3:.0f}\" font-size=\"13\">{4}</text>\n",
        left_, top_, kPanel, top_ - 10, svg_text(title));
    const double step = std::max(1.0, std::ceil((high_ - low_) / 8));
    for (double d = low_; d <= high_; d += step)
      s += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">1e{:.0f}</text>"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">1e{:.0f}</text>\n",
          x(d), top_ + kPanel + 14, d, left_ - 4, y(d) + 3, d);
    s += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">measured</text>\n", left_ + kPanel / 2.0,
                     top_ + kPanel + 28);
    s += line(0, "stroke=\"#000\"");
    for (const double f : {kQuarter, 1 / kQuarter})
      s += line(std::log10(f), "stroke=\"#bbb\" stroke-dasharray=\"4 3\"");
    return s;
  }

  std::map<std::string, std::size_t> colours() const {
    std::map<std::string, std::size_t> of;
    for (const AccuracyPoint& p : quantity_.points) of.try_emplace(p.value.gpu, 0);
    std::size_t i = 0;
    for (auto& [gpu, colour] : of) colour = i++ % std::size(kSvgColours);
    return of;
  }

  std::string dots() const {
    std::map<std::size_t, std::set<std::pair<int, int>>> cells;  // by colour, in units of a dot
    const auto of = colours();
    for (const AccuracyPoint& p : quantity_.points)
      if (p.value.measured > 0 && p.value.predicted > 0)
        cells[of.at(p.value.gpu)].insert(
            {int(along(std::log10(p.value.measured)) / kDot), int(along(std::log10(p.value.predicted)) / kDot)});
    std::string s;
    for (const auto& [colour, places] : cells) {
      s += fmt::format(
          "<path fill=\"none\" stroke-linecap=\"round\" stroke-width=\"{}\" stroke=\"{}\" stroke-opacity=\"0.6\" d=\"",
          2 * kDot, kSvgColours[colour]);
      for (const auto& [across, up] : places)
        s += fmt::format("M{:.1f} {:.1f}h0", left_ + across * kDot, top_ + kPanel - up * kDot);
      s += "\"/>\n";
    }
    return s;
  }

  std::string legend() const {
    std::string s;
    double at = top_ + 14;
    for (const auto& [gpu, colour] : colours()) {
      s += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" fill=\"{}\">{}</text>\n", left_ + 8, at, kSvgColours[colour],
                       svg_text(gpu));
      at += kLegendLine;
    }
    return s;
  }

  const JudgedQuantity& quantity_;
  double left_, top_, low_, high_;
};

}  // namespace

std::string plot_svg(const std::vector<JudgedTable>& tables) {
  std::string body;
  int panels = 0;
  for (const JudgedTable& t : tables)
    for (const JudgedQuantity& q : t.quantities) {
      const int column = panels % kPerLine, line = panels / kPerLine;
      const double left = kMargin + column * (kPanel + kMargin), top = kHead + line * (kPanel + kHead + kMargin);
      body += Panel{q, left, top}.svg(fmt::format("{}: predicted {}, {} points, median error {:.1f} %",
                                                  std::filesystem::path{t.table.file}.filename().string(), q.name,
                                                  q.points.size(), 100 * q.all.median_abs_error));
      ++panels;
    }
  const int columns = std::clamp(panels, 1, kPerLine), lines = std::max(1, (panels + kPerLine - 1) / kPerLine);
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"10\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{2}</svg>\n",
      kMargin + columns * (kPanel + kMargin), lines * (kPanel + kHead + kMargin), body);
}

}  // namespace orrery
