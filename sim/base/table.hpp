// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orrery {

enum class Align { Left, Right };
/// Whether cells go on in further lines where the table would be wider than `kHelpWidth`.
enum class Wrap { No, Yes };

/// Columns of help and of everything else that is text rather than figures.
constexpr std::size_t kHelpWidth = 120;

/// A table of texts with a head, for people: columns as wide as their widest cell, no trailing spaces.
class Table {
 public:
  /// One column of a table may wrap: it gets what the others leave. Cells break between words and go on below behind as
  /// many spaces as they begin with; a word that is too long has a line of its own.
  struct Column {
    std::string name;
    Align align = Align::Left;
    Wrap wrap = Wrap::No;
  };

  explicit Table(std::vector<Column> columns) : columns_{std::move(columns)} {}

  /// Appends a row; it has one cell per column.
  void add(std::vector<std::string> cells);
  std::size_t num_rows() const { return rows_.size(); }  // however many lines they take

  /// Columns two spaces apart, the head underlined; each line starts with `indent`.
  std::string text(std::string_view indent = {}) const;

 private:
  using Cells = std::vector<std::string>;
  std::vector<std::size_t> widths(const Cells& head, const std::vector<Cells>& rows) const;
  std::string line(const Cells& cells, const std::vector<std::size_t>& widths) const;
  Cells head() const;
  std::vector<Cells> lines(std::size_t indent) const;

  std::vector<Column> columns_;
  std::vector<Cells> rows_;
};

/// Columns that a text takes on a terminal, one for each code point.
std::size_t display_width(std::string_view text);

}  // namespace orrery
