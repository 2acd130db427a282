// SPDX-License-Identifier: Apache-2.0
#include "sim/base/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/base/error.hpp"

namespace orrery {
namespace {

constexpr std::size_t kNarrowest = 20;  // of a column that wraps, whatever the others leave

std::string padded(const std::string& cell, std::size_t width, Align align) {
  const std::string space(width - display_width(cell), ' ');
  return align == Align::Left ? cell + space : space + cell;
}

std::string without_trailing_spaces(std::string line) {
  while (line.ends_with(' ')) line.pop_back();
  return line;
}

std::vector<std::string> wrapped(std::string_view cell, std::size_t width) {
  const std::string before(std::min(cell.find_first_not_of(' '), cell.size()), ' ');
  std::vector<std::string> lines{before};
  for (std::size_t at = before.size(); at < cell.size();) {
    const std::size_t space = std::min(cell.find(' ', at), cell.size());
    const std::string word{cell.substr(at, space - at)};
    const auto is_empty = [&] { return lines.back().size() == before.size(); };
    if (!is_empty() && display_width(lines.back()) + 1 + display_width(word) > width) lines.push_back(before);
    lines.back() += (is_empty() ? "" : " ") + word;
    at = space + 1;
  }
  return lines;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

void Table::add(std::vector<std::string> cells) {
  if (cells.size() != columns_.size())
    bug(fmt::format("a row of {} cells in a table of {} columns", cells.size(), columns_.size()));
  rows_.push_back(std::move(cells));
}

Table::Cells Table::head() const {
  Cells names;
  for (const Column& column : columns_) names.push_back(column.name);
  return names;
}

std::vector<std::size_t> Table::widths(const Cells& head, const std::vector<Cells>& rows) const {
  std::vector<std::size_t> widths;
  for (const std::string& name : head) widths.push_back(display_width(name));
  for (const Cells& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  return widths;
}

std::string Table::line(const Cells& cells, const std::vector<std::size_t>& widths) const {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += (i > 0 ? "  " : "") + padded(cells[i], widths[i], columns_[i].align);
  return line;
}

/// The rows, one for each line that they take.
std::vector<Table::Cells> Table::lines(std::size_t indent) const {
  const auto wraps =
      std::find_if(columns_.begin(), columns_.end(), [](const Column& c) { return c.wrap == Wrap::Yes; });
  if (wraps == columns_.end()) return rows_;
  const auto which = static_cast<std::size_t>(wraps - columns_.begin());
  const std::vector<std::size_t> widths = this->widths(head(), rows_);
  std::size_t others = indent;
  for (std::size_t i = 0; i < widths.size(); ++i) others += (i > 0 ? 2 : 0) + (i == which ? 0 : widths[i]);
  const std::size_t width = std::max(kNarrowest, kHelpWidth - std::min(kHelpWidth, others));
  std::vector<Cells> lines;
  for (Cells row : rows_)
    for (std::string& part : wrapped(std::string{row[which]}, width)) {
      row[which] = std::move(part);
      lines.push_back(std::exchange(row, Cells(row.size())));
    }
  return lines;
}

std::string Table::text(std::string_view indent) const {
  const std::vector<Cells> rows = lines(display_width(indent));
  const std::vector<std::size_t> widths = this->widths(head(), rows);
  Cells rules;
  for (std::size_t width : widths) rules.emplace_back(width, '-');
  const auto with_indent = [&](const Cells& cells) {
    return without_trailing_spaces(std::string{indent} + line(cells, widths)) + "\n";
  };
  std::string text = with_indent(head()) + with_indent(rules);
  for (const Cells& row : rows) text += with_indent(row);
  return text;
}

}  // namespace orrery
