// SPDX-License-Identifier: Apache-2.0
#include "sim/timeline/render_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <vector>

#include "sim/base/table.hpp"
#include "sim/timeline/span_index.hpp"

namespace orrery {
namespace {

constexpr std::size_t kMinCells = 10;

char letter_of(OpClass c) {
  switch (c) {
    case OpClass::Gemm:
      return 'G';
    case OpClass::Attention:
      return 'A';
    case OpClass::Norm:
      return 'N';
    case OpClass::Elementwise:
      return 'E';
    case OpClass::Embedding:
      return 'B';
    case OpClass::Loss:
      return 'L';
    case OpClass::Routing:
      return 'R';
    case OpClass::Optimizer:
      return 'O';
    case OpClass::Copy:
      return 'M';
    case OpClass::Collective:
      return 'C';
    case OpClass::PointToPoint:
      return 'P';
    case OpClass::Host:
      return 'H';
    case OpClass::Other:
      return 'X';
  }
  return '?';
}

/// Time per class in one cell of the picture, as a share of the cell.
using Cell = std::array<double, kNumOpClasses>;

/// The bar of one stream.
class Row {
 public:
  Row(std::size_t cells, double cell_ps) : cells_(cells), cell_ps_{cell_ps} {}

  void add(const Span& span, OpClass c) {
    const auto last = static_cast<double>(cells_.size());
    const double start = std::min(double(span.start_ps) / cell_ps_, last),
                 end = std::min(double(span.end_ps) / cell_ps_, last);
    for (auto i = static_cast<std::size_t>(start); i < cells_.size() && double(i) < end; ++i)
      cells_[i][static_cast<std::size_t>(c)] += std::min(end, double(i) + 1) - std::max(start, double(i));
  }

  std::string text(std::string_view idle) const {
    std::string out;
    for (const Cell& cell : cells_) {
      const auto longest = std::max_element(cell.begin(), cell.end());
      double busy = 0;
      for (const double share : cell) busy += share;
      const char letter = letter_of(static_cast<OpClass>(longest - cell.begin()));
      if (busy <= 0)
        out += idle;
      else
        out += busy < 0.5 ? static_cast<char>(std::tolower(letter)) : letter;
    }
    return out;
  }

 private:
  std::vector<Cell> cells_;
  double cell_ps_;
};

/// "0 s      10 ms      20 ms": a time at every fifth of the width.
std::string scale(std::size_t cells, Seconds makespan, std::string_view tick) {
  constexpr std::size_t kMarks = 5;
  std::string out;
  std::size_t column = 0;
  for (std::size_t i = 0; i < kMarks; ++i) {
    const std::size_t at = cells * i / kMarks;
    const std::string mark = std::string{tick} + (i == 0 ? "0" : to_text(makespan * (double(i) / kMarks)));
    if (at < column || at + display_width(mark) > cells) continue;
    out += std::string(at - column, ' ') + mark + " ";
    column = at + display_width(mark) + 1;
  }
  return out;
}

std::string legend(const std::array<bool, kNumOpClasses>& seen) {
  std::string out;
  for (std::size_t c = 0; c < seen.size(); ++c) {
    const auto op_class = static_cast<OpClass>(c);
    if (seen[c]) out += fmt::format("{}{} {}", out.empty() ? "" : "  ", letter_of(op_class), name_of(op_class));
  }
  return out;
}

}  // namespace

std::string render_text(const Timeline& timeline, const PlanDigests& plans, const RenderOptions& options) {
  if (timeline.makespan_ps <= 0 || timeline.spans.empty()) return "nothing ran\n";
  std::vector<RankId> ranks = ranks_of(timeline);
  const std::size_t hidden = ranks.size() - std::min(ranks.size(), options.max_ranks);
  ranks.resize(ranks.size() - hidden);
  const std::string widest = fmt::format("rank {} copy_out ", ranks.empty() ? 0 : ranks.back().value);
  const auto width = static_cast<std::size_t>(std::max(options.width, 0));
  const std::size_t cells = std::max(kMinCells, width > widest.size() ? width - widest.size() : 0);
  std::map<std::pair<RankId, Stream>, Row> rows;
  std::array<bool, kNumOpClasses> seen{};
  for (const Span& span : timeline.spans) {
    if (span.part != 0 || !std::binary_search(ranks.begin(), ranks.end(), span.rank)) continue;
    const PlanDigest& plan = plan_of(timeline, plans, span);
    const OpClass c = plan.work(span.op).op_class;
    const auto key = std::pair{span.rank, plan[span.op].stream};
    rows.try_emplace(key, cells, double(timeline.makespan_ps) / double(cells)).first->second.add(span, c);
    seen[static_cast<std::size_t>(c)] = true;
  }
  const bool unicode = options.glyphs == Glyphs::Unicode;
  std::string out = std::string(widest.size(), ' ') + scale(cells, timeline.makespan(), unicode ? "╷" : "|");
  out.erase(out.find_last_not_of(' ') + 1);
  out += "\n";
  for (const auto& [key, row] : rows) {
    std::string label = fmt::format("rank {} {}", key.first.value, name_of(key.second));
    label.resize(widest.size(), ' ');
    out += label + row.text(unicode ? "·" : ".") + "\n";
  }
  if (hidden > 0) out += fmt::format("… and {} more ranks\n", hidden);
  return out + legend(seen) + "\n";
}

}  // namespace orrery
